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

/// How soon the registration is tried again where it cannot succeed until someone configures Cluster API or permissions.
const RETRY_LASTING: Duration = Duration::from_mins(1);

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
                log_once(&mut logged, &error);
                tokio::time::sleep(if error.is_lasting() { RETRY_LASTING } else { RETRY }).await;
                continue;
            }
            if !std::mem::take(&mut logged).is_empty() {
                tracing::info!("the hooks are registered with Cluster API");
            }
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

/// Logs why the hooks are not registered, unless it was logged last.
fn log_once(logged: &mut String, error: &Error) {
    let text = error.to_string();
    if *logged == text {
        return;
    }
    if matches!(error, Error::Disabled(_)) {
        tracing::info!(
            reason = text,
            "the hooks are not registered: upgrades and deletions of Clusters do not wait for add-ons"
        );
    } else {
        tracing::warn!(error = text, "cannot register the hooks with Cluster API; retrying");
    }
    *logged = text;
}
