//! The signature policy of the platform, read from a ConfigMap that tenants cannot write.

use std::{sync::Arc, time::Duration};

use chandler_source::{Packages, SignaturePolicy};
use kube::Client;

use crate::extension::ConfigMapKey;

/// Reads the policy and passes it to [`Packages`].
pub struct SignaturePolicySource {
    pub client: Client,
    pub packages: Arc<Packages>,
    pub from: ConfigMapKey,
}

impl SignaturePolicySource {
    /// Polls the policy forever. If it cannot be read, the last policy stays in force. No packages are available before
    /// the first policy has been read.
    pub async fn follow(&self, mut known: Option<String>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            known = self.read(known).await;
        }
    }

    /// Reads the policy. Returns the text of the policy in force.
    pub async fn read(&self, known: Option<String>) -> Option<String> {
        let from = &self.from;
        let error = match self.from.text(&self.client).await {
            Ok(text) if known.as_ref() == Some(&text) => return known,
            Ok(text) => match SignaturePolicy::parse(&text) {
                Ok(policy) => {
                    tracing::info!(%from, "signature policy read");
                    self.packages.demand_signatures(Ok(policy));
                    return Some(text);
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let message = format!("the signature policy in {from} cannot be used: {error}");
        if known.is_none() {
            self.packages.demand_signatures(Err(message.clone()));
            tracing::error!("{message}; nothing is installed until it is fixed");
        } else {
            tracing::warn!("{message}; the last policy stays in force");
        }
        known
    }
}
