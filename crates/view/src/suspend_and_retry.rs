//! The changes that `chandler suspend`, `resume` and `retry` make: annotations of placements and releases. Pure.

use chandler_api::{
    extensions::{RETRY_ANNOTATION, ROLLBACK_ANNOTATION, SUSPEND_ANNOTATION},
    reasons::ReleaseReason,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    description::FoundResource,
    fleet::{Fleet, ObjectName, Placement, Release, State},
};

/// The objects to change cannot be determined.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("{placement} has no release on cluster `{cluster}`; {}", existing(clusters))]
    NoRelease { placement: String, cluster: String, clusters: Vec<String> },
    #[error("{release} is on cluster {actual}, not on `{cluster}`: leave --cluster out")]
    OtherCluster { release: String, cluster: String, actual: String },
}

fn existing(clusters: &[String]) -> String {
    if clusters.is_empty() {
        return "it has none at all, `chandler describe` shows why".to_owned();
    }
    format!("it has releases on {}", clusters.join(", "))
}

/// The objects that a user has selected. Commands write their annotations.
#[derive(Clone, Debug)]
pub enum AnnotatedObjects<'a> {
    Placement(&'a Placement),
    /// The release objects of one cluster, usually one.
    Releases(Vec<&'a Release>),
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub object: ObjectName,
    /// The cluster of a release object.
    pub cluster: Option<String>,
    /// The merge patch, which contains metadata only. `None` means that there is nothing to change.
    pub patch: Option<Value>,
}

impl<'a> AnnotatedObjects<'a> {
    /// Returns the object that was found, or its releases on a cluster if one is given.
    pub fn new(
        found: &FoundResource<'a>,
        fleet: &'a Fleet,
        cluster: Option<&str>,
    ) -> Result<Self, ChangeError> {
        match (found, cluster) {
            (FoundResource::Placement(placement), None) => Ok(Self::Placement(placement)),
            (FoundResource::Placement(placement), Some(cluster)) => {
                let all = releases_of(fleet, placement);
                let on_cluster: Vec<_> =
                    all.iter().copied().filter(|release| release.cluster == cluster).collect();
                if on_cluster.is_empty() {
                    let mut clusters: Vec<_> = all.iter().map(|release| release.cluster.clone()).collect();
                    clusters.sort();
                    return Err(ChangeError::NoRelease {
                        placement: placement.object.to_string(),
                        cluster: cluster.to_owned(),
                        clusters,
                    });
                }
                Ok(Self::Releases(on_cluster))
            }
            (FoundResource::Release(release), Some(cluster)) if release.cluster != cluster => {
                Err(ChangeError::OtherCluster {
                    release: release.object.to_string(),
                    cluster: cluster.to_owned(),
                    actual: release.cluster.clone(),
                })
            }
            (FoundResource::Release(release), _) => Ok(Self::Releases(vec![*release])),
        }
    }

    /// Returns the release objects: those of the placement, or the selected ones.
    pub fn releases(&self, fleet: &'a Fleet) -> Vec<&'a Release> {
        match self {
            Self::Placement(placement) => releases_of(fleet, placement),
            Self::Releases(releases) => releases.clone(),
        }
    }

    /// Returns the changes that suspend the objects.
    pub fn suspend(&self) -> Vec<Change> {
        self.annotate(|suspended| (!suspended).then(|| annotations(&[(SUSPEND_ANNOTATION, json!("true"))])))
    }

    /// Returns the changes that resume the objects.
    pub fn resume(&self) -> Vec<Change> {
        self.annotate(|suspended| suspended.then(|| annotations(&[(SUSPEND_ANNOTATION, Value::Null)])))
    }

    /// Returns the changes that retry the failed releases of a placement, or these releases. A release that has not failed has
    /// no patch; those of a placement are left out.
    pub fn retry(&self, fleet: &'a Fleet, now: Timestamp) -> Vec<Change> {
        let releases = match self {
            Self::Placement(placement) => {
                let mut all = releases_of(fleet, placement);
                all.retain(|release| is_retried(release));
                all
            }
            Self::Releases(releases) => releases.clone(),
        };
        let change = |release: &Release| {
            // A release that a user has rolled back is tried again, too.
            let patch = || {
                let retry_at = json!(retry_at(release, now).to_string());
                annotations(&[(RETRY_ANNOTATION, retry_at), (ROLLBACK_ANNOTATION, Value::Null)])
            };
            change(release, is_retried(release).then(patch))
        };
        releases.into_iter().map(change).collect()
    }

    /// Returns the clusters whose release objects are suspended on their own, besides the placement.
    pub fn suspended_clusters(&self, fleet: &Fleet) -> Vec<String> {
        let Self::Placement(placement) = self else { return Vec::new() };
        let suspended = releases_of(fleet, placement).into_iter().filter(|release| release.suspended);
        suspended.map(|release| release.cluster.clone()).collect()
    }

    /// Returns the policy of the placement, which can suspend its releases, too.
    pub fn policy(&self, fleet: &Fleet) -> Option<String> {
        match self {
            Self::Placement(placement) => placement.policy_name(),
            Self::Releases(releases) => {
                let is_owner = |placement: &&Placement| releases.iter().any(|one| one.belongs_to(placement));
                fleet.placements.iter().find(is_owner)?.policy_name()
            }
        }
    }

    fn annotate(&self, patch: impl Fn(bool) -> Option<Value>) -> Vec<Change> {
        match self {
            Self::Placement(placement) => vec![Change {
                object: placement.object.clone(),
                cluster: None,
                patch: patch(placement.suspended),
            }],
            Self::Releases(releases) => {
                releases.iter().map(|release| change(release, patch(release.suspended))).collect()
            }
        }
    }
}

/// Returns the releases of a placement.
pub fn releases_of<'a>(fleet: &'a Fleet, placement: &Placement) -> Vec<&'a Release> {
    fleet.releases.iter().filter(|release| release.belongs_to(placement)).collect()
}

