//! The changes that `chandler rollout` makes: annotations of placements. Pure.

use std::collections::BTreeSet;

use chandler_api::{
    extensions::{
        ROLLOUT_ABORT_ANNOTATION, ROLLOUT_PAUSED_ANNOTATION, ROLLOUT_RESUME_AT_ANNOTATION,
        ROLLOUT_SKIP_ANNOTATION,
    },
    status::{RolloutState, RolloutStatus},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Placement},
    suspend_and_retry::{Change, ChangeError, annotations, releases_of},
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
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// Returns the rollout of a placement.
pub fn rollout(placement: &Placement) -> Result<&RolloutStatus, RolloutError> {
    let name = || placement.object.to_string();
    placement.status.rollout.as_ref().ok_or_else(|| RolloutError::NoRollout { placement: name() })
}

/// Returns the change that pauses a rollout.
pub fn pause(placement: &Placement) -> Result<Change, RolloutError> {
    rollout(placement)?;
    let patch =
        (!placement.rollout.paused).then(|| annotations(&[(ROLLOUT_PAUSED_ANNOTATION, json!("true"))]));
    Ok(change(placement, patch))
}

/// Returns the change that lets a rollout go on: failures until now do not count any more.
pub fn resume(fleet: &Fleet, placement: &Placement, now: Timestamp) -> Result<Change, RolloutError> {
    rollout(placement)?;
    // The clock of the manager may be ahead. Recorded times have no fractions of a second.
    let failures =
        releases_of(fleet, placement).into_iter().filter_map(|one| one.status.last_failure.as_ref());
    let after = |at: Timestamp| at.checked_add(SignedDuration::from_secs(1)).unwrap_or(at);
    let resumed_at = failures.map(|failure| after(failure.at.0)).fold(now, Timestamp::max);
    let patch = annotations(&[
        (ROLLOUT_PAUSED_ANNOTATION, Value::Null),
        (ROLLOUT_ABORT_ANNOTATION, Value::Null),
        (ROLLOUT_RESUME_AT_ANNOTATION, json!(resumed_at.to_string())),
    ]);
    Ok(change(placement, Some(patch)))
}

/// Returns the change that aborts a rollout.
pub fn abort(placement: &Placement) -> Result<Change, RolloutError> {
    let status = rollout(placement)?;
    match status.state {
        RolloutState::Aborted => Ok(change(placement, None)),
        RolloutState::Done => Err(RolloutError::Ended { placement: placement.object.to_string() }),
        _ => {
            let targets = json!(status.targets.join(","));
            Ok(change(placement, Some(annotations(&[(ROLLOUT_ABORT_ANNOTATION, targets)]))))
        }
    }
}

/// Returns the change that leaves clusters out of rollouts, besides those that are left out already.
pub fn skip(fleet: &Fleet, placement: &Placement, clusters: &[String]) -> Result<Change, RolloutError> {
    let known: BTreeSet<_> =
        releases_of(fleet, placement).into_iter().map(|one| one.cluster.clone()).collect();
    if let Some(unknown) = clusters.iter().find(|cluster| !known.contains(*cluster)) {
        let (placement, cluster) = (placement.object.to_string(), unknown.clone());
        let clusters = known.into_iter().collect();
        return Err(ChangeError::NoRelease { placement, cluster, clusters }.into());
    }
    let mut all = placement.rollout.skip.clone();
    all.extend(clusters.iter().cloned());
    let is_changed = all != placement.rollout.skip;
    let names = json!(all.into_iter().collect::<Vec<_>>().join(","));
    Ok(change(placement, is_changed.then(|| annotations(&[(ROLLOUT_SKIP_ANNOTATION, names)]))))
}

/// Returns the change that includes all clusters in rollouts again.
pub fn skip_none(placement: &Placement) -> Change {
    let is_changed = !placement.rollout.skip.is_empty();
    change(placement, is_changed.then(|| annotations(&[(ROLLOUT_SKIP_ANNOTATION, Value::Null)])))
}

fn change(placement: &Placement, patch: Option<Value>) -> Change {
    Change { object: placement.object.clone(), cluster: None, patch }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{placement, ready, release};

    /// A placement with a rollout, and releases on `alpha` and `bravo`, of which the first has failed.
    fn fleet(state: RolloutState) -> Fleet {
        let mut failed = ready("False", "RetriesExhausted", "");
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

    fn annotations_of(change: &Change) -> Option<Value> {
        change.patch.as_ref().map(|patch| patch["metadata"]["annotations"].clone())
    }

    #[test]
    fn rollouts_are_paused_and_resumed() {
        let mut fleet = fleet(RolloutState::Stopped);
        let paused = annotations_of(&pause(&fleet.placements[0]).unwrap());
        assert_eq!(paused, Some(json!({"chandler.dev/rollout-paused": "true"})));
        fleet.placements[0].rollout.paused = true;
        assert_eq!(pause(&fleet.placements[0]).unwrap().patch, None);
        let other = placement("other", &[]);
        assert!(matches!(pause(&other), Err(RolloutError::NoRollout { .. })));
        assert!(matches!(resume(&fleet, &other, Timestamp::UNIX_EPOCH), Err(RolloutError::NoRollout { .. })));
        let resumed = |now: &str| {
            let change = resume(&fleet, &fleet.placements[0], now.parse().unwrap()).unwrap();
            annotations_of(&change).unwrap()
        };
        let late = resumed("2026-01-01T01:00:00Z");
        assert_eq!(late["chandler.dev/rollout-resume-at"], "2026-01-01T01:00:00Z");
        assert_eq!(late["chandler.dev/rollout-paused"], Value::Null);
        let early = resumed("2026-01-01T00:00:00Z");
        assert_eq!(early["chandler.dev/rollout-resume-at"], "2026-01-01T00:05:01Z", "after the failure");
    }

    #[test]
    fn only_a_running_rollout_is_aborted() {
        let of = |state| abort(&fleet(state).placements[0]).map(|change| annotations_of(&change));
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
        assert_eq!(annotations_of(&alpha), Some(json!({"chandler.dev/rollout-skip": "alpha,bravo"})));
        assert_eq!(skip(&fleet, placement, &["bravo".to_owned()]).unwrap().patch, None);
        let error = skip(&fleet, placement, &["zulu".to_owned()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "HelmChartProxy fleet/hello has no release on cluster `zulu`; it has releases on alpha, bravo"
        );
        assert_eq!(annotations_of(&skip_none(placement)), Some(json!({"chandler.dev/rollout-skip": null})));
    }
}
