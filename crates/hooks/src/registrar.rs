//! Keeps the ExtensionConfig up to date, and renews the certificates.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube::{Client, api::DynamicObject};

use crate::{
    Disabled, Discovery, Error, Registration,
    certificates::Certificates,
    discovery,
    reachability::{Next, Reachability},
    registration::supports_control_plane_upgrade_hook,
    unregister,
};

/// Interval at which the ExtensionConfig is applied even if nothing has changed, or if Cluster API calls no hooks.
const RESYNC: Duration = Duration::from_mins(10);
/// Short, because a Cluster API that starts at the same time stops waiting for the hooks after a minute.
const RETRY: Duration = Duration::from_secs(3);

/// How soon the registration is tried again if it is forbidden.
const RETRY_FORBIDDEN: Duration = Duration::from_mins(1);

/// Registers the hooks with Cluster API.
pub struct Registrar {
    pub client: Client,
    pub registration: Registration,
    pub certificates: Certificates,
    /// Shared with the server: whether Cluster API supports the hook `BeforeControlPlaneUpgrade`.
    pub control_plane_steps: Arc<AtomicBool>,
    pub reachability: Reachability,
    /// The problem that was logged last. Empty if there is none.
    pub logged: String,
}

impl Registrar {
    pub async fn run(mut self) {
        loop {
            match self.publish().await {
                Ok(config) => self.follow(&config).await,
                Err(error) => self.retry_after(&error).await,
            }
        }
    }

    async fn publish(&self) -> Result<DynamicObject, Error> {
        // Must be set before Cluster API calls discovery.
        let steps = supports_control_plane_upgrade_hook(&self.client).await?;
        self.control_plane_steps.store(steps, Ordering::Release);
        self.registration.apply(&self.client, &self.certificates.ca_bundle()).await
    }

    /// Returns when the ExtensionConfig has to be applied again.
    async fn follow(&mut self, config: &DynamicObject) {
        let rotation = self.certificates.until_next_rotation(Timestamp::now());
        if self.certificates.is_renewing() {
            // The next step must not come earlier.
            tokio::time::sleep(rotation).await;
        } else {
            let found = discovery(config);
            self.log_discovery(&found);
            let wait = match self.reachability.next(&found, Instant::now()) {
                Next::Keep => RESYNC,
                Next::CheckAfter(check) => check,
                Next::Unregister => return self.unregister_unreachable().await,
            };
            tokio::time::sleep(wait.min(rotation)).await;
        }
        if let Err(error) = self.certificates.rotate(Timestamp::now()) {
            tracing::error!(%error, "cannot renew the certificate of the hooks; retrying");
            tokio::time::sleep(RETRY).await;
        }
    }

    fn log_discovery(&mut self, found: &Discovery) {
        match found {
            Discovery::Discovered if !std::mem::take(&mut self.logged).is_empty() => {
                tracing::info!("the hooks are registered with Cluster API");
            }
            Discovery::Failed(reason) if self.logged != *reason => {
                tracing::warn!(
                    reason,
                    "Cluster API cannot reach the hooks; check that a NetworkPolicy admits its namespace \
                     (networkPolicy.hooksFrom of the chart)"
                );
                self.logged.clone_from(reason);
            }
            Discovery::Discovered | Discovery::Failed(_) | Discovery::Pending => {}
        }
    }

    /// Deletes the ExtensionConfig, and returns when it is worth another try.
    async fn unregister_unreachable(&self) {
        match unregister(&self.client, &self.registration.name).await {
            Ok(()) => {
                tracing::warn!(
                    "Cluster API cannot reach the hooks, so they are unregistered: upgrades and deletions of Clusters do not \
                     wait for add-ons. Allow connections of Cluster API to --hooks-endpoint, or set it to none"
                );
                tokio::time::sleep(RESYNC).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot unregister the hooks that Cluster API cannot reach; retrying");
                tokio::time::sleep(RETRY_FORBIDDEN).await;
            }
        }
    }

    /// Returns when a registration that has failed is worth another try.
    async fn retry_after(&mut self, error: &Error) {
        log_once(&mut self.logged, error);
        if matches!(error, Error::Disabled(Disabled::FeatureGate)) {
            // An ExtensionConfig from before the gate was disabled would be called as soon as it is enabled again, at an address
            // that may be outdated.
            if let Err(error) = unregister(&self.client, &self.registration.name).await {
                tracing::debug!(%error, "the ExtensionConfig is left");
            }
        }
        let wait = match error {
            // The ClusterClass CRD is large, and someone has to configure Cluster API first.
            Error::Disabled(_) => RESYNC,
            error if error.is_forbidden() => RETRY_FORBIDDEN,
            _ => RETRY,
        };
        tokio::time::sleep(wait).await;
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