fn change(release: &Release, patch: Option<Value>) -> Change {
    Change { object: release.object.clone(), cluster: Some(release.cluster.clone()), patch }
}

/// Returns the merge patch that sets annotations, or removes those that are null.
pub(crate) fn annotations(values: &[(&str, Value)]) -> Value {
    let values: serde_json::Map<_, _> =
        values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"metadata": {"annotations": values}})
}

/// Returns whether another attempt makes sense: the release has failed, and not only its objects. A release that waits until it
/// is resumed is tried then.
fn is_retried(release: &Release) -> bool {
    match release.state() {
        State::Failed => release.reason() != Some(ReleaseReason::Unhealthy),
        State::Waiting | State::Removing => {
            release.status.last_failure.is_some()
                && matches!(release.reason(), Some(ReleaseReason::Suspended | ReleaseReason::PolicyNotFound))
        }
        _ => false,
    }
}

/// Returns a time after all that is known of a release, so that its last failure counts for nothing. Failures after this time
/// do count.
fn retry_at(release: &Release, now: Timestamp) -> Timestamp {
    let failed = release.status.last_failure.iter().map(|failure| failure.at.0);
    let recorded = release.status.history.iter().map(|revision| revision.at.0);
    // Recorded times have no fractions of a second.
    let after = |known: Timestamp| known.checked_add(SignedDuration::from_secs(1)).ok();
    failed.chain(recorded).filter_map(after).fold(now, Timestamp::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        description::ResourceArgument,
        fixtures::{fleet, placement, ready, release},
    };

    fn objects<'a>(
        fleet: &'a Fleet,
        text: &str,
        cluster: Option<&str>,
    ) -> Result<AnnotatedObjects<'a>, ChangeError> {
        let found = ResourceArgument::parse(text).unwrap().find(fleet, "fleet").unwrap();
        AnnotatedObjects::new(&found, fleet, cluster)
    }

    fn names(changes: &[Change]) -> Vec<(&str, bool)> {
        changes.iter().map(|change| (change.object.name.as_str(), change.patch.is_some())).collect()
    }

    #[test]
    fn the_placement_or_a_release_is_suspended_and_resumed_once() {
        let mut fleet = fleet();
        let rows = [
            ("hcp/hello", None, "hello"),
            ("hcp/hello", Some("alpha"), "hello-alpha"),
            ("release/hello-alpha", None, "hello-alpha"),
        ];
        for (text, cluster, name) in rows {
            let objects = objects(&fleet, text, cluster).unwrap();
            let changes = objects.suspend();
            assert_eq!(names(&changes), [(name, true)]);
            let patch = json!({"metadata": {"annotations": {"chandler.dev/suspend": "true"}}});
            assert_eq!(changes[0].patch, Some(patch));
            assert_eq!(names(&objects.resume()), [(name, false)], "it is not suspended");
        }
        fleet.placements[0].suspended = true;
        fleet.releases[0].suspended = true;
        let objects = objects(&fleet, "hcp/hello", None).unwrap();
        assert_eq!(names(&objects.suspend()), [("hello", false)], "it is suspended");
        let patch = json!({"metadata": {"annotations": {"chandler.dev/suspend": null}}});
        assert_eq!(objects.resume()[0].patch, Some(patch));
        assert_eq!(objects.suspended_clusters(&fleet), ["alpha"]);
    }

    #[test]
    fn a_wrong_cluster_is_refused() {
        let fleet = fleet();
        let error = objects(&fleet, "hello", Some("zulu")).unwrap_err().to_string();
        assert_eq!(
            error,
            "HelmChartProxy fleet/hello has no release on cluster `zulu`; it has releases on alpha"
        );
        let error = objects(&fleet, "hello-alpha", Some("zulu")).unwrap_err().to_string();
        assert_eq!(
            error,
            "HelmReleaseProxy fleet/hello-alpha is on cluster alpha, not on `zulu`: leave --cluster out"
        );
    }

    /// Returns a placement with one release per reason, on clusters of the same name. The releases have failed at 00:04.
    fn failures(reasons: &[&str]) -> Fleet {
        let releases = reasons.iter().map(|reason| {
            let mut status = ready(if *reason == "Ready" { "True" } else { "False" }, reason, "");
            if *reason != "Ready" {
                status["lastFailure"] = json!({
                    "category": "NotReady", "message": "", "input": "", "count": 3, "at": "2026-01-01T00:04:00Z",
                });
            }
            release("hello", &reason.to_lowercase(), &status)
        });
        Fleet { releases: releases.collect(), placements: vec![placement("hello", &[])] }
    }

    #[test]
    fn failed_releases_are_retried() {
        let reasons =
            ["Ready", "RetriesExhausted", "RolledBack", "Unhealthy", "Suspended", "HelmReleasePending"];
        let fleet = failures(&reasons);
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let all = objects(&fleet, "hcp/hello", None).unwrap().retry(&fleet, now);
        assert_eq!(
            names(&all),
            [("hello-retriesexhausted", true), ("hello-rolledback", true), ("hello-suspended", true)]
        );
        let patch = json!({"metadata": {"annotations": {
            "chandler.dev/retry-at": "2026-01-01T00:05:00Z", "chandler.dev/rollback-to": null,
        }}});
        assert_eq!(all[0].patch, Some(patch));
        let one = objects(&fleet, "hcp/hello", Some("unhealthy")).unwrap().retry(&fleet, now);
        assert_eq!(names(&one), [("hello-unhealthy", false)]);
    }

    #[test]
    fn a_retry_is_later_than_the_failure_even_if_the_clock_is_wrong() {
        let mut fleet = failures(&["RolledBack"]);
        let early = "2025-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(retry_at(&fleet.releases[0], early).to_string(), "2026-01-01T00:04:01Z");
        let revision = json!({"revision": 3, "status": "deployed", "at": "2026-01-01T00:04:30Z"});
        fleet.releases[0].status.history = vec![serde_json::from_value(revision).unwrap()];
        assert_eq!(retry_at(&fleet.releases[0], early).to_string(), "2026-01-01T00:04:31Z");
    }
}
