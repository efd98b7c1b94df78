//! How far the release of one cluster is in a rollout.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::{
    capi::PAUSED_ANNOTATION,
    reasons::ReleaseReason,
    status::{RevisionHealth, RevisionState},
};
use jiff::Timestamp;
use kube_core::ResourceExt as _;

use super::{RolloutRecord, RolloutTarget, target_of};
use crate::{
    conditions,
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
    /// When a rollout has updated it, or when its cluster was lost after that.
    pub active_at: Option<Timestamp>,
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
    /// It has been updated, and a user has paused or suspended it before it was ready.
    Held,
    /// It has been updated, and is ready.
    Updated { ready_since: Timestamp, checked: Checked },
    /// It has been updated, and its retries are exhausted, one of its objects has failed, or it was not ready in time.
    Failed { at: Timestamp },
    /// It has been updated, was ready, and is unhealthy. It has failed if that was `in_time`, or if its wave has not ended.
    Unhealthy { at: Timestamp, in_time: bool },
    /// It has been updated, was ready, and is not for another reason. It is being updated again if that was `in_time`, or if its
    /// wave has not ended.
    Interrupted(Interruption),
    /// It has been updated, and a user has rolled it back. That counts as a failure if others wait and it was `in_time`, or if its
    /// wave has not ended: the user does not want the update.
    RolledBack { at: Timestamp, in_time: bool },
    /// It has the target, but no rollout has updated it, or it was ready in time and is not any more.
    Current,
    /// Its cluster is unreachable.
    Unreachable,
    /// It has not been updated, and its Cluster is paused, it is suspended, or a user has to change something before its target
    /// is known.
    Paused,
    /// Its target is not known at the moment.
    Unknown,
}

/// Why and since when a release is not ready that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub since: Timestamp,
    /// When its cluster was lost for the first time, if it is unreachable.
    pub lost: Option<Timestamp>,
    /// It has failed if it is not ready then.
    pub until: Timestamp,
    pub in_time: bool,
}

/// What was checked of a release that counts as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Its objects are healthy.
    Health,
    /// Only the result of the package tool: the health of its objects is not observed, or cannot be known.
    ResultOnly,
}

/// What decides how far a release is.
#[derive(Clone, Copy, Debug)]
pub struct MemberRules {
    /// How long a release may take to become ready.
    pub timeout: Duration,
    /// How long its objects have to be healthy.
    pub min_ready: Duration,
    /// Whether the health of its objects is observed.
    pub observes_health: bool,
    /// When a user has resumed the rollout.
    pub resumed_at: Option<Timestamp>,
    pub now: Timestamp,
}

/// How long it may take to confirm that a release is ready which seems to be.
const CONFIRM_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns how far a release is.
pub fn member_state<R: ReleaseKind>(
    release: &R,
    target: TargetState<'_>,
    rules: &MemberRules,
) -> MemberState {
    let (target, missing) = match target {
        TargetState::Known(target) => (Some(target), None),
        TargetState::Paused(target) => (target, Some(MemberState::Paused)),
        TargetState::Unknown(target) => (target, Some(MemberState::Unknown)),
    };
    if let Some(deleted) = release.meta().deletion_timestamp.as_ref().filter(|_| missing.is_none()) {
        // It is installed again, perhaps under another name.
        let until = after(deleted.0, rules.timeout);
        let is_updating = rules.now < until;
        return if is_updating { MemberState::Updating { until: Some(until) } } else { MemberState::Current };
    }
    let has_target =
        target.zip(target_of(release)).is_some_and(|(target, of_release)| target.is_same_update(&of_release));
    let record = RolloutRecord::of(release).filter(|_| has_target);
    let updated = record.as_ref().filter(|record| record.from.is_some());
    let updated = updated.map(|record| UpdatedMember { release, record, rules });
    // A failure counts until the release is ready, also while nothing else is known about it.
    if let Some(at) = updated.as_ref().and_then(UpdatedMember::failed_at) {
        return MemberState::Failed { at };
    }
    let unavailable = match (unavailable(release), missing) {
        (Some(MemberState::Unreachable), Some(MemberState::Paused)) => Some(MemberState::Paused),
        (state, missing) => state.or(missing),
    };
    match (unavailable, updated) {
        (Some(MemberState::Unreachable), Some(updated)) if missing.is_none() => updated.unreachable(),
        (Some(MemberState::Paused), Some(updated)) => updated.paused(),
        (Some(state), _) => state,
        (None, Some(updated)) => updated.state(),
        (None, None) if record.is_some() => MemberState::Current,
        (None, None) => MemberState::Outdated,
    }
}

