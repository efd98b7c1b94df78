//! Releases that a rollout replaces, because they get another name or namespace. Between the removal of the one and the
//! installation of the other, there is no release object that could have a record.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::extensions::ROLLOUT_REPLACED_ANNOTATION;
use jiff::Timestamp;
use kube_core::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};

use super::{MemberRules, MemberState, RolloutRecord};

/// The annotation of a placement: the release objects that its rollout has deleted, by the name of their cluster, until their
/// successors are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Replaced(BTreeMap<String, Removal>);

/// After this time, the watch shows that a release object was deleted.
const SHOWN_AFTER: Duration = Duration::from_mins(10);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Removal {
    /// The uid of the release object.
    uid: String,
    at: Timestamp,
}

impl Replaced {
    /// Returns what a placement has recorded. Nothing if a user has changed it.
    pub fn of(placement: &impl Resource) -> Self {
        let text = placement.annotations().get(ROLLOUT_REPLACED_ANNOTATION);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns the value of the annotation. `None` if there is nothing to record.
    pub fn to_annotation(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|_| !self.0.is_empty())
    }

    /// Records that a release object is going to be deleted.
    pub fn add(&mut self, cluster: &str, release: &impl Resource, at: Timestamp) {
        let uid = release.meta().uid.clone().unwrap_or_default();
        if self.0.get(cluster).is_none_or(|before| before.uid != uid) {
            self.0.insert(cluster.to_owned(), Removal { uid, at });
        }
    }

    /// Forgets clusters that have a successor, whose release object was not deleted after all, or that are not selected any more.
    pub fn retain<'a, R: Resource + 'a>(
        &mut self,
        is_selected: impl Fn(&str) -> bool,
        release: impl Fn(&str) -> Option<&'a R>,
        now: Timestamp,
    ) {
        self.0.retain(|cluster, removal| {
            let of_cluster = release(cluster);
            let is_there = of_cluster.is_some_and(|one| {
                let is_late = removal.at.checked_add(SHOWN_AFTER).is_ok_and(|shown| shown <= now);
                let is_successor = one.meta().uid.as_deref() != Some(&*removal.uid);
                is_successor || is_late && one.meta().deletion_timestamp.is_none()
            });
            is_selected(cluster) && !is_there
        });
    }

    /// Returns the state of a cluster without a release object, if its release is being replaced.
    pub fn state(&self, cluster: &str, rules: &MemberRules) -> Option<MemberState> {
        let until = self.0.get(cluster)?.at.checked_add(rules.timeout).unwrap_or(Timestamp::MAX);
        Some(if rules.now < until {
            MemberState::Updating { until: Some(until) }
        } else {
            MemberState::Failed { at: until }
        })
    }

    /// Returns the record of the first release object of a cluster: that of a successor counts as updated.
    pub fn first_record(&self, cluster: &str, record: RolloutRecord) -> RolloutRecord {
        let from = if self.0.contains_key(cluster) { Some(0) } else { record.from };
        RolloutRecord { from, ..record }
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
    use serde_json::json;

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn release(uid: &str) -> HelmReleaseProxy {
        serde_json::from_value(json!({
            "metadata": {"name": "hello-blue", "uid": uid},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        }))
        .unwrap()
    }

    fn placement(annotation: &str) -> HelmChartProxy {
        serde_json::from_value(json!({
            "metadata": {"name": "hello", "annotations": {ROLLOUT_REPLACED_ANNOTATION: annotation}},
            "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        }))
        .unwrap()
    }

    fn replaced() -> Replaced {
        let mut replaced = Replaced::default();
        replaced.add("blue", &release("1"), at(10));
        replaced
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        assert_eq!(Replaced::of(&placement(&replaced().to_annotation().unwrap())), replaced());
        assert_eq!(Replaced::of(&placement("yes")), Replaced::default(), "what a user has written");
        assert_eq!(Replaced::default().to_annotation(), None);
        let mut again = replaced();
        again.add("blue", &release("1"), at(12));
        assert_eq!(again, replaced(), "it is deleted once");
    }

    #[test]
    fn a_release_is_being_replaced_until_its_successor_is_there() {
        let after = |release: Option<&HelmReleaseProxy>, is_selected: bool, minute| {
            let mut replaced = replaced();
            replaced.retain(|_| is_selected, |_| release, at(minute));
            replaced.0.contains_key("blue")
        };
        assert!(after(None, true, 99));
        assert!(after(Some(&release("1")), true, 11), "the watch does not show yet that it is deleted");
        assert!(!after(Some(&release("1")), true, 20), "it was not deleted after all");
        let mut deleting = release("1");
        deleting.metadata.deletion_timestamp = serde_json::from_value(json!(at(10).to_string())).unwrap();
        assert!(after(Some(&deleting), true, 99));
        assert!(!after(Some(&release("2")), true, 11));
        assert!(!after(None, false, 11));
    }

    #[test]
    fn a_successor_counts_as_updated_and_has_failed_if_it_is_not_there_in_time() {
        let rules = |now| MemberRules {
            timeout: Duration::from_mins(15),
            min_ready: Duration::ZERO,
            observes_health: true,
            resumed_at: None,
            now: at(now),
        };
        let state = |cluster: &str, now| replaced().state(cluster, &rules(now));
        assert_eq!(state("blue", 24), Some(MemberState::Updating { until: Some(at(25)) }));
        assert_eq!(state("blue", 25), Some(MemberState::Failed { at: at(25) }));
        assert_eq!(state("green", 24), None);
        let from = |cluster: &str| replaced().first_record(cluster, RolloutRecord::default()).from;
        assert_eq!((from("blue"), from("green")), (Some(0), None));
    }
}
