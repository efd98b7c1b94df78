//! How far the release of one cluster is in a rollout.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::{capi::PAUSED_ANNOTATION, reasons::ReleaseReason};
use jiff::Timestamp;
use kube_core::ResourceExt as _;

use super::{RolloutRecord, RolloutTarget, target_of};
use crate::{
    identity::ClusterKey,
    release::{ReleaseKind, State},
};

/// A cluster of a placement that has a release object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    pub cluster: &'a ClusterKey,
    /// The labels of the Cluster.
    pub labels: &'a BTreeMap<String, String>,
    /// What it is updated to. `None` if that is not known.
    pub target: Option<&'a RolloutTarget>,
    pub state: MemberState,
}

/// What is known about the target of a release object. Without one of its own, a target that the object has already still counts
/// if other clusters have it, too.
#[derive(Clone, Copy, Debug)]
pub enum TargetState<'a> {
    Known(&'a RolloutTarget),
    /// The Cluster is paused or being deleted, or its release object cannot be composed until a user changes something.
    Paused(Option<&'a RolloutTarget>),
    /// The release object cannot be composed at the moment.
    Unknown(Option<&'a RolloutTarget>),
}

impl<'a> TargetState<'a> {
    /// Returns the target that a release object gets.
    pub fn known(self) -> Option<&'a RolloutTarget> {
        match self {
            Self::Known(target) => Some(target),
            Self::Paused(_) | Self::Unknown(_) => None,
        }
    }
}

/// How far the release of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It has not been updated to the target.
    Outdated,
    /// It has been updated, and is not ready yet. It has failed if it is not ready then.
    Updating { until: Option<Timestamp> },
    /// It has been updated, and is ready.
    Updated { ready_since: Timestamp },
    /// It has been updated, and its retries are exhausted, or it was not ready in time.
    Failed { at: Timestamp },
    /// It has been updated, and was rolled back for another reason than a failure.
    RolledBack,
    /// It has the target, but no rollout has updated it, or it was ready in time and is not any more.
    Current,
    /// Its cluster is unreachable.
    Unreachable,
    /// Its Cluster is paused, it is suspended, or a user has to change something before its target is known.
    Paused,
    /// Its target is not known at the moment.
    Unknown,
}

/// Returns how far a release is. `timeout` is that of the rollout.
pub fn member_state<R: ReleaseKind>(
    release: &R,
    target: TargetState<'_>,
    timeout: Duration,
    now: Timestamp,
) -> MemberState {
    let after = |begin: Timestamp| begin.checked_add(timeout).unwrap_or(Timestamp::MAX);
    let (target, missing) = match target {
        TargetState::Known(target) => (Some(target), None),
        TargetState::Paused(target) => (target, Some(MemberState::Paused)),
        TargetState::Unknown(target) => (target, Some(MemberState::Unknown)),
    };
    if let Some(deleted) = release.meta().deletion_timestamp.as_ref().filter(|_| missing.is_none()) {
        // It is installed again under another name.
        let until = after(deleted.0);
        return if now < until { MemberState::Updating { until: Some(until) } } else { MemberState::Current };
    }
    let has_target =
        target.zip(target_of(release)).is_some_and(|(target, of_release)| target.is_same_update(&of_release));
    let record = RolloutRecord::of(release).filter(|_| has_target);
    // A failure counts until the release is ready, also while nothing else is known about it.
    if let Some(at) = record.as_ref().and_then(|record| failed_at(release, record)) {
        return MemberState::Failed { at };
    }
    if let Some(unavailable) = unavailable(release).or(missing) {
        return unavailable;
    }
    let Some(record) = record else { return MemberState::Outdated };
    if record.from.is_none() {
        return MemberState::Current;
    }
    let begin = if record.unavailable { now } else { record.available.unwrap_or(record.at).max(record.at) };
    let until = after(begin);
    let Some(ready) = release.readiness() else {
        // Nothing is known about it yet.
        return MemberState::Updating { until: (now < until).then_some(until) };
    };
    let since = ready.last_transition_time.0;
    if ready.status == "True" {
        let revision = release.status().and_then(|status| status.history.first()).map(|one| one.at.0);
        return MemberState::Updated { ready_since: since.max(record.at).max(revision.unwrap_or(record.at)) };
    }
    if ReleaseReason::parse(&ready.reason) == Some(ReleaseReason::RolledBack) {
        return MemberState::RolledBack;
    }
    if now < until {
        return MemberState::Updating { until: Some(until) };
    }
    // What happens after it was ready in time does not belong to the rollout.
    if record.ready.is_some() && since > until {
        MemberState::Current
    } else {
        MemberState::Failed { at: until }
    }
}

/// Returns the record of a release object in this state, if it differs from the one that the object has. A paused object is left
/// unchanged.
pub fn observed_record<R: ReleaseKind>(
    release: &R,
    state: MemberState,
    now: Timestamp,
) -> Option<RolloutRecord> {
    let is_paused = release.annotations().contains_key(PAUSED_ANNOTATION);
    let old = RolloutRecord::of(release).filter(|record| record.from.is_some() && !is_paused)?;
    let mut new = old.clone();
    match state {
        MemberState::Updated { ready_since } => {
            new.ready = old.ready.or(Some(ready_since));
            (new.failed, new.unavailable) = (None, false);
        }
        MemberState::Failed { at } => new.failed = Some(at),
        MemberState::Unreachable | MemberState::Paused => new.unavailable = old.ready.is_none(),
        MemberState::Updating { .. } if old.unavailable => {
            (new.unavailable, new.available) = (false, Some(now));
        }
        MemberState::Updating { .. }
        | MemberState::Outdated
        | MemberState::RolledBack
        | MemberState::Current
        | MemberState::Unknown => {}
    }
    (new != old).then_some(new)
}

/// Returns when a release has failed that a rollout has updated, unless it is ready.
fn failed_at<R: ReleaseKind>(release: &R, record: &RolloutRecord) -> Option<Timestamp> {
    let ready = release.readiness();
    if record.from.is_none() || ready.is_some_and(|ready| ready.status == "True") {
        return None;
    }
    let last = release.status().and_then(|status| status.last_failure.as_ref()).map(|last| last.at.0);
    let at = ready.and_then(|ready| match ReleaseReason::parse(&ready.reason)? {
        ReleaseReason::RetriesExhausted | ReleaseReason::Stalled => {
            Some(last.unwrap_or(ready.last_transition_time.0))
        }
        // Without a failure, a user has asked for it.
        ReleaseReason::RolledBack => last,
        _ => None,
    });
    at.map(|at| at.max(record.at)).or(record.failed)
}

/// Returns why nothing can be said about a release.
fn unavailable<R: ReleaseKind>(release: &R) -> Option<MemberState> {
    if release.annotations().contains_key(PAUSED_ANNOTATION) {
        return Some(MemberState::Paused);
    }
    if State::of(release) == State::Unreachable || was_unreachable(release) {
        return Some(MemberState::Unreachable);
    }
    let ready = release.readiness().filter(|ready| ready.status != "True")?;
    let reason = ReleaseReason::parse(&ready.reason)?;
    matches!(reason, ReleaseReason::Suspended | ReleaseReason::PolicyNotFound).then_some(MemberState::Paused)
}

/// Returns whether the last status, of whichever spec, says that the cluster is unreachable.
fn was_unreachable<R: ReleaseKind>(release: &R) -> bool {
    release.readiness().is_none()
        && release.status().is_some_and(|status| {
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
            State::from_ready(ready, false, false) == State::Unreachable
        })
}

#[cfg(test)]
mod tests;
