//! Updates the status of a release object.

use std::time::Duration;

use chandler_api::{
    reasons::ReleaseReason,
    status::{DRIFTED, HEALTHY, POLICY_ACCEPTED, TESTED},
};
use chandler_core::{
    conditions::{self, NewCondition, Status},
    failure::{Category, Failure},
    release::{
        ANOTHER_NAME, Collision, Desired, Findings, OperationPhase, Plan, ReleaseKind, keep_health_message,
        report,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};

use super::Reconciler;
use crate::{ReconcileError, operations::Running, queue, status};

/// How soon a release is reconciled again whose spec refers to something that cannot be read.
const UNREADABLE_RETRY: Duration = Duration::from_secs(15);

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Reports that the desired release is not known: the spec is invalid, or something that it refers to cannot be read.
    pub(super) async fn refuse(mut self, failure: &Failure) -> Result<Action, ReconcileError> {
        if self.deleting() && self.status.revision.is_none() {
            status::remove_finalizer(&self.context.client, &*self.object, R::FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let generation = self.object.meta().generation;
        let is_invalid = failure.category == Category::InvalidSpec;
        let reason = match failure.category {
            Category::InvalidSpec => ReleaseReason::InvalidSpec,
            Category::NotAllowed => ReleaseReason::NotAllowed,
            _ => ReleaseReason::ApplyFailed,
        };
        let wanted = |type_| NewCondition {
            type_,
            status: Status::False,
            reason: reason.in_vocabulary(R::VOCABULARY),
            message: failure.message.clone(),
        };
        let conditions = vec![wanted("Ready"), wanted(R::VOCABULARY.release_ready())];
        self.status.conditions = conditions::merge(&self.status.conditions, conditions, generation, self.now);
        self.status.observed_generation = generation;
        self.write().await?;
        Ok(if is_invalid { queue::resync(&*self.object) } else { Action::requeue(UNREADABLE_RETRY) })
    }

    /// Updates the conditions. Returns when they have to be updated again although nothing changes.
    pub(super) fn update_conditions(
        &mut self,
        desired: &Desired,
        decision: &Plan,
        findings: Findings<'_>,
    ) -> Option<Timestamp> {
        let running = self.context.caches.operations.running(&self.uid);
        if running.as_ref().is_some_and(|running| !running.reportable) && self.has_failed_at_this() {
            // A retry reports nothing until it succeeds, fails or takes long.
            return None;
        }
        let has_progress = |running: &&Running| running.reportable || running.phase == OperationPhase::Queued;
        let progress = running.as_ref().filter(has_progress).map(|running| &running.progress);
        let name = desired.release.to_string();
        let (old, policy) = (&self.status.conditions, &self.placement.policy);
        let report = report(decision, R::VOCABULARY, &name, progress, old, findings, policy);
        let mut wanted = report?.conditions;
        let changed_at = &mut self.state.health_message_changed_at;
        let again_at = keep_health_message(old, &mut wanted, changed_at, self.now);
        if let Collision::Contested { by } = self.collision(desired) {
            let others = [HEALTHY, DRIFTED, TESTED, POLICY_ACCEPTED];
            for condition in wanted
                .iter_mut()
                .filter(|condition| condition.message.is_empty() && !others.contains(&condition.type_))
            {
                condition.message = format!("release {name} is claimed by {by} too; {ANOTHER_NAME}");
            }
        }
        let generation = self.object.meta().generation;
        let merged = conditions::merge(&self.status.conditions, wanted, generation, self.now);
        if let Some((reason, note)) = new_problem(&self.status.conditions, &merged) {
            self.context.events.warning(&*self.object, reason, &format!("release {name}: {note}"));
        }
        self.status.conditions = merged;
        self.status.observed_generation = generation;
        again_at
    }

    fn has_failed_at_this(&self) -> bool {
        self.status.last_failure.is_some() && self.status.observed_generation == self.object.meta().generation
    }

    /// Writes the status if it has changed. The state is kept even if the write fails, so that nothing is determined twice.
    /// The outcome of an operation is kept until it is written.
    pub(super) async fn write(&mut self) -> Result<(), ReconcileError> {
        if self.status != self.written {
            self.context.caches.reconcile_states.insert(&self.uid, self.state.clone());
            let stored = status::write(&self.context.client, &*self.object, &self.status).await?;
            // As it was stored, because the watch shows times without fractions of a second.
            self.state.status = stored.and_then(|stored| stored.status().cloned()).map(Box::new);
        }
        self.acknowledge();
        self.context.caches.reconcile_states.insert(&self.uid, std::mem::take(&mut self.state));
        self.drop_status_if_shown();
        Ok(())
    }

    /// Drops the outcome of the operation: the next reconcile does not take it in again.
    pub(super) fn acknowledge(&mut self) {
        if let Some(number) = self.outcome_number.take() {
            self.context.caches.operations.acknowledge(&self.uid, number);
        }
    }

    /// Drops the status that was written, if the watch has shown it before the response of the write arrived.
    pub(super) fn drop_status_if_shown(&self) {
        if let Some(cached) = self.context.releases.by_reference(&ObjectRef::from_obj(&*self.object)) {
            self.context.caches.reconcile_states.drop_status_if_current(&self.uid, cached.status());
        }
    }
}

/// Returns reason and message of a problem that no operation has reported: the release has become unhealthy, or is not tried
/// again.
fn new_problem<'a>(old: &[Condition], new: &'a [Condition]) -> Option<(&'static str, &'a str)> {
    let problem = |type_, reason: ReleaseReason| {
        let is_problem = |condition: &&Condition| {
            condition.status == "False" && ReleaseReason::parse(&condition.reason) == Some(reason)
        };
        let now = conditions::find(new, type_).filter(is_problem)?;
        let before = conditions::find(old, type_).filter(is_problem);
        before.is_none().then_some((reason.as_str(), now.message.as_str()))
    };
    problem(HEALTHY, ReleaseReason::Unhealthy)
        .or_else(|| problem("Ready", ReleaseReason::RetriesExhausted))
        .or_else(|| problem("Ready", ReleaseReason::Stalled))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conditions(rows: &[(&str, &str, &str)]) -> Vec<Condition> {
        let condition = |(type_, status, reason): &(&str, &str, &str)| {
            let condition = json!({
                "type": type_, "status": status, "reason": reason, "message": "why",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            serde_json::from_value(condition).unwrap()
        };
        rows.iter().map(condition).collect()
    }

    #[test]
    fn a_problem_is_published_when_it_begins() {
        let healthy = conditions(&[("Ready", "True", "Ready"), ("Healthy", "True", "Healthy")]);
        let unhealthy = conditions(&[("Ready", "False", "Unhealthy"), ("Healthy", "False", "Unhealthy")]);
        let unknown = conditions(&[("Ready", "True", "Ready"), ("Healthy", "Unknown", "HealthUnknown")]);
        let failed = conditions(&[("Ready", "False", "ApplyFailed")]);
        let exhausted = conditions(&[("Ready", "False", "RetriesExhausted")]);
        let rows = [
            (&healthy, &healthy, None),
            (&healthy, &unknown, None),
            (&healthy, &unhealthy, Some("Unhealthy")),
            (&unknown, &unhealthy, Some("Unhealthy")),
            (&unhealthy, &unhealthy, None),
            (&unhealthy, &healthy, None),
            (&healthy, &failed, None),
            (&failed, &exhausted, Some("RetriesExhausted")),
            (&exhausted, &exhausted, None),
        ];
        for (old, new, expected) in rows {
            let expected = expected.map(|reason| (reason, "why"));
            assert_eq!(new_problem(old, new), expected, "{old:?} {new:?}");
        }
    }
}
