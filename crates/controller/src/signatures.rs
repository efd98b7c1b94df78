//! What the platform demands of signatures, kept in a ConfigMap that no tenant may write.

use std::{sync::Arc, time::Duration};

use chandler_source::{Packages, SignaturePolicy};
use kube::Client;

use crate::extension::ConfigMapKey;

/// Reads the policy, and hands it to whoever hands out packages.
pub struct SignatureDemands {
    pub client: Client,
    pub packages: Arc<Packages>,
    pub from: ConfigMapKey,
}

impl SignatureDemands {
    /// Reads it again at a steady pace. What was demanded stays demanded until something else is; as long as nothing was
    /// ever read, nothing is handed out.
    pub async fn follow(&self, mut known: Option<String>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            known = self.read(known).await;
        }
    }

    /// Reads it; gives back the text of the policy in force.
    pub async fn read(&self, known: Option<String>) -> Option<String> {
        let from = &self.from;
        let why = match self.from.text(&self.client).await {
            Ok(text) if known.as_ref() == Some(&text) => return known,
            Ok(text) => match SignaturePolicy::parse(&text) {
                Ok(policy) => {
                    tracing::info!(%from, "policy for signatures");
                    self.packages.demand_signatures(Ok(policy));
                    return Some(text);
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let why = format!("the policy for signatures in {from} cannot be used: {why}");
        if known.is_none() {
            self.packages.demand_signatures(Err(why.clone()));
            tracing::error!("{why}; nothing is installed until it can");
        } else {
            tracing::warn!("{why}; what was demanded before still is");
        }
        known
    }
}
