//! Starts operations, and finds what a rollback restores.

use chandler_core::{
    inventory::{ReleaseInventory, ReleaseStatus, RevisionState, StoredRevision},
    release::{Desired, Operation, OperationKind, ReleaseKind, failure_key},
};
use chandler_workload::InventoryView;
use kube::{core::NamespaceResourceScope, runtime::reflector::ObjectRef};

use super::{Inputs, Reconciler, View, package_format};
use crate::release::operate::{Restored, Start};

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Queues an operation.
    pub(super) fn start(&mut self, kind: OperationKind, desired: &Desired, view: &View) {
        let Some((tool, connection)) = &view.connected else { return };
        self.state.absence_confirmed = false;
        self.state.not_uninstalled_published = false;
        let Some(start) = self.operation(kind, self.known_inputs(desired, view)) else {
            // The inputs changed after the plan was made, for example because a version was published.
            self.context.queue.enqueue(ObjectRef::from_obj(&*self.object));
            return;
        };
        if let Some(comparison) = &start.comparison {
            self.state.compared_rules = Some(comparison.snapshot.scope.rules.clone());
        }
        self.context.operate(&*self.object, start, desired, tool.clone(), connection.clone());
    }

    /// Returns an operation of this kind. `None` means that the plan for it is outdated.
    fn operation(&self, kind: OperationKind, inputs: Option<Inputs>) -> Option<Start> {
        let generation = self.object.meta().generation;
        let failed_at = self.status.last_failure.as_ref().map(|last| last.at.0);
        let start = |operation, key| Start {
            operation,
            key,
            restored: None,
            failed_at,
            requested: false,
            comparison: None,
            installed: self.installed.clone(),
            uninstalling: self.uninstalling,
            revision: None,
            logs: false,
        };
        match kind {
            OperationKind::Remove => Some(start(Operation::Remove, failure_key::remove())),
            OperationKind::Apply(kind) => {
                let installed = self.status.package.as_ref().map(package_format);
                let inputs = inputs.filter(|inputs| installed == Some(package_format(&inputs.package)))?;
                let key = failure_key::apply(generation, &inputs.digest);
                Some(start(Operation::Apply { kind, inputs }, key))
            }
            OperationKind::UninstallFailed => {
                let key = failure_key::uninstall_failed(generation, &inputs?.digest);
                Some(start(Operation::UninstallFailed, key))
            }
            OperationKind::Rollback => {
                let (inputs, target) = (inputs?, self.rollback_to.as_ref()?);
                let key = failure_key::rollback(generation, &inputs.digest);
                let restored = Restored { revision: target.revision, inputs: target.mark.clone()?.digest };
                let requested = self.placement.requested_rollback(&*self.object, &inputs.digest).is_some();
                let operation = Operation::Rollback { inputs };
                Some(Start { restored: Some(restored), requested, ..start(operation, key) })
            }
            OperationKind::Compare => {
                let comparison = Some(self.drift.due.clone()?);
                Some(Start { comparison, ..start(Operation::Compare, failure_key::compare()) })
            }
            OperationKind::Test => {
                let (inputs, policy) = (inputs?, self.placement.policy.effective().test?);
                let key = failure_key::apply(generation, &inputs.digest);
                let (revision, logs) = (Some(self.status.revision?), policy.logs);
                Some(Start { revision, logs, ..start(Operation::Test { inputs }, key) })
            }
        }
    }

    /// Returns the revision that a user wants to restore, if it is stored and Chandler has deployed it.
    pub(super) fn requested_target(desired: &Desired, view: &View, revision: u32) -> Option<RevisionState> {
        let InventoryView::Known(listed) = &view.inventory else { return None };
        let stored = listed.revisions(&desired.release).filter(|_| view.can_roll_back)?.get(&revision)?;
        let was_deployed = matches!(stored.status, ReleaseStatus::Deployed | ReleaseStatus::Superseded);
        Some(stored).filter(|stored| was_deployed && stored.mark.is_some()).cloned()
    }

    /// Publishes an Event if the revision that a user wants to restore cannot be restored.
    pub(super) fn publish_impossible_rollback(&self, desired: &Desired) {
        let Some(revision) = self.state.impossible_rollback else { return };
        let note = format!(
            "revision {revision} of release {} cannot be restored: it is not stored, Chandler has not deployed it, or the package \
             tool cannot roll back; `chandler history` lists the revisions",
            desired.release
        );
        self.context.events.warning(&*self.object, "RollbackImpossible", &note);
    }

    /// Returns the revision that a rollback restores. The watch may lag behind the `newest` one, which an operation has reported.
    pub(super) fn rollback_target(
        desired: &Desired,
        view: &View,
        newest: Option<&RevisionState>,
        inputs: Option<&Inputs>,
    ) -> Option<RevisionState> {
        let InventoryView::Known(listed) = &view.inventory else { return None };
        let failed = &inputs.filter(|_| view.can_roll_back)?.digest;
        let mut stored = ReleaseInventory::default();
        for seen in listed.revisions(&desired.release)?.values().chain(newest).cloned() {
            stored.store(StoredRevision { release: desired.release.clone(), seen });
        }
        stored.rollback_target(&desired.release, failed).cloned()
    }
}
