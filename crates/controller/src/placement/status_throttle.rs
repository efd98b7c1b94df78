//! When a placement's status is worth a write: at once if its state changes, at most once a second if only its counts do.
//! Also what was written last, until the watch has had time to show it: no event does.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chandler_api::status::PlacementStatus;
use chandler_core::placement::PlacementKind;
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use crate::sync::{Mutex, MutexGuard};

const COUNTS: Duration = Duration::from_secs(1);

/// How long the status that was written counts for more than the one that the watch shows.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The last status write of each placement.
pub struct StatusThrottle<P: PlacementKind>(Mutex<HashMap<ObjectRef<P>, Write<P>>>);

struct Write<P: PlacementKind> {
    at: Instant,
    /// Another object of the same name has another status.
    uid: Option<String>,
    status: P::Status,
}

impl<P: PlacementKind> Default for StatusThrottle<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: PlacementKind> StatusThrottle<P> {
    /// Remembers a write.
    pub fn written(&self, placement: &P, status: P::Status) {
        let write = Write { at: Instant::now(), uid: placement.uid(), status };
        self.lock().insert(ObjectRef::from_obj(placement), write);
    }

    /// Returns the status of a placement: as it was written last, if that is recent, else as the watch shows it.
    pub fn current(&self, placement: &P) -> P::Status {
        let all = self.lock();
        let write = all.get(&ObjectRef::from_obj(placement));
        let recent = write.filter(|write| write.uid == placement.uid() && write.at.elapsed() < CATCH_UP);
        recent.map(|write| &write.status).or(placement.status()).cloned().unwrap_or_default()
    }

    /// How long a write has to wait. None: it is due.
    pub fn hold_back(
        &self,
        placement: &ObjectRef<P>,
        old: &PlacementStatus,
        new: &PlacementStatus,
    ) -> Option<Duration> {
        let due = self.lock().get(placement)?.at + COUNTS;
        due.checked_duration_since(Instant::now()).filter(|_| same_state(old, new))
    }

    /// Forgets a placement that is gone.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.lock().remove(placement);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<P>, Write<P>>> {
        self.0.lock()
    }
}

/// Whether the two differ in counts and messages alone.
fn same_state(old: &PlacementStatus, new: &PlacementStatus) -> bool {
    let state = |status: &PlacementStatus| -> Vec<_> {
        status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect()
    };
    old.observed_generation == new.observed_generation && state(old) == state(new)
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmChartProxy;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;

    fn status(ready: &str, reason: &str) -> PlacementStatus {
        let condition = Condition {
            type_: "Ready".to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: format!("ready on {ready}"),
            observed_generation: Some(1),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        };
        PlacementStatus {
            conditions: vec![condition],
            ready_clusters: Some(ready.to_owned()),
            ..PlacementStatus::default()
        }
    }

    fn placement(uid: &str, status: Option<PlacementStatus>) -> HelmChartProxy {
        let mut placement: HelmChartProxy = serde_json::from_value(serde_json::json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "uid": uid},
            "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        }))
        .unwrap();
        placement.status = status;
        placement
    }

    #[test]
    fn a_write_counts_before_the_watch_shows_it() {
        let throttle = StatusThrottle::default();
        let (old, new) = (status("1/3", "NotAllReady"), status("2/3", "NotAllReady"));
        let seen = placement("1", Some(old.clone()));
        assert_eq!(throttle.current(&seen), old);
        throttle.written(&seen, new.clone());
        assert_eq!(throttle.current(&seen), new);
        assert_eq!(throttle.current(&placement("2", Some(old.clone()))), old, "another object of the name");
    }

    #[test]
    fn counts_wait_and_state_changes_do_not() {
        let throttle = StatusThrottle::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello");
        let (one, two, failed) =
            (status("1/3", "NotAllReady"), status("2/3", "NotAllReady"), status("2/3", "ValueParsingFailed"));
        assert_eq!(throttle.hold_back(&placement, &one, &two), None, "the first write is due");
        throttle.written(&self::placement("1", None), one.clone());
        assert!(throttle.hold_back(&placement, &one, &two).is_some_and(|wait| wait <= COUNTS));
        assert_eq!(throttle.hold_back(&placement, &two, &failed), None);
    }
}
