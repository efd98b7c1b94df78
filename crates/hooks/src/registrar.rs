//! Keeps the ExtensionConfig up to date, and renews the certificates.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;

use crate::{
    Error, Registration, certificates::Certificates, registration::supports_control_plane_upgrade_hook,
};

/// Interval at which the ExtensionConfig is applied even if nothing has changed.
const RESYNC: Duration = Duration::from_mins(10);
/// Short, because a Cluster API that starts at the same time stops waiting for the hooks after a minute.
const RETRY: Duration = Duration::from_secs(3);

/// Registers the hooks with Cluster API.
pub struct Registrar {
    pub client: Client,
    pub registration: Registration,
    pub certificates: Certificates,
    /// Shared with the server: whether Cluster API supports the hook `BeforeControlPlaneUpgrade`.
    pub control_plane_steps: Arc<AtomicBool>,
}

impl Registrar {
    pub async fn run(mut self) {
        let mut logged = String::new();
        loop {
            if let Err(error) = self.publish().await {
                let error = error.to_string();
                if logged != error {
                    tracing::warn!(error, "cannot register the hooks with Cluster API; retrying");
                    logged = error;
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
            logged.clear();
            let wait = self.certificates.until_next_rotation(Timestamp::now()).min(RESYNC);
            tokio::time::sleep(wait).await;
            if let Err(error) = self.certificates.rotate(Timestamp::now()) {
                tracing::error!(%error, "cannot renew the certificate of the hooks; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn publish(&self) -> Result<(), Error> {
        // Must be set before Cluster API calls discovery.
        let steps = supports_control_plane_upgrade_hook(&self.client).await?;
        self.control_plane_steps.store(steps, Ordering::Release);
        self.registration.apply(&self.client, &self.certificates.ca_bundle()).await
    }
}
