//! What happens after retries: the policy limits them, then the release is kept, rolled back or removed.

use chandler_api::extensions::OnFailure;

use super::{
    Observed, OperationKind, PastFailure, Plan, RolledBackCause, Step, TestNeed, Wait, backed_off,
    failure_key,
};
use crate::{
    digest::InputDigest,
    inventory::{ReleaseStatus, RevisionState},
};

/// The attempts at applying the current inputs.
pub(super) struct Attempts<'a> {
    observed: &'a Observed<'a>,
    generation: Option<i64>,
    inputs: &'a InputDigest,
    key: String,
}

impl<'a> Attempts<'a> {
    pub fn new(observed: &'a Observed<'a>, generation: Option<i64>, inputs: &'a InputDigest) -> Self {
        Self { observed, generation, inputs, key: failure_key::apply(generation, inputs) }
    }

    /// Returns the key under which a failure of the next attempt is recorded.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns what to do instead of another attempt, if the policy allows no more.
    pub fn remediate(&self, newest: Option<&RevisionState>) -> Option<Plan> {
        let past = self.exhausted()?;
        let is_deployed = newest.is_some_and(|newest| self.is_deployed(newest));
        // A rollback that has failed, or was interrupted, is tried again.
        if is_deployed && newest.is_some_and(|newest| newest.rolled_back.as_ref() == Some(self.inputs)) {
            return Some(self.rolled_back());
        }
        let operation = match self.observed.remediation.map(|remediation| remediation.on_failure) {
            // The attempts have changed nothing if the newest revision is still the one that was deployed before.
            Some(OnFailure::Rollback) if !is_deployed && self.observed.rollback_to.is_some() => {
                let key = failure_key::rollback(self.generation, self.inputs);
                Some((OperationKind::Rollback, Step::Rollback, key))
            }
            Some(OnFailure::Uninstall) if newest.is_some_and(|newest| self.have_broken(newest)) => {
                let key = failure_key::uninstall_failed(self.generation, self.inputs);
                Some((OperationKind::UninstallFailed, Step::Remove, key))
            }
            _ => None,
        };
        Some(match operation {
            Some((kind, step, key)) => backed_off(self.observed, step, &key).unwrap_or(Plan::Operate(kind)),
            None => Plan::Wait(Wait::Exhausted { failure: past.failure.clone() }),
        })
    }

    /// Returns whether the newest revision restores an earlier one because these inputs have failed, and they are not to be
    /// tried again.
    pub fn are_rolled_back(&self, newest: &RevisionState) -> bool {
        newest.rolled_back.as_ref() == Some(self.inputs) && !self.is_retried_after(newest)
    }

    /// Returns whether the inputs that were rolled back are tried again: a user has asked for it, or has changed a part of the
    /// spec that is no input, such as a timeout, and the retries after that are not exhausted.
    fn is_retried_after(&self, newest: &RevisionState) -> bool {
        let Some(updated) = newest.updated else { return false };
        let is_requested = self.observed.requested_retry().is_some_and(|retry_at| retry_at > updated);
        let has_begun = |past: &PastFailure| {
            if past.attempted == self.key {
                past.at > updated && failure_key::is_apply(&past.key) && self.exhausted().is_none()
            } else {
                failure_key::is_apply(&past.attempted)
                    && past.attempted.ends_with(&format!("-{}", self.inputs))
            }
        };
        is_requested || self.observed.failure.is_some_and(has_begun)
    }

    pub fn rolled_back(&self) -> Plan {
        let failure = self.observed.failure.map(|past| past.failure.clone());
        let cause = failure.map_or(RolledBackCause::FailedBefore, RolledBackCause::Failed);
        Plan::Wait(Wait::RolledBack { cause })
    }

    /// Returns whether the policy removes the release, whose newest revision this is, after these attempts.
    pub fn uninstalls_on_failure(&self, newest: &RevisionState) -> bool {
        let remediation = self.observed.remediation;
        self.exhausted().is_some()
            && remediation.is_some_and(|remediation| remediation.on_failure == OnFailure::Uninstall)
            && self.have_broken(newest)
    }

    /// Returns whether the newest revision is a failed or interrupted attempt at applying these inputs, or at rolling back after
    /// them. Attempts that have failed before they created a revision, such as those with invalid values, have changed nothing:
    /// what was installed before still works.
    fn have_broken(&self, newest: &RevisionState) -> bool {
        let is_attempt = newest.mark.as_ref().is_some_and(|mark| mark.digest == *self.inputs);
        let is_rollback = newest.mark.is_some() && newest.rolled_back.as_ref() == Some(self.inputs);
        !self.is_deployed(newest)
            && newest.status != ReleaseStatus::Uninstalled
            && (is_attempt || is_rollback)
    }

    /// Returns whether the newest revision is deployed, and not one whose tests have failed.
    fn is_deployed(&self, newest: &RevisionState) -> bool {
        let is_tested = newest.mark.as_ref().is_some_and(|mark| mark.digest == *self.inputs);
        newest.status == ReleaseStatus::Deployed && !(is_tested && self.observed.tests == TestNeed::Failed)
    }

    /// Returns the last failure if the policy allows no more attempts.
    fn exhausted(&self) -> Option<&'a PastFailure> {
        let retries = self.observed.remediation?.retries;
        self.observed.failure.filter(|past| {
            past.attempted == self.key
                && past.attempts > retries
                && !past.is_overridden(self.observed.requested_retry())
        })
    }
}
