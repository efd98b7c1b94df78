//! The Lease in which each replica of the hub writes when it was alive last.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_api::tunnel::{ClusterTunnelStatus, HUB_RENEWAL_PREFIX, HUBS_LEASE};
use chandler_core::tunnel::{HubLease, HubLiveness, HubObserver, hubs_in};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use crate::locks::Mutex;

/// How long the Lease counts that was read.
const FRESH: Duration = Duration::from_secs(10);

/// Limit of reading the Lease.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// When each replica was alive last, by its own clock. `None` if that is unknown.
type Renewals = Option<BTreeMap<String, Timestamp>>;

/// Reads the Lease of the replicas, and observes how it changes.
pub struct HubLeases {
    client: Client,
    namespace: String,
    read: Mutex<Option<(Arc<Renewals>, Instant)>>,
    observer: Mutex<HubObserver>,
}

impl HubLeases {
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, read: Mutex::default(), observer: Mutex::default() }
    }

    /// Returns the replicas with entries in a status that have died, with the time at which each was alive last.
    pub async fn dead_in(&self, status: &ClusterTunnelStatus) -> BTreeMap<String, Option<Timestamp>> {
        let hubs = hubs_in(status);
        if hubs.is_empty() {
            return BTreeMap::new();
        }
        let (renewals, read) = self.renewals().await;
        let mut observer = self.observer.lock();
        let dead =
            hubs.into_iter().filter_map(|hub| match observer.observe(hub, lease_of(hub, &renewals), read) {
                HubLiveness::Dead(at) => Some((hub.clone(), at)),
                HubLiveness::Alive => None,
            });
        dead.collect()
    }

    /// Returns the content of the Lease, and when it was read.
    async fn renewals(&self) -> (Arc<Renewals>, Instant) {
        // The clock of tokio, which tests can advance.
        let now = tokio::time::Instant::now().into_std();
        let cached = self.read.lock().clone();
        if let Some(cached) = cached.filter(|(_, at)| now.saturating_duration_since(*at) < FRESH) {
            return cached;
        }
        let read = (Arc::new(self.request().await), now);
        *self.read.lock() = Some(read.clone());
        read
    }

    /// Reads the Lease. If it does not exist, no replica is in it: those that are alive create it again within seconds.
    async fn request(&self) -> Renewals {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        match tokio::time::timeout(READ_TIMEOUT, api.get_opt(HUBS_LEASE)).await {
            Ok(Ok(lease)) => {
                let annotations = lease.and_then(|lease| lease.metadata.annotations);
                Some(renewals_in(&annotations.unwrap_or_default()))
            }
            Ok(Err(error)) => {
                tracing::debug!(lease = HUBS_LEASE, %error, "cannot read the Lease of the hubs");
                None
            }
            Err(_) => {
                let seconds = READ_TIMEOUT.as_secs();
                tracing::debug!(
                    lease = HUBS_LEASE,
                    seconds,
                    "no response to a read of the Lease of the hubs"
                );
                None
            }
        }
    }
}

fn lease_of(hub: &str, renewals: &Renewals) -> HubLease {
    match renewals {
        Some(renewals) => renewals.get(hub).copied().map_or(HubLease::Missing, HubLease::Renewed),
        None => HubLease::Unknown,
    }
}

/// Returns when each replica was alive last. Values that are not times are left out.
fn renewals_in(annotations: &BTreeMap<String, String>) -> BTreeMap<String, Timestamp> {
    let renewal = |(key, value): (&String, &String)| {
        Some((key.strip_prefix(HUB_RENEWAL_PREFIX)?.to_owned(), value.parse().ok()?))
    };
    annotations.iter().filter_map(renewal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_are_read_from_annotations() {
        let rows = [
            ("hub.chandler.dev/one", "2027-01-15T08:00:00Z"),
            ("hub.chandler.dev/two", "soon"),
            ("example.com/three", "2027-01-15T08:00:00Z"),
        ];
        let annotations = rows.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let renewals = Some(renewals_in(&annotations));
        let time = "2027-01-15T08:00:00Z".parse().unwrap();
        for (hub, expected) in
            [("one", HubLease::Renewed(time)), ("two", HubLease::Missing), ("three", HubLease::Missing)]
        {
            assert_eq!(lease_of(hub, &renewals), expected, "{hub}");
        }
        assert_eq!(lease_of("one", &None), HubLease::Unknown);
    }
}
