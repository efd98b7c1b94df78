//! Throttles the status updates of placements: a change of state is written at once, a change of counts only after an
//! interval. Also caches the last written status until the watch shows it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use chandler_api::status::PlacementStatus;
use chandler_core::placement::PlacementKind;
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use crate::locks::Mutex;

/// The minimum time between writes that only change counts, and between counts of a placement with many clusters.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum time between such writes for a placement with many clusters, because the status lists all of them.
const LONG_COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// The number of clusters above which [`LONG_COUNT_INTERVAL`] grows, so that the API server has time for other writes.
const VERY_MANY_CLUSTERS: usize = 1_000;
/// The growth per cluster: 90 s for 5,000 clusters, whose list takes the API server some seconds to store.
const GROWTH_PER_CLUSTER: Duration = Duration::from_millis(20);
/// A placement with more clusters than this has many.
pub const MANY_CLUSTERS: usize = 100;

/// How long the last written status takes precedence over that of the watch.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The last status write and the last count of each placement.
pub struct StatusThrottle<P: PlacementKind> {
    writes: Mutex<HashMap<ObjectRef<P>, Write<P>>>,
    counts: Mutex<HashMap<ObjectRef<P>, Count>>,
}

struct Write<P: PlacementKind> {
    at: Instant,
    /// Distinguishes objects of the same name.
    uid: Option<String>,
    status: P::Status,
}

struct Count {
    at: Instant,
    clusters: usize,
}

impl<P: PlacementKind> Default for StatusThrottle<P> {
    fn default() -> Self {
        Self { writes: Mutex::default(), counts: Mutex::default() }
    }
}

impl<P: PlacementKind> StatusThrottle<P> {
    /// Records a write.
    pub fn record(&self, placement: &P, status: P::Status) {
        let write = Write { at: Instant::now(), uid: placement.uid(), status };
        self.writes.lock().insert(ObjectRef::from_obj(placement), write);
    }

    /// Records that the clusters of a placement are counted now.
    pub fn record_count(&self, placement: &ObjectRef<P>, clusters: usize) {
        self.counts.lock().insert(placement.clone(), Count { at: Instant::now(), clusters });
    }

    /// Returns the status of a placement: the last written one if it is recent, else that of the watch.
    pub fn current(&self, placement: &P) -> P::Status {
        let all = self.writes.lock();
        let write = all.get(&ObjectRef::from_obj(placement));
        let recent = write.filter(|write| write.uid == placement.uid() && write.at.elapsed() < CATCH_UP);
        recent.map(|write| &write.status).or(placement.status()).cloned().unwrap_or_default()
    }

    /// Returns how long a write has to wait, or `None` if it is due.
    pub fn delay(
        &self,
        placement: &ObjectRef<P>,
        old: &PlacementStatus,
        new: &PlacementStatus,
    ) -> Option<Duration> {
        let due = self.writes.lock().get(placement)?.at + write_interval(new.matching_clusters.len());
        due.checked_duration_since(Instant::now()).filter(|_| same_state(old, new))
    }

    /// Returns how long the next count has to wait, or `None` if it is due. Only counts over many clusters wait.
    pub fn count_delay(&self, placement: &ObjectRef<P>) -> Option<Duration> {
        let counts = self.counts.lock();
        let last = counts.get(placement).filter(|last| last.clusters > MANY_CLUSTERS)?;
        (last.at + COUNT_INTERVAL).checked_duration_since(Instant::now())
    }

    /// Removes a deleted placement.
    pub fn forget(&self, placement: &ObjectRef<P>) {
        self.writes.lock().remove(placement);
        self.counts.lock().remove(placement);
    }
}

/// Returns the minimum time between two writes that only change counts.
fn write_interval(clusters: usize) -> Duration {
    if clusters <= MANY_CLUSTERS {
        return COUNT_INTERVAL;
    }
    let beyond = clusters.saturating_sub(VERY_MANY_CLUSTERS).try_into().unwrap_or(u32::MAX);
    LONG_COUNT_INTERVAL + GROWTH_PER_CLUSTER.saturating_mul(beyond)
}

/// Returns whether two statuses differ in counts and messages only.
fn same_state(old: &PlacementStatus, new: &PlacementStatus) -> bool {
    let state = |status: &PlacementStatus| -> Vec<_> {
        status.conditions.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect()
    };
    old.observed_generation == new.observed_generation && state(old) == state(new)
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmChartProxy;
    use k8s_openapi::{
        api::core::v1::ObjectReference,
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
    };

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
    fn a_write_takes_precedence_until_the_watch_shows_it() {
        let throttle = StatusThrottle::default();
        let (old, new) = (status("1/3", "NotAllReady"), status("2/3", "NotAllReady"));
        let watched = placement("1", Some(old.clone()));
        assert_eq!(throttle.current(&watched), old);
        throttle.record(&watched, new.clone());
        assert_eq!(throttle.current(&watched), new);
        assert_eq!(throttle.current(&placement("2", Some(old.clone()))), old, "another object of the name");
    }

    #[test]
    fn counts_wait_and_state_changes_do_not() {
        let throttle = StatusThrottle::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello");
        let (one, two, failed) =
            (status("1/3", "NotAllReady"), status("2/3", "NotAllReady"), status("2/3", "ValueParsingFailed"));
        assert_eq!(throttle.delay(&placement, &one, &two), None, "the first write is due");
        throttle.record(&self::placement("1", None), one.clone());
        assert!(throttle.delay(&placement, &one, &two).is_some_and(|wait| wait <= COUNT_INTERVAL));
        assert_eq!(throttle.delay(&placement, &two, &failed), None);
    }

    #[test]
    fn a_long_list_of_clusters_is_written_less_often() {
        let throttle = StatusThrottle::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello");
        let many = |ready: &str, reason: &str| PlacementStatus {
            matching_clusters: vec![ObjectReference::default(); 1_000],
            ..status(ready, reason)
        };
        let (one, two, all) =
            (many("1/1000", "NotAllReady"), many("2/1000", "NotAllReady"), many("1000/1000", "Ready"));
        throttle.record(&self::placement("1", None), one.clone());
        assert!(throttle.delay(&placement, &one, &two).is_some_and(|wait| wait > Duration::from_secs(9)));
        assert_eq!(throttle.delay(&placement, &two, &all), None, "a change of state is written at once");
    }

    #[test]
    fn the_interval_grows_with_the_list_of_clusters() {
        for (clusters, seconds) in [(1, 1), (100, 1), (101, 10), (1_000, 10), (2_000, 30), (5_000, 90)] {
            assert_eq!(write_interval(clusters), Duration::from_secs(seconds), "{clusters} clusters");
        }
    }

    #[test]
    fn only_counts_over_many_clusters_wait() {
        let throttle = StatusThrottle::<HelmChartProxy>::default();
        let placement = ObjectRef::new("hello");
        assert_eq!(throttle.count_delay(&placement), None);
        throttle.record_count(&placement, MANY_CLUSTERS);
        assert_eq!(throttle.count_delay(&placement), None);
        throttle.record_count(&placement, MANY_CLUSTERS + 1);
        assert!(throttle.count_delay(&placement).is_some_and(|wait| wait <= COUNT_INTERVAL));
    }
}
