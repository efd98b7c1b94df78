//! Updates the status of a release object.

use chandler_api::{reasons::ReleaseReason, status::ReleaseStatus};
use chandler_core::{
    conditions::{self, NewCondition, Status},
    failure::Failure,
    release::{ANOTHER_NAME, Collision, Desired, Plan, ReleaseKind, report},
};
use kube::{core::NamespaceResourceScope, runtime::controller::Action};

use super::Reconciler;
use crate::{ReconcileError, status};

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Reports a spec that cannot be used, and waits until it changes.
    pub(super) async fn refuse(
        mut self,
        before: &ReleaseStatus,
        failure: &Failure,
    ) -> Result<Action, ReconcileError> {
        if self.deleting() && self.status.revision.is_none() {
            status::remove_finalizer(&self.context.client, &*self.object, R::FINALIZER).await?;
            return Ok(Action::await_change());
        }
        let generation = self.object.meta().generation;
        let wanted = |type_| NewCondition {
            type_,
            status: Status::False,
            reason: ReleaseReason::InvalidSpec.in_vocabulary(R::VOCABULARY),
            message: failure.message.clone(),
        };
        let conditions = vec![wanted("Ready"), wanted(R::VOCABULARY.release_ready())];
        self.status.conditions = conditions::merge(&self.status.conditions, conditions, generation, self.now);
        self.status.observed_generation = generation;
        self.write(before).await?;
        Ok(Action::await_change())
    }

    pub(super) fn update_conditions(&mut self, desired: &Desired, decision: &Plan) {
        let running = self.context.operations.running(&self.uid);
        if running.as_ref().is_some_and(|running| !running.reportable) && self.has_failed_at_this() {
            // A retry reports nothing until it succeeds, fails or takes long.
            return;
        }
        let progress = running.as_ref().filter(|running| running.reportable).map(|running| &running.progress);
        let name = desired.release.to_string();
        let has_reported = !self.status.conditions.is_empty();
        let report = report(decision, R::VOCABULARY, &name, progress, has_reported);
        let Some(report) = report else { return };
        let mut wanted = report.conditions;
        if let Collision::Contested { by } = self.collision(desired) {
            for condition in wanted.iter_mut().filter(|condition| condition.message.is_empty()) {
                condition.message = format!("release {name} is claimed by {by} too; {ANOTHER_NAME}");
            }
        }
        let generation = self.object.meta().generation;
        self.status.conditions = conditions::merge(&self.status.conditions, wanted, generation, self.now);
        self.status.observed_generation = generation;
    }

    fn has_failed_at_this(&self) -> bool {
        self.status.last_failure.is_some() && self.status.observed_generation == self.object.meta().generation
    }

    pub(super) async fn write(&mut self, before: &ReleaseStatus) -> Result<(), ReconcileError> {
        // ReleaseCaches even if the write fails: what was learned must not be learned again.
        self.context.reconcile_states.insert(&self.uid, self.state.clone());
        if self.status != *before {
            status::write(&self.context.client, &*self.object, &self.status).await?;
        }
        self.state.status = Some(self.status.clone());
        self.context.reconcile_states.insert(&self.uid, std::mem::take(&mut self.state));
        Ok(())
    }
}
