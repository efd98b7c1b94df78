//! The changes that `chandler rollout` and `chandler rollback` make: annotations of placements and releases. Pure.

use std::collections::BTreeSet;

use chandler_api::{
    extensions::{
        ROLLBACK_ANNOTATION, ROLLOUT_ABORT_ANNOTATION, ROLLOUT_PAUSED_ANNOTATION, ROLLOUT_RESUME_AT_ANNOTATION,
        ROLLOUT_SKIP_ANNOTATION,
    },
    status::{RolloutState, RolloutStatus},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Placement, Release},
    suspend_and_retry::{AnnotatedObjects, Change, releases_of},
};

/// A rollout that cannot be changed as requested.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    #[error(
        "{placement} has no rollout: it has no policy with `rollout`, or Chandler has not reconciled it since it has"
    )]
    NoRollout { placement: String },
    #[error(
        "the rollout of {placement} has ended, so there is nothing to abort; `chandler rollback` restores earlier revisions"
    )]
    Ended { placement: String },
    #[error("{placement} has no release on cluster `{cluster}`")]
    NoRelease { placement: String, cluster: String },
    #[error("{release} has no revision {revision} that was deployed; it has {}", numbers(known))]
    NoRevision { release: String, revision: u32, known: Vec<u32> },
}

fn numbers(revisions: &[u32]) -> String {
    if revisions.is_empty() {
        return "none".to_owned();
    }
    revisions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the rollout of a placement.
pub fn rollout(placement: &Placement) -> Result<&RolloutStatus, RolloutError> {
    let name = || placement.object.to_string();
    placement.status.rollout.as_ref().ok_or_else(|| RolloutError::NoRollout { placement: name() })
}

/// Returns the change that pauses a rollout.
pub fn pause(placement: &Placement) -> Change {
    let patch = (!placement.rollout.paused).then(|| patch(&[(ROLLOUT_PAUSED_ANNOTATION, json!("true"))]));
    change(placement, patch)
}

/// Returns the change that lets a rollout go on: failures until now do not count any more.
pub fn resume(fleet: &Fleet, placement: &Placement, now: Timestamp) -> Change {
    // The clock of the manager may be ahead. Recorded times have no fractions of a second.
    let failures =
        releases_of(fleet, placement).into_iter().filter_map(|one| one.status.last_failure.as_ref());
    let after = |at: Timestamp| at.checked_add(SignedDuration::from_secs(1)).unwrap_or(at);
    let resumed_at = failures.map(|failure| after(failure.at.0)).fold(now, Timestamp::max);
    let patch = patch(&[
        (ROLLOUT_PAUSED_ANNOTATION, Value::Null),
        (ROLLOUT_ABORT_ANNOTATION, Value::Null),
        (ROLLOUT_RESUME_AT_ANNOTATION, json!(resumed_at.to_string())),
    ]);
    change(placement, Some(patch))
}

/// Returns the change that aborts a rollout.
pub fn abort(placement: &Placement) -> Result<Change, RolloutError> {
    let status = rollout(placement)?;
    match status.state {
        RolloutState::Aborted => Ok(change(placement, None)),
        RolloutState::Done => Err(RolloutError::Ended { placement: placement.object.to_string() }),
        _ => {
            let targets = json!(status.targets.join(","));
            Ok(change(placement, Some(patch(&[(ROLLOUT_ABORT_ANNOTATION, targets)]))))
        }
    }
}

/// Returns the change that leaves clusters out of rollouts, besides those that are left out already.
pub fn skip(fleet: &Fleet, placement: &Placement, clusters: &[String]) -> Result<Change, RolloutError> {
    let known: BTreeSet<_> =
        releases_of(fleet, placement).into_iter().map(|one| one.cluster.clone()).collect();
    if let Some(unknown) = clusters.iter().find(|cluster| !known.contains(*cluster)) {
        let placement = placement.object.to_string();
        return Err(RolloutError::NoRelease { placement, cluster: unknown.clone() });
    }
    let mut all = placement.rollout.skip.clone();
    all.extend(clusters.iter().cloned());
    let is_changed = all != placement.rollout.skip;
    let names = json!(all.into_iter().collect::<Vec<_>>().join(","));
    Ok(change(placement, is_changed.then(|| patch(&[(ROLLOUT_SKIP_ANNOTATION, names)]))))
}

/// Returns the change that includes all clusters in rollouts again.
pub fn skip_none(placement: &Placement) -> Change {
    let is_changed = !placement.rollout.skip.is_empty();
    change(placement, is_changed.then(|| patch(&[(ROLLOUT_SKIP_ANNOTATION, Value::Null)])))
}

/// Returns the changes that roll releases back to a revision, or to the last one that was deployed before the newest. A release
/// without such a revision has no patch.
pub fn roll_back(
    objects: &AnnotatedObjects<'_>,
    fleet: &Fleet,
    revision: Option<u32>,
) -> Result<Vec<Change>, RolloutError> {
    let releases = match objects {
        AnnotatedObjects::Placement(placement) => releases_of(fleet, placement),
        AnnotatedObjects::Releases(releases) => releases.clone(),
    };
    releases.into_iter().map(|release| roll_back_one(release, revision)).collect()
}

fn roll_back_one(release: &Release, revision: Option<u32>) -> Result<Change, RolloutError> {
    let status = &release.status;
    let was_deployed = |status: &str| matches!(status, "deployed" | "superseded");
    let newest = status.revision.unwrap_or_default();
    let earlier = status.history.iter().filter(|one| one.revision < newest && was_deployed(&one.status));
    let known: Vec<_> = earlier.map(|one| one.revision).collect();
    let target = match revision {
        Some(revision) if !known.contains(&revision) => {
            let release = release.object.to_string();
            return Err(RolloutError::NoRevision { release, revision, known });
        }
        Some(revision) => Some(revision),
        None => known.into_iter().max(),
    };
    let value = target.zip(status.input_digest.as_ref()).map(|(target, inputs)| format!("{target}.{inputs}"));
    Ok(Change {
        object: release.object.clone(),
        cluster: Some(release.cluster.clone()),
        patch: value.map(|value| patch(&[(ROLLBACK_ANNOTATION, json!(value))])),
    })
}

fn change(placement: &Placement, patch: Option<Value>) -> Change {
    Change { object: placement.object.clone(), cluster: None, patch }
}

fn patch(annotations: &[(&str, Value)]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({"metadata": {"annotations": annotations}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{placement, ready, release};

    /// A placement with a rollout, and releases on `alpha` and `bravo`, of which the first has failed.
    fn fleet(state: RolloutState) -> Fleet {
        let mut failed = ready("False", "RetriesExhausted", "");
        failed["inputDigest"] = json!("d1");
        failed["revision"] = json!(4);
        let record = |revision: u32, status: &str| json!({"revision": revision, "status": status, "at": "2026-01-01T00:00:00Z"});
        failed["history"] = json!([record(4, "failed"), record(3, "deployed"), record(2, "superseded")]);
        failed["lastFailure"] = json!({
            "category": "NotReady", "message": "", "input": "", "count": 1, "at": "2026-01-01T00:05:00Z",
        });
        let mut placement = placement("hello", &[]);
        placement.status.rollout = Some(RolloutStatus {
            state,
            targets: vec!["t1".into(), "t2".into()],
            ..RolloutStatus::default()
        });
        let releases =
            vec![release("hello", "alpha", &failed), release("hello", "bravo", &ready("True", "Ready", ""))];
        Fleet { placements: vec![placement], releases }
    }

    fn annotations(change: &Change) -> Option<Value> {
        change.patch.as_ref().map(|patch| patch["metadata"]["annotations"].clone())
    }

    #[test]
    fn rollouts_are_paused_and_resumed() {
        let mut fleet = fleet(RolloutState::Stopped);
        let paused = annotations(&pause(&fleet.placements[0]));
        assert_eq!(paused, Some(json!({"chandler.dev/rollout-paused": "true"})));
        fleet.placements[0].rollout.paused = true;
        assert_eq!(pause(&fleet.placements[0]).patch, None);
        let resumed =
            |now: &str| annotations(&resume(&fleet, &fleet.placements[0], now.parse().unwrap())).unwrap();
        let late = resumed("2026-01-01T01:00:00Z");
        assert_eq!(late["chandler.dev/rollout-resume-at"], "2026-01-01T01:00:00Z");
        assert_eq!(late["chandler.dev/rollout-paused"], Value::Null);
        let early = resumed("2026-01-01T00:00:00Z");
        assert_eq!(early["chandler.dev/rollout-resume-at"], "2026-01-01T00:05:01Z", "after the failure");
    }

    #[test]
    fn only_a_running_rollout_is_aborted() {
        let of = |state| abort(&fleet(state).placements[0]).map(|change| annotations(&change));
        let targets = Some(json!({"chandler.dev/rollout-abort": "t1,t2"}));
        for state in [RolloutState::Progressing, RolloutState::Stopped, RolloutState::Paused] {
            assert_eq!(of(state), Ok(targets.clone()));
        }
        assert_eq!(of(RolloutState::Aborted), Ok(None));
        assert!(matches!(of(RolloutState::Done), Err(RolloutError::Ended { .. })));
        assert!(matches!(abort(&placement("other", &[])), Err(RolloutError::NoRollout { .. })));
    }

    #[test]
    fn clusters_are_skipped_by_name() {
        let mut fleet = fleet(RolloutState::Stopped);
        fleet.placements[0].rollout.skip.insert("bravo".to_owned());
        let placement = &fleet.placements[0];
        let alpha = skip(&fleet, placement, &["alpha".to_owned()]).unwrap();
        assert_eq!(annotations(&alpha), Some(json!({"chandler.dev/rollout-skip": "alpha,bravo"})));
        assert_eq!(skip(&fleet, placement, &["bravo".to_owned()]).unwrap().patch, None);
        let error = skip(&fleet, placement, &["zulu".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "HelmChartProxy fleet/hello has no release on cluster `zulu`");
        assert_eq!(annotations(&skip_none(placement)), Some(json!({"chandler.dev/rollout-skip": null})));
    }

    #[test]
    fn releases_are_rolled_back_to_a_revision_that_was_deployed() {
        let fleet = fleet(RolloutState::Done);
        let all = AnnotatedObjects::Placement(&fleet.placements[0]);
        let changes = roll_back(&all, &fleet, None).unwrap();
        let rolled_back = Some(json!({"chandler.dev/rollback-to": "3.d1"}));
        assert_eq!(changes.iter().map(annotations).collect::<Vec<_>>(), [rolled_back, None]);
        let one = AnnotatedObjects::Releases(vec![&fleet.releases[0]]);
        let changes = roll_back(&one, &fleet, Some(2)).unwrap();
        assert_eq!(annotations(&changes[0]), Some(json!({"chandler.dev/rollback-to": "2.d1"})));
        let error = roll_back(&one, &fleet, Some(4)).unwrap_err().to_string();
        assert_eq!(
            error,
            "HelmReleaseProxy fleet/hello-alpha has no revision 4 that was deployed; it has 3, 2"
        );
    }
}
