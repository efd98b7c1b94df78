//! The condition `Healthy` of a release object.

use chandler_api::{
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::HEALTHY,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    conditions::{self, NewCondition, Status},
    health::ReleaseHealth,
    release::{Plan, Wait},
};

/// Returns the condition `Healthy`. While the health is unknown, the old condition is kept, so that a restart, a broken watch
/// or a short failure changes nothing; but not over an operation, which may replace the objects that it is about. Without an old
/// condition, there is none until something is known.
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
        ReleaseHealth::Unchanged | ReleaseHealth::Unknown { .. } => {
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
