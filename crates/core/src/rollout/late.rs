//! What happens to a release after it was ready counts for the rollout until the wave of its
//! cluster has ended.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Member, MemberState, RolloutRequests, RolloutSettings,
    plan::{KNOWN_AFTER, aborts},
};

/// Decides which releases that were ready count as failed, or as being updated again, because they
/// are not ready now, and which rollbacks by a user count as failures. For the others, this does not belong to the rollout.
pub fn settle(
    settings: &RolloutSettings,
    members: &mut [Member<'_>],
    requests: &RolloutRequests,
    now: Timestamp,
) {
    let is_skipped = |member: &Member<'_>| requests.skip.contains(&member.cluster.name);
    let waits = |member: &Member<'_>| member.state == MemberState::Outdated && !aborts(member, requests);
    let is_unfinished = members.iter().any(|member| waits(member) && !is_skipped(member));
    // An abort rolls all of them back, and has stopped the rollout already.
    let is_unwanted = |member: &Member<'_>| is_unfinished && !aborts(member, requests);
    let begun =
        members.iter().filter(|member| was_updated(member.state)).map(|member| settings.wave_of(member));
    let last_begun = begun.max();
    let last_active = members.iter().filter_map(|member| member.active_at).max();
    for member in members {
        let wave = settings.wave_of(member);
        // After this time, the rollout has ended, or waits for clusters that were unavailable.
        let end = last_active.and_then(|at| at.checked_add(settings.longest_after_update(wave)).ok());
        let is_open = |since| {
            let is_active = requests.paused || end.is_some_and(|end| since < end);
            is_unfinished && is_active && last_begun.is_none_or(|last| last <= wave)
        };
        member.state = match member.state {
            MemberState::Unhealthy { in_time, at } if !in_time && !is_open(at) => MemberState::Current,
            MemberState::Interrupted(one) if !one.in_time && !is_open(one.since) => match one.lost {
                Some(_) => MemberState::Unreachable,
                None => MemberState::Current,
            },
            MemberState::RolledBack { at, in_time } => {
                MemberState::RolledBack { at, in_time: is_unwanted(member) && (in_time || is_open(at)) }
            }
            MemberState::Interrupted(one) if one.until <= now => MemberState::Failed { at: one.until },
            state => state,
        };
    }
}

impl RolloutSettings {
    /// Returns how long after the update of a cluster of a wave something has to happen for the
    /// rollout to go on.
    fn longest_after_update(&self, wave: usize) -> Duration {
        let soak = self.waves.get(wave).map_or(Duration::ZERO, |wave| wave.soak);
        self.timeout.saturating_add(self.min_ready).saturating_add(soak).saturating_add(KNOWN_AFTER)
    }
}

/// Returns whether the rollout has updated a release.
fn was_updated(state: MemberState) -> bool {
    match state {
        MemberState::Updating { .. }
        | MemberState::Held
        | MemberState::Updated { .. }
        | MemberState::Failed { .. }
        | MemberState::Unhealthy { .. }
        | MemberState::Interrupted(_)
        | MemberState::RolledBack { .. } => true,
        MemberState::Outdated
        | MemberState::Current
        | MemberState::Unreachable
        | MemberState::Paused
        | MemberState::Unknown => false,
    }
}