/// A release that a rollout has updated to its target.
struct UpdatedMember<'a, R> {
    release: &'a R,
    record: &'a RolloutRecord,
    rules: &'a MemberRules,
}

impl<R: ReleaseKind> UpdatedMember<'_, R> {
    /// Returns when the time to become ready is over.
    fn until(&self) -> Timestamp {
        let Self { record, rules, .. } = self;
        let begin = if record.unavailable { rules.now } else { record.available.unwrap_or(record.at) };
        after(begin.max(record.at), rules.timeout)
    }

    fn state(&self) -> MemberState {
        let (Self { release, record, rules }, until) = (self, self.until());
        let Some(ready) = release.readiness() else {
            // Nothing is known about it yet.
            return MemberState::Updating { until: (rules.now < until).then_some(until) };
        };
        let since = ready.last_transition_time.0;
        if ready.status == "True" {
            return self.ready_state(since, until);
        }
        match ReleaseReason::parse(&ready.reason) {
            Some(ReleaseReason::RolledBack) => {
                let at = self.newest_revision().map_or(since, |at| at.max(since)).max(record.at);
                MemberState::RolledBack { at, in_time: record.ready.is_none() || at < until }
            }
            Some(ReleaseReason::Unhealthy) if record.ready.is_some() => {
                MemberState::Unhealthy { at: since.max(record.at), in_time: since < until }
            }
            _ if record.ready.is_some() && since > until => MemberState::Interrupted(Interruption {
                since,
                lost: None,
                until: after(since, rules.timeout),
                in_time: false,
            }),
            _ => self.updating_until(until),
        }
    }

    /// Returns the state of a release that is deployed, and whose objects are not known to be unhealthy.
    fn ready_state(&self, since: Timestamp, until: Timestamp) -> MemberState {
        let Self { record, rules, .. } = self;
        let since = since.max(record.at).max(self.newest_revision().unwrap_or(record.at));
        let updated = |ready_since, checked| MemberState::Updated { ready_since, checked };
        if !rules.observes_health {
            return updated(since, Checked::ResultOnly);
        }
        if let Some(ready) = record.ready {
            return updated(since.max(ready), record.checked());
        }
        match self.health().map(|health| (health.state, health.since.0)) {
            Some((RevisionState::Healthy, confirmed)) => updated(since.max(confirmed), Checked::Health),
            Some((RevisionState::Unknown, confirmed)) => updated(since.max(confirmed), Checked::ResultOnly),
            // It seems to be ready, which is being confirmed.
            _ => self.updating_until(after(until, rules.min_ready.saturating_add(CONFIRM_TIMEOUT))),
        }
    }

    fn updating_until(&self, until: Timestamp) -> MemberState {
        if self.rules.now < until {
            MemberState::Updating { until: Some(until) }
        } else {
            MemberState::Failed { at: until }
        }
    }

    /// Returns the state of a release whose cluster is unreachable, perhaps because of the update.
    fn unreachable(&self) -> MemberState {
        let (Self { record, rules, .. }, until) = (self, self.until());
        if record.ready.is_none() {
            return self.updating_until(until);
        }
        let status = self.release.status();
        let ready = status.and_then(|status| conditions::find(&status.conditions, "Ready"));
        let since = ready.map_or(rules.now, |ready| ready.last_transition_time.0).max(record.at);
        let lost = record.lost.filter(|lost| !rules.is_resumed_after(*lost)).unwrap_or(since);
        MemberState::Interrupted(Interruption {
            since,
            lost: Some(lost),
            until: after(lost, rules.timeout).max(since),
            in_time: since < until,
        })
    }

    /// Returns the state of a release that a user has paused or suspended after its update, perhaps because of it: the last one.
    fn paused(&self) -> MemberState {
        let Some(ready_since) = self.record.ready else { return MemberState::Held };
        if is_unreachable(self.release) {
            return self.unreachable();
        }
        let reason = self.release.readiness().and_then(|ready| ReleaseReason::parse(&ready.reason));
        match reason {
            Some(ReleaseReason::Unhealthy | ReleaseReason::RolledBack) => self.state(),
            _ => MemberState::Updated { ready_since, checked: self.record.checked() },
        }
    }

    /// Returns when the newest revision was created.
    fn newest_revision(&self) -> Option<Timestamp> {
        Some(self.release.status()?.history.first()?.at.0)
    }

    /// Returns the health of the newest revision, as the current spec has created it.
    fn health(&self) -> Option<&RevisionHealth> {
        let status = self.release.current_status()?;
        let identity = (status.revision, self.release.meta().generation);
        status.health.as_ref().filter(|health| (Some(health.revision), Some(health.generation)) == identity)
    }

    /// Returns when the release has failed, unless it is ready.
    fn failed_at(&self) -> Option<Timestamp> {
        let Self { release, record, rules } = self;
        let ready = release.readiness();
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        let unhealthy = record.unhealthy.filter(|at| !rules.is_resumed_after(*at));
        if let Some(at) = unhealthy {
            let is_stable =
                ready.is_some_and(|ready| after(ready.last_transition_time.0, rules.timeout) <= rules.now);
            return (!is_ready || !is_stable).then_some(at);
        }
        let failed = self.health().filter(|health| health.state == RevisionState::Failed);
        let failed = failed.filter(|_| rules.observes_health && record.ready.is_none());
        if let Some(health) = failed {
            return Some(record.failed.unwrap_or(health.since.0.max(record.at)));
        }
        if is_ready {
            // It seems to be ready, which may not be confirmed yet.
            return record.failed.filter(|_| !matches!(self.state(), MemberState::Updated { .. }));
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
}

impl MemberRules {
    /// Returns whether a user has resumed the rollout after a moment.
    fn is_resumed_after(&self, moment: Timestamp) -> bool {
        self.resumed_at.is_some_and(|resumed| resumed >= moment)
    }
}

fn after(begin: Timestamp, timeout: Duration) -> Timestamp {
    begin.checked_add(timeout).unwrap_or(Timestamp::MAX)
}

/// Returns when a rollout has updated a release, or when its cluster was lost after that.
pub fn active_at(release: &impl ReleaseKind) -> Option<Timestamp> {
    let record = RolloutRecord::of(release).filter(|record| record.from.is_some())?;
    Some(record.at).max(record.lost)
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
        MemberState::Updated { ready_since, checked } => {
            new.ready = old.ready.or(Some(ready_since));
            new.unchecked = checked == Checked::ResultOnly;
            (new.failed, new.unhealthy, new.unavailable) = (None, None, false);
        }
        MemberState::Failed { at } => new.failed = Some(at),
        MemberState::Unhealthy { at, .. } => new.unhealthy = Some(at),
        MemberState::Interrupted(interruption) => new.lost = interruption.lost.or(old.lost),
        MemberState::Held => new.unavailable = true,
        MemberState::Updating { .. } if old.unavailable => {
            (new.unavailable, new.available) = (false, Some(now));
        }
        MemberState::Updating { .. }
        | MemberState::Outdated
        | MemberState::RolledBack { .. }
        | MemberState::Current
        | MemberState::Unreachable
        | MemberState::Paused
        | MemberState::Unknown => {}
    }
    (new != old).then_some(new)
}

/// Returns why nothing can be said about a release.
fn unavailable<R: ReleaseKind>(release: &R) -> Option<MemberState> {
    if release.annotations().contains_key(PAUSED_ANNOTATION) {
        return Some(MemberState::Paused);
    }
    if is_unreachable(release) {
        return Some(MemberState::Unreachable);
    }
    let ready = release.readiness().filter(|ready| ready.status != "True")?;
    let reason = ReleaseReason::parse(&ready.reason)?;
    matches!(reason, ReleaseReason::Suspended | ReleaseReason::PolicyNotFound).then_some(MemberState::Paused)
}

fn is_unreachable<R: ReleaseKind>(release: &R) -> bool {
    State::of(release) == State::Unreachable || was_unreachable(release)
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
