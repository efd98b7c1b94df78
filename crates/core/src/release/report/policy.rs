//! What a policy adds to the conditions of a release object.

use chandler_api::{
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::{HEALTHY, POLICY_ACCEPTED},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    conditions::{self, NewCondition, Status},
    failure::Failure,
    health::ReleaseHealth,
    policy::PolicyState,
    release::{Plan, Wait},
};

/// How a user lets Chandler try again.
const TRY_AGAIN: &str = "change the spec, or run `chandler retry`";

/// Returns reason and message of a release that waits because of its policy.
pub(super) fn waiting(wait: &Wait, release: &str) -> Option<(ReleaseReason, String)> {
    Some(match wait {
        Wait::Suspended => (
            ReleaseReason::Suspended,
            format!(
                "release {release} is suspended, so it is not changed; run `chandler resume`, or unset `suspend` in its \
                 AddonPolicy"
            ),
        ),
        Wait::PolicyNotFound { name } => (ReleaseReason::PolicyNotFound, not_found(name)),
        Wait::Exhausted { failure } => {
            (ReleaseReason::RetriesExhausted, format!("{} (no more retries; {TRY_AGAIN})", cause(failure)))
        }
        Wait::RolledBack { failure: Some(failure) } => (
            ReleaseReason::RolledBack,
            format!("release {release} was rolled back: {} ({TRY_AGAIN})", cause(failure)),
        ),
        Wait::RolledBack { failure: None } => (
            ReleaseReason::RolledBack,
            format!(
                "release {release} was rolled back, because the current spec has failed before; {TRY_AGAIN}"
            ),
        ),
        _ => return None,
    })
}

fn cause(failure: &Failure) -> String {
    format!("{}: {failure}", failure.category)
}

fn not_found(name: &str) -> String {
    format!("{name} does not exist; until it does, the release is not changed")
}

/// Returns the condition `PolicyAccepted`, if the placement refers to a policy.
pub(super) fn policy_condition(vocabulary: ReleaseVocabulary, policy: &PolicyState) -> Option<NewCondition> {
    let (status, reason, message) = match policy {
        PolicyState::None => return None,
        PolicyState::Missing(name) => (Status::False, ReleaseReason::PolicyNotFound, not_found(name)),
        PolicyState::Known { conflict: Some(conflict), .. } => {
            (Status::False, ReleaseReason::PolicyConflict, conflict.clone())
        }
        PolicyState::Known { conflict: None, .. } => (Status::True, ReleaseReason::Accepted, String::new()),
    };
    Some(NewCondition { type_: POLICY_ACCEPTED, status, reason: reason.in_vocabulary(vocabulary), message })
}

/// Returns the condition `Healthy`. While the health is unknown, the old condition is kept, so that a restart, a broken watch
/// or a short failure changes nothing; but not over an operation, which may replace the objects that it is about.
pub(super) fn health_condition(
    plan: &Plan,
    vocabulary: ReleaseVocabulary,
    old: &[Condition],
    health: &ReleaseHealth,
) -> NewCondition {
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
        ReleaseHealth::Unknown => kept(plan, old).unwrap_or_else(|| {
            let message = "not all objects of the release have been observed with a status";
            (Status::Unknown, ReleaseReason::HealthUnknown, message.to_owned())
        }),
    };
    NewCondition { type_: HEALTHY, status, reason: reason.in_vocabulary(vocabulary), message }
}

fn kept(plan: &Plan, old: &[Condition]) -> Option<(Status, ReleaseReason, String)> {
    if matches!(plan, Plan::Operate(_) | Plan::Cancel(_) | Plan::Wait(Wait::Operating(_))) {
        return None;
    }
    let old = conditions::find(old, HEALTHY)?;
    let (status, reason) = match ReleaseReason::parse(&old.reason)? {
        ReleaseReason::Healthy => (Status::True, ReleaseReason::Healthy),
        ReleaseReason::Unhealthy => (Status::False, ReleaseReason::Unhealthy),
        _ => return None,
    };
    Some((status, reason, old.message.clone()))
}
