//! When a placement's status is worth a write: at once if its state changes, at most once a second if only its counts do.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chandler_api::status::PlacementStatus;
use kube::{Resource, runtime::reflector::ObjectRef};

use crate::sync::{Mutex, MutexGuard};

const COUNTS: Duration = Duration::from_secs(1);

/// When each placement's status was written last.
pub struct Told<P: Resource<DynamicType = ()>>(Mutex<HashMap<ObjectRef<P>, Instant>>);

impl<P: Resource<DynamicType = ()>> Default for Told<P> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P: Resource<DynamicType = ()>> Told<P> {
    pub fn note(&self, placement: &ObjectRef<P>) {
        self.lock().insert(placement.clone(), Instant::now());
    }

    /// How long a write has to wait. None: it is due.
    pub fn hold_back(
        &self,
        placement: &ObjectRef<P>,
        old: &PlacementStatus,
        new: &PlacementStatus,
    ) -> Option<Duration> {
        let due = *self.lock().get(placement)? + COUNTS;
        due.checked_duration_since(Instant::now()).filter(|_| same_state(old, new))
    }

    /// Forgets a placement that is gone.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.lock().remove(placement);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<P>, Instant>> {
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

    #[test]
    fn counts_wait_and_news_do_not() {
        let told = Told::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello");
        let (one, two, failed) =
            (status("1/3", "NotAllReady"), status("2/3", "NotAllReady"), status("2/3", "ValueParsingFailed"));
        assert_eq!(told.hold_back(&placement, &one, &two), None, "the first write is due");
        told.note(&placement);
        assert!(told.hold_back(&placement, &one, &two).is_some_and(|wait| wait <= COUNTS));
        assert_eq!(told.hold_back(&placement, &two, &failed), None);
    }
}
