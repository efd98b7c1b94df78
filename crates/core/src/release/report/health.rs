//! The condition `Healthy` of a release object.

use std::time::Duration;

use chandler_api::{
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::HEALTHY,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    conditions::{self, NewCondition, Status},
    health::ReleaseHealth,
    release::{Plan, Wait},
};

/// How long the message about an unhealthy object is kept. It counts replicas, which may change every second.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the condition `Healthy`. While the health is unknown, the old condition is kept, so that a restart, a broken watch
/// or a short failure changes nothing; but not over an operation, which may replace the objects that it is about, and not if it
/// is about another revision and none is going to be read. Without an old condition, there is none until something is known.
pub(super) fn health_condition(
    plan: &Plan,
    vocabulary: ReleaseVocabulary,
    old: &[Condition],
    health: &ReleaseHealth,
) -> Option<NewCondition> {
    let old = conditions::find(old, HEALTHY);
    let (status, reason, message) = match health {
        ReleaseHealth::Healthy => (Status::True, ReleaseReason::Healthy, String::new()),
        ReleaseHealth::Unhealthy { object, reason, more, .. } => {
            let rest = match more {
                0 => String::new(),
                1 => "; and 1 more object".to_owned(),
                more => format!("; and {more} more objects"),
            };
            // Without the time, which is not the same after a restart. That of the condition is.
            (Status::False, ReleaseReason::Unhealthy, format!("{object}: {reason}{rest}"))
        }
        ReleaseHealth::Unchanged | ReleaseHealth::Undescribed | ReleaseHealth::Unknown { .. } => {
            kept(plan, old?, health).unwrap_or_else(|| {
                let message = "not all objects of the release have been observed with a status";
                (Status::Unknown, ReleaseReason::HealthUnknown, message.to_owned())
            })
        }
    };
    Some(NewCondition { type_: HEALTHY, status, reason: reason.in_vocabulary(vocabulary), message })
}

fn kept(plan: &Plan, old: &Condition, health: &ReleaseHealth) -> Option<(Status, ReleaseReason, String)> {
    if matches!(plan, Plan::Operate(_) | Plan::Cancel(_) | Plan::Wait(Wait::Operating(_))) {
        return None;
    }
    if *plan == Plan::NoOp && *health == ReleaseHealth::Undescribed {
        return None;
    }
    let (status, reason) = match ReleaseReason::parse(&old.reason)? {
        ReleaseReason::Healthy => (Status::True, ReleaseReason::Healthy),
        ReleaseReason::Unhealthy if may_be_unhealthy(old, health) => {
            (Status::False, ReleaseReason::Unhealthy)
        }
        _ => return None,
    };
    Some((status, reason, old.message.clone()))
}

/// Returns whether the object that the old condition names may still be unhealthy. Otherwise the condition would stay for ever if
/// the state of another object never becomes known.
fn may_be_unhealthy(old: &Condition, health: &ReleaseHealth) -> bool {
    match health {
        ReleaseHealth::Unknown { objects } => {
            objects.iter().any(|object| old.message.starts_with(&format!("{object}: ")))
        }
        _ => true,
    }
}

/// Keeps the old message about an unhealthy object in `wanted` for [`MESSAGE_INTERVAL`], so that not every replica that starts or
/// stops is a write. Another object is named at once. `changed_at` is when the message changed last, and is updated.
///
/// Returns when the message has to be computed again, if it was kept.
pub fn keep_health_message(
    old: &[Condition],
    wanted: &mut [NewCondition],
    changed_at: &mut Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let new = wanted.iter().find(|new| new.type_ == HEALTHY && new.status == Status::False)?;
    let (reason, message) = (new.reason, new.message.clone());
    let old = conditions::find(old, HEALTHY).filter(|old| old.status == "False");
    if old.is_some_and(|old| old.message == message) {
        return None;
    }
    let end = changed_at.and_then(|changed_at| changed_at.checked_add(MESSAGE_INTERVAL).ok());
    let kept = old.filter(|old| unhealthy_object(&old.message) == unhealthy_object(&message));
    let (Some(kept), Some(end)) = (kept, end.filter(|end| *end > now)) else {
        *changed_at = Some(now);
        return None;
    };
    // The condition `Ready` has the same message, if this is why the release is not ready.
    for same in wanted.iter_mut().filter(|new| new.reason == reason && new.message == message) {
        same.message.clone_from(&kept.message);
    }
    Some(end)
}

/// Returns the object that the message of an unhealthy release names.
pub(crate) fn unhealthy_object(message: &str) -> Option<&str> {
    message.split_once(": ").map(|(object, _)| object)
}
