//! The Leases of the hub's replicas. Each has the name of its replica.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use chandler_api::tunnel::ClusterTunnelStatus;
use chandler_core::tunnel::{HubLease, dead_hubs};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

use crate::locks::Mutex;

/// How long a Lease counts that was read.
const FRESH: Duration = Duration::from_secs(10);

/// Reads Leases of replicas.
pub struct HubLeases {
    client: Client,
    namespace: String,
    read: Mutex<HashMap<String, (HubLease, Instant)>>,
}

impl HubLeases {
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, read: Mutex::default() }
    }

    /// Returns the replicas with entries in a status that have died, with the time at which each was alive last.
    pub async fn dead_in(
        &self,
        status: &ClusterTunnelStatus,
        now: Timestamp,
    ) -> BTreeMap<String, Option<Timestamp>> {
        let agents = status.agents.iter().map(|agent| &agent.hub);
        let hubs: BTreeSet<_> = agents.chain(status.joins.iter().map(|join| &join.hub)).collect();
        let mut leases = BTreeMap::new();
        for hub in hubs {
            leases.insert(hub.clone(), self.lease(hub).await);
        }
        dead_hubs(status, &leases, now)
    }

    async fn lease(&self, hub: &str) -> HubLease {
        if !is_name(hub) {
            return HubLease::Missing;
        }
        {
            let mut read = self.read.lock();
            read.retain(|_, (_, at)| at.elapsed() < FRESH);
            if let Some((lease, _)) = read.get(hub) {
                return *lease;
            }
        }
        let lease = self.request(hub).await;
        self.read.lock().insert(hub.to_owned(), (lease, Instant::now()));
        lease
    }

    async fn request(&self, hub: &str) -> HubLease {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        match api.get_opt(hub).await {
            Ok(Some(lease)) => lease
                .spec
                .and_then(|spec| spec.renew_time)
                .map_or(HubLease::Missing, |renewed| HubLease::Renewed(renewed.0)),
            Ok(None) => HubLease::Missing,
            Err(error) => {
                tracing::debug!(hub, %error, "cannot read the Lease of a hub");
                HubLease::Unknown
            }
        }
    }
}

/// Returns whether a text can be the name of a Lease. It becomes a part of a URL.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_allowed) && !text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_become_a_part_of_a_url() {
        for (text, expected) in [
            ("chandler-hub-7d9f-x2", true),
            ("a.b", true),
            ("", false),
            ("..", false),
            ("a/b", false),
            ("A", false),
        ] {
            assert_eq!(is_name(text), expected, "{text}");
        }
    }
}
