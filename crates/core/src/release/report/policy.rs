//! What a policy adds to the conditions of a release object.

use chandler_api::{
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::POLICY_ACCEPTED,
};

use crate::{
    conditions::{NewCondition, Status},
    failure::{Category, Failure},
    policy::PolicyState,
    release::{RolledBackCause, Wait},
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
        Wait::NotAllowed { failure } | Wait::AwaitingRules { failure }
            if failure.category == Category::InvalidSpec =>
        {
            (ReleaseReason::InvalidSpec, failure.message.clone())
        }
        Wait::NotAllowed { failure } => (ReleaseReason::NotAllowed, failure.message.clone()),
        Wait::AwaitingRules { failure } => (ReleaseReason::Pending, awaiting_rules(release, failure)),
        // Whether something is installed may not be known either, so it is not `Pending`.
        Wait::RulesUnknown { failure } => (ReleaseReason::Preparing, awaiting_rules(release, failure)),
        Wait::Exhausted { failure } => {
            (ReleaseReason::RetriesExhausted, format!("{} (no more retries; {TRY_AGAIN})", cause(failure)))
        }
        Wait::Stalled { failure } => (
            ReleaseReason::Stalled,
            format!(
                "{} (it has happened three times in a row, so the release is not tried again; fix its package or values, or \
                 run `chandler retry`)",
                cause(failure)
            ),
        ),
        Wait::RolledBack { cause } => {
            (ReleaseReason::RolledBack, format!("release {release} was rolled back{}", rolled_back(cause)))
        }
        _ => return None,
    })
}

fn awaiting_rules(release: &str, failure: &Failure) -> String {
    format!("waiting until it is known whether AddonTenancies allow release {release}: {}", failure.message)
}

/// Returns why a release was rolled back, and what users can do.
fn rolled_back(why: &RolledBackCause) -> String {
    match why {
        RolledBackCause::Failed(failure) => format!(": {} ({TRY_AGAIN})", cause(failure)),
        RolledBackCause::FailedBefore => {
            format!(", because the current spec has failed before; {TRY_AGAIN}")
        }
        RolledBackCause::Requested => format!(", because a user has asked for it; {TRY_AGAIN}"),
        RolledBackCause::RolloutAborted => {
            ", because its rollout was aborted; change the spec of the placement, or run \
                                            `chandler rollout resume`"
                .to_owned()
        }
    }
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
        PolicyState::Known { policy, conflict } if policy.checks.invalid().is_some() => {
            let texts: Vec<_> = policy.checks.invalid().into_iter().chain(conflict.as_deref()).collect();
            (Status::False, ReleaseReason::PolicyInvalid, texts.join("; "))
        }
        PolicyState::Known { conflict: Some(conflict), .. } => {
            (Status::False, ReleaseReason::PolicyConflict, conflict.clone())
        }
        PolicyState::Known { conflict: None, .. } => (Status::True, ReleaseReason::Accepted, String::new()),
    };
    Some(NewCondition { type_: POLICY_ACCEPTED, status, reason: reason.in_vocabulary(vocabulary), message })
}
