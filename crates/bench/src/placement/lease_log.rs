//! The times in the Lease: when the manager was about to send each renewal, by its own clock.
//!
//! The audit log shows when the API server received it. If only that is late, the API server was slow, and not the thread
//! that renews the Lease.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio_util::task::AbortOnDropHandle;

use super::requests::longest_delay;

/// The namespace of the Lease, which is the default of `--leader-election-namespace`.
const NAMESPACE: &str = "chandler-system";

/// Follows the Lease until it is dropped.
pub struct LeaseLog {
    renewals: Arc<Mutex<Vec<Timestamp>>>,
    _task: AbortOnDropHandle<()>,
}

impl LeaseLog {
    pub fn follow(client: &Client) -> Self {
        let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
        let leases: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind));
        let renewals: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
        let recorded = renewals.clone();
        let task = tokio::spawn(async move {
            let mut events = watcher(leases, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(lease) | Event::InitApply(lease)) => {
                        lock(&recorded).extend(renewed(&lease));
                    }
                    Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
                    Err(error) => tracing::warn!(%error, "watching the Lease failed"),
                }
            }
        });
        Self { renewals, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns by how much the longest gap between two renewals since a point in time exceeds their period. `None` means that
    /// there was no renewal.
    pub fn longest_delay(&self, from: Timestamp, period: Duration) -> Option<Duration> {
        let renewals: Vec<_> = lock(&self.renewals).iter().copied().filter(|at| *at >= from).collect();
        longest_delay(&renewals, period)
    }
}

fn lock(renewals: &Mutex<Vec<Timestamp>>) -> MutexGuard<'_, Vec<Timestamp>> {
    renewals.lock().unwrap_or_else(PoisonError::into_inner)
}

fn renewed(lease: &DynamicObject) -> Option<Timestamp> {
    lease.data["spec"]["renewTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_time_of_a_renewal_is_in_the_lease() {
        let lease = |spec: Value| -> DynamicObject {
            let object = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": spec,
            });
            serde_json::from_value(object).unwrap()
        };
        let at = Timestamp::from_microsecond(1_700_000_000_250_000).unwrap();
        let rows = [
            (json!({"renewTime": "2023-11-14T22:13:20.250000Z"}), Some(at)),
            (json!({"renewTime": "later"}), None),
            (json!({}), None),
        ];
        for (spec, expected) in rows {
            assert_eq!(renewed(&lease(spec.clone())), expected, "{spec}");
        }
    }
}
