//! Which releases of a placement may be updated now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chandler_api::status::{RolloutState, RolloutStatus};
use jiff::Timestamp;

use super::{Member, MemberState, Requests, Settings, report::message};
use crate::identity::ClusterKey;

/// The name of the wave of the clusters that no selector matches.
const LAST_WAVE: &str = "others";

/// What happens next in a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// The clusters whose release objects get the desired spec now.
    pub may_move: BTreeSet<ClusterKey>,
    /// Why the others wait.
    pub held: BTreeMap<ClusterKey, HoldReason>,
    pub status: RolloutStatus,
    /// When the plan changes although nothing happens.
    pub recheck_at: Option<Timestamp>,
}

/// Why a release keeps its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// Too many others are being updated.
    Slot,
    /// An earlier wave has not ended.
    Wave,
    /// An earlier wave has to be ready for a while.
    Soak,
    Paused,
    /// Too many releases have failed.
    Stopped,
    Aborted,
    Skipped,
    Unreachable,
}

/// The members of a wave.
struct WaveMembers<'a> {
    name: &'a str,
    soak: Duration,
    members: Vec<&'a Member<'a>>,
}

/// Plans the rollout of a placement whose release objects are those of `members`.
pub fn plan(settings: &Settings, members: &[Member<'_>], requests: &Requests, now: Timestamp) -> RolloutPlan {
    let counted: Vec<_> = members.iter().filter(|member| !is_skipped(member, requests)).collect();
    let waves = waves(settings, &counted);
    let total = members.len();
    let moving = count(&counted, |state| matches!(state, MemberState::Moving { .. }));
    let failed = count(
        &counted,
        |state| matches!(state, MemberState::Failed { at } if requests.resumed_at.is_none_or(|resumed| at > resumed)),
    );
    let is_outdated = |member: &Member<'_>| member.state == MemberState::Outdated;
    let outdated: Vec<_> = counted.iter().copied().filter(|member| is_outdated(member)).collect();
    let is_aborted = counted.iter().any(|member| aborts(member, requests));
    let current = current_wave(&waves, requests, now);

    let stop_after = usize::try_from(settings.stop_after_failures).unwrap_or(usize::MAX);
    let waits = outdated.iter().any(|member| !aborts(member, requests));
    let state = if is_aborted && !waits {
        RolloutState::Aborted
    } else if stop_after > 0 && failed >= stop_after {
        RolloutState::Stopped
    } else if requests.paused && (waits || moving > 0) {
        RolloutState::Paused
    } else if let Some(Current { soak_until: Some(_), .. }) = current {
        RolloutState::Soaking
    } else if waits || moving > 0 {
        RolloutState::Progressing
    } else {
        RolloutState::Done
    };

    let free = settings.concurrent(total).saturating_sub(moving);
    let mut plan = RolloutPlan::default();
    for (index, wave) in waves.iter().enumerate() {
        for member in wave.members.iter().filter(|member| is_outdated(member)) {
            let hold = match state {
                _ if aborts(member, requests) => Some(HoldReason::Aborted),
                RolloutState::Stopped => Some(HoldReason::Stopped),
                RolloutState::Paused => Some(HoldReason::Paused),
                _ => match &current {
                    Some(current) if current.index != index => Some(current.reason()),
                    _ if plan.may_move.len() >= free => Some(HoldReason::Slot),
                    _ => None,
                },
            };
            match hold {
                Some(reason) => plan.held.insert(member.cluster.clone(), reason),
                None => {
                    plan.may_move.insert(member.cluster.clone());
                    None
                }
            };
        }
    }
    let skipped: Vec<_> = members.iter().filter(|member| is_skipped(member, requests)).collect();
    plan.held.extend(
        skipped.iter().filter(|one| is_outdated(one)).map(|one| (one.cluster.clone(), HoldReason::Skipped)),
    );
    let unreachable = counted.iter().filter(|member| member.state == MemberState::Unreachable);
    plan.held.extend(unreachable.map(|member| (member.cluster.clone(), HoldReason::Unreachable)));

    plan.recheck_at = recheck_at(&counted, &current, state);
    let wave = current.as_ref().and_then(|current| waves.get(current.index));
    plan.status = RolloutStatus {
        state,
        wave: wave.map(|wave| wave.name.to_owned()),
        wave_index: current.as_ref().map_or(0, |current| number(current.index + 1)),
        waves: number(waves.len()),
        total: number(total),
        updated: number(count(&counted, |state| {
            matches!(state, MemberState::Moved { .. } | MemberState::Current)
        })),
        updating: number(moving),
        failed: number(failed),
        held: number(outdated.len().saturating_sub(plan.may_move.len())),
        unavailable: number(count(&counted, |state| {
            matches!(state, MemberState::Unreachable | MemberState::Paused)
        })),
        skipped: number(skipped.len()),
        targets: targets(members),
        message: String::new(),
    };
    plan.status.message = message(&plan.status, settings, current.and_then(|current| current.soak_until));
    plan
}

/// The wave whose members are updated, or have to be ready for a while.
struct Current {
    index: usize,
    soak_until: Option<Timestamp>,
}

impl Current {
    /// Returns why members of other waves wait.
    fn reason(&self) -> HoldReason {
        if self.soak_until.is_some() { HoldReason::Soak } else { HoldReason::Wave }
    }
}

/// Returns the first wave that has not ended. A wave has ended when none of its members is outdated or moving, and when those
/// that were moved have been ready for a while. The time after the last wave that has something to do does not matter.
fn current_wave(waves: &[WaveMembers<'_>], requests: &Requests, now: Timestamp) -> Option<Current> {
    let waits = |wave: &WaveMembers<'_>| {
        wave.members.iter().any(|one| one.state == MemberState::Outdated && !aborts(one, requests))
    };
    for (index, wave) in waves.iter().enumerate() {
        let moves = wave.members.iter().any(|one| matches!(one.state, MemberState::Moving { .. }));
        if moves || waits(wave) {
            return Some(Current { index, soak_until: None });
        }
        let ready_since = wave.members.iter().filter_map(|one| match one.state {
            MemberState::Moved { ready_since } => Some(ready_since),
            _ => None,
        });
        let soak_until = ready_since.max().and_then(|since| since.checked_add(wave.soak).ok());
        if let Some(until) = soak_until.filter(|until| *until > now)
            && waves.iter().skip(index + 1).any(waits)
        {
            return Some(Current { index, soak_until: Some(until) });
        }
    }
    None
}

/// Returns the members of each wave that has any, in the order of the waves.
fn waves<'a>(settings: &'a Settings, members: &[&'a Member<'a>]) -> Vec<WaveMembers<'a>> {
    let mut waves: Vec<_> = settings
        .waves
        .iter()
        .map(|wave| WaveMembers { name: &wave.name, soak: wave.soak, members: Vec::new() })
        .collect();
    waves.push(WaveMembers { name: LAST_WAVE, soak: Duration::ZERO, members: Vec::new() });
    for member in members {
        let matches = |wave: &super::settings::WaveSettings| {
            wave.selection.matches(&member.cluster.name, member.labels)
        };
        let index = settings.waves.iter().position(matches).unwrap_or(settings.waves.len());
        if let Some(wave) = waves.get_mut(index) {
            wave.members.push(member);
        }
    }
    waves.retain(|wave| !wave.members.is_empty());
    waves
}

fn recheck_at(members: &[&Member<'_>], current: &Option<Current>, state: RolloutState) -> Option<Timestamp> {
    let deadlines = members.iter().filter_map(|member| match member.state {
        MemberState::Moving { until } => until,
        _ => None,
    });
    let soak = current.as_ref().and_then(|current| current.soak_until);
    deadlines.chain(soak.filter(|_| state == RolloutState::Soaking)).min()
}

/// Returns whether nothing moves to the target of a member any more.
fn aborts(member: &Member<'_>, requests: &Requests) -> bool {
    !requests.aborted.is_empty()
        && member.state != MemberState::Current
        && member.target.is_some_and(|target| requests.aborted.contains(&target.to_string()))
}

fn is_skipped(member: &Member<'_>, requests: &Requests) -> bool {
    requests.skip.contains(&member.cluster.name)
}

fn targets(members: &[Member<'_>]) -> Vec<String> {
    let targets: BTreeSet<_> = members.iter().filter_map(|member| member.target).collect();
    targets.into_iter().map(ToString::to_string).collect()
}

fn count(members: &[&Member<'_>], is: impl Fn(MemberState) -> bool) -> usize {
    members.iter().filter(|member| is(member.state)).count()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
