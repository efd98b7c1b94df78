//! The Lease that shows which replicas are alive. The manager removes the agents of a replica that has not renewed its part for
//! a minute.
//!
//! All replicas share one Lease, in which each owns an annotation. The names of Pods are not known before, so a Role could not
//! restrict the hub to Leases with these names, and would let it change the Lease of the leader election.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

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
        let mut others = Others::default();
        loop {
            let pause = match self.renew(&mut others).await {
                Ok(()) => RENEW_INTERVAL,
                Err(error) => {
                    // The others may fail to renew theirs for the same reason.
                    others = Others::default();
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

    async fn renew(&self, others: &mut Others) -> Result<(), String> {
        let lease = self.apply(Some(Timestamp::now())).await?;
        let forgotten = others.forgotten(&lease.metadata.annotations.unwrap_or_default(), Instant::now());
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

/// The annotations of replicas, each with its value and the time since when it has this value. Only the clock of this process
/// counts: the clocks of two machines may differ.
#[derive(Debug, Default)]
struct Others(HashMap<String, (String, Instant)>);

impl Others {
    /// Takes note of the annotations that were read now. Returns those of replicas that were killed long ago.
    fn forgotten(&mut self, annotations: &BTreeMap<String, String>, now: Instant) -> Vec<String> {
        self.0.retain(|key, _| annotations.contains_key(key));
        let mut forgotten = Vec::new();
        for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(HUB_RENEWAL_PREFIX)) {
            let (known, since) = self.0.entry(key.clone()).or_insert_with(|| (value.clone(), now));
            if known != value {
                known.clone_from(value);
                *since = now;
            }
            if now.saturating_duration_since(*since) >= FORGET_AFTER {
                forgotten.push(key.clone());
            }
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_are_unchanged_for_an_hour_are_forgotten() {
        type Values = &'static [(u64, &'static str)];
        let start = Instant::now();
        // The values of an annotation after so many minutes, and whether it is forgotten after the last one.
        let rows: [(&str, Values, bool); 6] = [
            ("hub.chandler.dev/killed", &[(0, "2027-01-15T08:00:00Z"), (60, "2027-01-15T08:00:00Z")], true),
            ("hub.chandler.dev/new", &[(60, "2027-01-15T08:00:00Z")], false),
            // Years ago, or ahead: the clock of the replica does not matter.
            ("hub.chandler.dev/behind", &[(0, "2020-01-01T00:00:00Z"), (59, "2020-01-01T00:00:00Z")], false),
            ("hub.chandler.dev/ahead", &[(0, "2040-01-01T00:00:00Z"), (60, "2040-01-01T00:00:00Z")], true),
            ("hub.chandler.dev/alive", &[(0, "2020-01-01T00:00:00Z"), (60, "2020-01-01T00:00:10Z")], false),
            ("example.com/other", &[(0, "2020-01-01T00:00:00Z"), (60, "2020-01-01T00:00:00Z")], false),
        ];
        for (key, values, expected) in rows {
            let (mut others, mut last) = (Others::default(), Vec::new());
            for (minute, value) in values {
                let annotations = [(key.to_owned(), (*value).to_owned())].into();
                last = others.forgotten(&annotations, start + Duration::from_mins(*minute));
            }
            assert_eq!(last == [key], expected, "{key}");
        }
        let mut others = Others::default();
        let annotations = [("hub.chandler.dev/gone".to_owned(), String::new())].into();
        others.forgotten(&annotations, start);
        others.forgotten(&BTreeMap::new(), start);
        assert!(others.0.is_empty(), "removed annotations are not kept");
    }
}
