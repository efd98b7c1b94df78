//! Which releases of a placement may be updated now.

use std::{collections::BTreeSet, time::Duration};

use chandler_api::status::{RolloutState, RolloutStatus};
use jiff::Timestamp;

use super::{Checked, Member, MemberState, RolloutRequests, RolloutSettings, report::message};
use crate::{
    identity::ClusterKey,
    reachability::{ANSWER_TIMEOUT, LATEST_PROBE},
};

/// The name of the wave of the clusters that no selector matches.
const LAST_WAVE: &str = "others";

/// How many targets a status names. If there are more, they are named by the spec that they share.
const MAX_TARGETS: usize = 10;

/// What happens next in a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// The clusters whose release objects get the desired spec now.
    pub may_update: BTreeSet<ClusterKey>,
    pub status: RolloutStatus,
    /// When the plan changes although nothing happens.
    pub recheck_at: Option<Timestamp>,
}

/// The members of a wave.
struct WaveMembers<'a> {
    name: &'a str,
    soak: Duration,
    members: Vec<&'a Member<'a>>,
}

/// After this time, it is known what has happened until now: that a release is unhealthy, or that its cluster is unreachable.
pub(super) const KNOWN_AFTER: Duration =
    LATEST_PROBE.saturating_add(ANSWER_TIMEOUT).saturating_add(Duration::from_secs(6));

impl WaveMembers<'_> {
    /// Returns for how long the members have to be ready, as far as that is known, before the next wave begins.
    fn observed_soak(&self) -> Duration {
        if self.soak.is_zero() { Duration::ZERO } else { self.soak.saturating_add(KNOWN_AFTER) }
    }
}

