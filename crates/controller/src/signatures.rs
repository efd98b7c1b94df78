//! What the platform demands of signatures, kept in a ConfigMap that no tenant may write.

use std::{sync::Arc, time::Duration};

use chandler_source::{Packages, PolicyUnavailable, SignaturePolicy};
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
                    self.packages.set_signature_policy(Ok(policy));
                    return Some(text);
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let error = PolicyUnavailable { location: from.to_string(), reason: why };
        if known.is_none() {
            self.packages.set_signature_policy(Err(error.clone()));
            tracing::error!("{error}; nothing is installed until it can be read");
        } else {
            tracing::warn!("{error}; the previous policy stays in force");
        }
        known
    }
}
