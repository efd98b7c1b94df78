//! The Lease that shows which replicas are alive. The manager removes the agents of a replica that has not renewed its part for
//! a minute.
//!
//! All replicas share one Lease, in which each owns an annotation. The names of Pods are not known before, so a Role could not
//! restrict the hub to Leases with these names, and would let it change the Lease of the leader election.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::tunnel::{HUB_FIELD_MANAGER_PREFIX, HUB_RENEWAL_PREFIX, HUBS_LEASE};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};

const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failed renewal.
const RETRY: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time, other replicas remove the annotation of one that was killed. The manager has removed its agents by then.
const FORGET_AFTER: Duration = Duration::from_hours(1);

/// The part of this replica in the Lease.
#[derive(Clone)]
pub struct ReplicaLease {
    api: Api<Lease>,
    replica: String,
}

impl ReplicaLease {
    pub fn new(client: Client, namespace: &str, replica: String) -> Self {
        Self { api: Api::namespaced(client, namespace), replica }
    }

    /// Renews the Lease until the future is dropped.
    pub async fn run(self) {
        loop {
            let pause = match self.renew().await {
                Ok(()) => RENEW_INTERVAL,
                Err(error) => {
                    tracing::warn!(lease = HUBS_LEASE, error, "cannot renew the Lease of the hubs; retrying");
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Removes the annotation of this replica, because it stops.
    pub async fn release(&self) {
        if let Err(error) = self.apply(None).await {
            tracing::warn!(lease = HUBS_LEASE, error, "cannot release the Lease of the hubs");
        }
    }

    async fn renew(&self) -> Result<(), String> {
        let now = Timestamp::now();
        let lease = self.apply(Some(now)).await?;
        let forgotten = forgotten(&lease.metadata.annotations.unwrap_or_default(), now);
        if forgotten.is_empty() {
            return Ok(());
        }
        let annotations: BTreeMap<_, _> = forgotten.into_iter().map(|key| (key, Value::Null)).collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.patch(&PatchParams::default(), &patch).await.map(drop)
    }

    /// Writes when this replica was alive last, or nothing. The annotations of others are theirs.
    async fn apply(&self, renewed: Option<Timestamp>) -> Result<Lease, String> {
        let key = format!("{HUB_RENEWAL_PREFIX}{}", self.replica);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(HUBS_LEASE.to_owned()),
                annotations: renewed.map(|at| [(key, format!("{at:.0}"))].into()),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        let manager = format!("{HUB_FIELD_MANAGER_PREFIX}{}", self.replica);
        let patch = Patch::Apply(serde_json::to_value(&lease).map_err(|error| error.to_string())?);
        self.patch(&PatchParams::apply(&manager).force(), &patch).await
    }

    async fn patch(&self, parameters: &PatchParams, patch: &Patch<Value>) -> Result<Lease, String> {
        let request = self.api.patch(HUBS_LEASE, parameters, patch);
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs())),
        }
    }
}

/// Returns the annotations of replicas that were killed long ago.
fn forgotten(annotations: &BTreeMap<String, String>, now: Timestamp) -> Vec<String> {
    let is_old = |value: &str| {
        let renewed: Timestamp = value.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        Duration::try_from(now.duration_since(renewed)).is_ok_and(|age| age > FORGET_AFTER)
    };
    let of_hubs = annotations.iter().filter(|(key, _)| key.starts_with(HUB_RENEWAL_PREFIX));
    of_hubs.filter(|(_, value)| is_old(value)).map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_were_killed_long_ago_are_forgotten() {
        let now: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
        let rows = [
            ("hub.chandler.dev/alive", "2027-01-15T07:59:55Z", false),
            ("hub.chandler.dev/ahead", "2027-01-15T08:10:00Z", false),
            ("hub.chandler.dev/killed", "2027-01-15T07:10:00Z", false),
            ("hub.chandler.dev/broken", "yesterday", true),
            ("hub.chandler.dev/long-ago", "2027-01-15T06:59:59Z", true),
            ("example.com/other", "2020-01-01T00:00:00Z", false),
        ];
        let annotations = rows.map(|(key, value, _)| (key.to_owned(), value.to_owned())).into();
        let expected: Vec<_> = rows.iter().filter(|(.., old)| *old).map(|(key, ..)| *key).collect();
        assert_eq!(forgotten(&annotations, now), expected);
    }
}
