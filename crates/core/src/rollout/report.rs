//! How a rollout is reported.

use chandler_api::{
    reasons::{PlacementReason, PlacementVocabulary},
    status::{ROLLED_OUT, RolloutState, RolloutStatus},
};
use jiff::Timestamp;

use super::{
    RolloutSettings,
    plan::{Counts, number},
};
use crate::conditions::{NewCondition, Status};

/// How many failed clusters a message names.
const MAX_NAMES: usize = 3;

/// Returns what a rollout does and waits for, for users.
pub(super) fn message(
    status: &RolloutStatus,
    counts: &Counts,
    settings: &RolloutSettings,
    soak_until: Option<Timestamp>,
) -> String {
    let RolloutStatus { state, wave_index, waves, total, updated, failed, updating, .. } = status;
    let wave = match &status.wave {
        Some(name) if *waves > 1 => format!("wave {name} ({wave_index} of {waves}): "),
        _ => String::new(),
    };
    let progress = format!("{updated} of {total} clusters are updated");
    let what = match state {
        RolloutState::Done => progress,
        RolloutState::Progressing => format!("{wave}{progress}, {updating} are being updated"),
        RolloutState::Soaking => {
            let until =
                soak_until.map(|until| format!(" until {}", without_fraction(until))).unwrap_or_default();
            format!("{wave}{progress}; the next wave waits{until}")
        }
        RolloutState::Paused => {
            format!("{wave}{progress}; it is paused, `chandler rollout resume` continues it")
        }
        RolloutState::Stopped => {
            let releases = if *failed == 1 { "1 release has" } else { &format!("{failed} releases have") };
            let clusters = cluster_names(&counts.failed);
            format!(
                "{wave}{progress}; it has stopped, because {releases} failed, on {clusters} (`stopAfterFailures: {}`); fix the \
                 spec, or run `chandler rollout resume`, `skip` or `abort`",
                settings.stop_after_failures
            )
        }
        RolloutState::Aborted => format!(
            "it was aborted, {updated} of {total} clusters are up to date; the releases that it had updated are rolled back; \
             change the spec, or run `chandler rollout resume`"
        ),
    };
    let mut parts = vec![what];
    let others = [
        (*failed, "failed", *state != RolloutState::Stopped),
        (number(counts.rolled_back), "rolled back", *state != RolloutState::Aborted),
        (number(counts.unknown), "cannot be composed at the moment", true),
        (status.unavailable, "unreachable or paused", true),
        (status.skipped, "skipped", true),
    ];
    for (count, text, is_shown) in others {
        if count > 0 && is_shown {
            parts.push(format!("{count} {text}"));
        }
    }
    if counts.held > 0 {
        let held = counts.held;
        parts.push(format!(
            "{held} paused or suspended before it was ready, which holds the rollout until it is resumed, or left out with \
             `chandler rollout skip`"
        ));
    }
    if counts.unchecked > 0 {
        let unchecked = counts.unchecked;
        parts.push(format!(
            "only the result of the update was checked for {unchecked}, whose health is turned off or unknown"
        ));
    }
    parts.join("; ")
}

/// Names the first of some clusters.
fn cluster_names(clusters: &[String]) -> String {
    let named = clusters.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match clusters.len().saturating_sub(MAX_NAMES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn without_fraction(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns the condition of a placement whose policy has a rollout.
pub fn condition(status: &RolloutStatus, vocabulary: PlacementVocabulary) -> NewCondition {
    let (done, reason) = match status.state {
        RolloutState::Done => (Status::True, PlacementReason::RolledOut),
        RolloutState::Progressing => (Status::False, PlacementReason::RollingOut),
        RolloutState::Soaking => (Status::False, PlacementReason::RolloutSoaking),
        RolloutState::Paused => (Status::False, PlacementReason::RolloutPaused),
        RolloutState::Stopped => (Status::False, PlacementReason::RolloutStopped),
        RolloutState::Aborted => (Status::False, PlacementReason::RolloutAborted),
    };
    NewCondition {
        type_: ROLLED_OUT,
        status: done,
        reason: reason.in_vocabulary(vocabulary),
        message: format!("rollout: {}", status.message),
    }
}