/// Plans the rollout of a placement whose release objects are those of `members`, after [`settle`](super::settle).
pub fn plan(
    settings: &RolloutSettings,
    members: &[Member<'_>],
    requests: &RolloutRequests,
    now: Timestamp,
) -> RolloutPlan {
    let counted: Vec<_> =
        members.iter().filter(|member| !requests.skip.contains(&member.cluster.name)).collect();
    let waves = waves(settings, &counted);
    let current = current_wave(&waves, requests, now);
    let counts = Counts::of(members.len(), &counted, requests);
    let state = state_of(settings, requests, &counts, current.as_ref());
    let free = settings.concurrent(counts.total).saturating_sub(counts.updating);
    let may_update = select_updates(&waves, current.as_ref(), state, requests, free);
    let recheck_at = recheck_at(&counted, current.as_ref(), state);
    let mut status = status_of(state, &counts, &waves, current.as_ref(), may_update.len());
    status.targets = targets(members);
    let soak_until = current.and_then(|current| current.soak_until);
    status.message = message(&status, &counts, settings, soak_until);
    RolloutPlan { may_update, status, recheck_at }
}

/// How many clusters are in which state. Skipped ones are only part of the total.
pub(super) struct Counts {
    total: usize,
    skipped: usize,
    updated: usize,
    /// Clusters whose objects were not checked.
    pub unchecked: usize,
    updating: usize,
    /// Of them, those that a user has paused.
    pub held: usize,
    outdated: usize,
    /// Clusters that were updated to an aborted target, or would be.
    aborted: usize,
    /// Clusters that wait for an update, or may do so.
    waiting: usize,
    /// The clusters whose failures count.
    pub failed: Vec<String>,
    unavailable: usize,
    pub rolled_back: usize,
    pub unknown: usize,
}

impl Counts {
    fn of(total: usize, counted: &[&Member<'_>], requests: &RolloutRequests) -> Self {
        use MemberState as S;
        let count = |is: &dyn Fn(&Member<'_>) -> bool| counted.iter().filter(|member| is(member)).count();
        let is_counted = |at: Timestamp| requests.resumed_at.is_none_or(|resumed| at > resumed);
        let is_failure = |member: &Member<'_>| {
            matches!(
                member.state,
                S::Failed { at } | S::Unhealthy { at, .. } | S::RolledBack { at, in_time: true } if is_counted(at)
            )
        };
        let failures = counted.iter().filter(|member| is_failure(member));
        let is_unchecked =
            |member: &Member<'_>| matches!(member.state, S::Updated { checked: Checked::ResultOnly, .. });
        Self {
            total,
            skipped: total.saturating_sub(counted.len()),
            updated: count(&|member| matches!(member.state, S::Updated { .. } | S::Current)),
            unchecked: count(&is_unchecked),
            updating: count(&|member| is_updating(member.state)),
            held: count(&|member| member.state == S::Held),
            outdated: count(&|member| member.state == S::Outdated),
            aborted: count(&|member| aborts(member, requests)),
            waiting: count(&|member| waits(member, requests)),
            failed: failures.map(|member| member.cluster.name.clone()).collect(),
            unavailable: count(&|member| matches!(member.state, S::Unreachable | S::Paused)),
            rolled_back: count(&|member| matches!(member.state, S::RolledBack { in_time: false, .. })),
            unknown: count(&|member| member.state == S::Unknown),
        }
    }
}

fn state_of(
    settings: &RolloutSettings,
    requests: &RolloutRequests,
    counts: &Counts,
    current: Option<&Current>,
) -> RolloutState {
    let stop_after = usize::try_from(settings.stop_after_failures).unwrap_or(usize::MAX);
    let is_unfinished = counts.waiting > 0 || counts.updating > 0;
    if counts.aborted > 0 && counts.waiting == 0 {
        RolloutState::Aborted
    } else if stop_after > 0 && counts.failed.len() >= stop_after {
        RolloutState::Stopped
    } else if requests.paused && is_unfinished {
        RolloutState::Paused
    } else if current.is_some_and(|current| current.soak_until.is_some()) {
        RolloutState::Soaking
    } else if is_unfinished {
        RolloutState::Progressing
    } else {
        RolloutState::Done
    }
}

/// Returns the clusters of the current wave that are updated now, at most `free`.
fn select_updates(
    waves: &[WaveMembers<'_>],
    current: Option<&Current>,
    state: RolloutState,
    requests: &RolloutRequests,
    free: usize,
) -> BTreeSet<ClusterKey> {
    let wave = current.filter(|_| state == RolloutState::Progressing).and_then(|one| waves.get(one.index));
    let members = wave.into_iter().flat_map(|wave| &wave.members);
    let outdated =
        members.filter(|member| member.state == MemberState::Outdated && !aborts(member, requests));
    outdated.take(free).map(|member| member.cluster.clone()).collect()
}

fn status_of(
    state: RolloutState,
    counts: &Counts,
    waves: &[WaveMembers<'_>],
    current: Option<&Current>,
    begun: usize,
) -> RolloutStatus {
    let wave = current.and_then(|current| waves.get(current.index));
    RolloutStatus {
        state,
        wave: wave.map(|wave| wave.name.to_owned()),
        wave_index: current.map_or(0, |current| number(current.index + 1)),
        waves: number(waves.len()),
        total: number(counts.total),
        updated: number(counts.updated),
        updating: number(counts.updating),
        failed: number(counts.failed.len()),
        waiting: number((counts.outdated + counts.unknown).saturating_sub(begun)),
        unavailable: number(counts.unavailable),
        skipped: number(counts.skipped),
        ..RolloutStatus::default()
    }
}

/// The wave whose members are updated, or have to be ready for a while.
struct Current {
    index: usize,
    soak_until: Option<Timestamp>,
}

/// Returns the first wave that has not ended. A wave has ended when none of its members is outdated, updating or unknown, and when
/// those that were updated have been ready for a while. The time after the last wave that has something to do does not matter.
fn current_wave(waves: &[WaveMembers<'_>], requests: &RolloutRequests, now: Timestamp) -> Option<Current> {
    let has_waiting = |wave: &WaveMembers<'_>| wave.members.iter().any(|one| waits(one, requests));
    for (index, wave) in waves.iter().enumerate() {
        if wave.members.iter().any(|one| is_updating(one.state)) || has_waiting(wave) {
            return Some(Current { index, soak_until: None });
        }
        let ready_since = wave.members.iter().filter_map(|one| match one.state {
            MemberState::Updated { ready_since, .. } => Some(ready_since),
            _ => None,
        });
        let soak_until = ready_since.max().and_then(|since| since.checked_add(wave.observed_soak()).ok());
        if let Some(until) = soak_until.filter(|until| *until > now)
            && waves.iter().skip(index + 1).any(has_waiting)
        {
            return Some(Current { index, soak_until: Some(until) });
        }
    }
    None
}

/// Returns the members of each wave that has any, in the order of the waves.
fn waves<'a>(settings: &'a RolloutSettings, members: &[&'a Member<'a>]) -> Vec<WaveMembers<'a>> {
    let mut waves: Vec<_> = settings
        .waves
        .iter()
        .map(|wave| WaveMembers { name: &wave.name, soak: wave.soak, members: Vec::new() })
        .collect();
    waves.push(WaveMembers { name: LAST_WAVE, soak: Duration::ZERO, members: Vec::new() });
    for member in members {
        if let Some(wave) = waves.get_mut(settings.wave_of(member)) {
            wave.members.push(member);
        }
    }
    waves.retain(|wave| !wave.members.is_empty());
    waves
}

fn recheck_at(members: &[&Member<'_>], current: Option<&Current>, state: RolloutState) -> Option<Timestamp> {
    let deadlines = members.iter().filter_map(|member| match member.state {
        MemberState::Updating { until } => until,
        MemberState::Interrupted(one) => Some(one.until),
        _ => None,
    });
    let soak = current.and_then(|current| current.soak_until);
    deadlines.chain(soak.filter(|_| state == RolloutState::Soaking)).min()
}

fn is_updating(state: MemberState) -> bool {
    matches!(state, MemberState::Updating { .. } | MemberState::Held | MemberState::Interrupted(_))
}

/// Returns whether a member has to be updated, or whether that is not known.
fn waits(member: &Member<'_>, requests: &RolloutRequests) -> bool {
    match member.state {
        MemberState::Outdated => !aborts(member, requests),
        MemberState::Unknown => true,
        _ => false,
    }
}

/// Returns whether no release is updated to the target of a member any more.
pub(super) fn aborts(member: &Member<'_>, requests: &RolloutRequests) -> bool {
    member.state != MemberState::Current && member.target.is_some_and(|target| requests.aborts(target))
}

fn targets(members: &[Member<'_>]) -> Vec<String> {
    let targets = || members.iter().filter_map(|member| member.target);
    let mut names: BTreeSet<_> = targets().map(ToString::to_string).collect();
    if names.len() > MAX_TARGETS {
        names = targets().map(|target| target.spec.clone()).collect();
    }
    names.into_iter().take(MAX_TARGETS).collect()
}

pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
