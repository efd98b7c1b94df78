//! The signature policy of the platform, read from a ConfigMap that tenants cannot write.

use std::{sync::Arc, time::Duration};

use chandler_source::{Packages, PolicyUnavailable, SignaturePolicy};
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
        let reason = match self.from.text(&self.client).await {
            Ok(text) if known.as_ref() == Some(&text) => return known,
            Ok(text) => match SignaturePolicy::parse(&text) {
                Ok(policy) => {
                    tracing::info!(%from, "signature policy read");
                    self.packages.set_signature_policy(Ok(policy));
                    return Some(text);
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let error = PolicyUnavailable { location: from.to_string(), reason };
        if known.is_none() {
            self.packages.set_signature_policy(Err(error.clone()));
            tracing::error!("{error}; nothing is installed until it is fixed");
        } else {
            tracing::warn!("{error}; the last policy stays in force");
        }
        known
    }
}
