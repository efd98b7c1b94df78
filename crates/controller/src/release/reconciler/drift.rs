//! Objects of a release that others have changed.

use std::{sync::Arc, time::Duration};

use chandler_api::{extensions::DriftMode, status::DRIFTED};
use chandler_core::{
    conditions,
    drift::{
        self, ComparisonScope, DriftReport, DriftRules, DriftState, NextComparison, ObjectComparison,
        Snapshot,
    },
    failure::Failure,
    release::{Collision, Desired, Plan, ReleaseKind, Wait},
};
use chandler_workload::InventoryView;
use jiff::Timestamp;
use kube::{ResourceExt as _, core::NamespaceResourceScope};

use super::{Reconciler, View};
use crate::release::operate::Comparison;

/// Events about corrections of a release are at least so long apart.
const EVENT_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of objects that an Event names.
const NAMED_OBJECTS: usize = 5;

/// What is compared next.
#[derive(Debug, Default)]
pub(super) struct DriftPlan {
    /// The objects as they are watched. `None` if they are not compared, or not known.
    snapshot: Option<Snapshot>,
    /// What to compare now.
    pub due: Option<Comparison>,
    /// When to compare again although nothing changes.
    pub at: Option<Timestamp>,
}

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Returns whether the objects have to have fingerprints.
    pub(super) fn compares_objects(&self, view: &View) -> bool {
        let were_compared = conditions::find(&self.status.conditions, DRIFTED).is_some();
        self.context.health
            && !view.lacks_compare
            && !self.deleting()
            && self.placement.policy.compares_objects(were_compared)
    }

    /// Plans which objects are compared, and when.
    pub(super) fn plan_drift(&mut self, desired: &Desired, view: &View) -> DriftPlan {
        let Some(snapshot) = self.snapshot(desired, view) else { return DriftPlan::default() };
        let restored = || Arc::new(DriftState::restore(self.status.drift.as_ref(), &snapshot));
        let state = self.state.drift.get_or_insert_with(restored);
        let (mut due, mut at) = (None, None);
        match state.next(&snapshot, &self.uid, self.now) {
            NextComparison::OnChange => {}
            NextComparison::At(time) => at = Some(time),
            NextComparison::Now(objects) => due = Some(Comparison { snapshot: snapshot.clone(), objects }),
        }
        DriftPlan { snapshot: Some(snapshot), due, at }
    }

    /// Returns the objects of the newest revision as they are watched.
    fn snapshot(&self, desired: &Desired, view: &View) -> Option<Snapshot> {
        let rules = self.drift_rules(desired);
        if rules.policy.mode == DriftMode::Ignore || !self.compares_objects(view) {
            return None;
        }
        let revision =
            self.status.revision.filter(|_| self.status.inventory_revision == self.status.revision)?;
        // After an operation, the watches do not show its result yet.
        let is_known = matches!(view.inventory, InventoryView::Known(_)) && self.state.expectation.is_none();
        let objects = self.status.inventory.clone();
        let fingerprints = view.connection().filter(|_| is_known)?.health().fingerprints(&objects)?;
        Some(Snapshot { scope: ComparisonScope { revision, rules, objects }, fingerprints })
    }

    fn drift_rules(&self, desired: &Desired) -> DriftRules {
        let policy = self.placement.policy.effective().drift.clone();
        DriftRules { policy, conflicts: desired.execution.conflicts }
    }

    /// Returns whether the last comparison that was started has other rules than the policy.
    pub(super) fn comparison_is_outdated(&self, desired: &Desired) -> bool {
        self.state.compared_rules.as_ref().is_some_and(|rules| *rules != self.drift_rules(desired))
    }

    /// Returns what is known about drift. `None` means that the objects are not compared.
    pub(super) fn drift_report(
        &mut self,
        desired: &Desired,
        view: &View,
        decision: &Plan,
    ) -> Option<DriftReport> {
        let wants = self.context.health && self.placement.policy.effective().drift.mode != DriftMode::Ignore;
        let is_taken = matches!(self.collision(desired), Collision::Taken { .. });
        if !is_taken && wants && view.lacks_compare && !self.deleting() {
            let message = "the package tool cannot compare objects; set `drift.mode: Ignore` in the policy";
            return Some(DriftReport::Unknown(message.to_owned()));
        }
        if is_taken || !self.compares_objects(view) {
            (self.state.drift, self.status.drift) = (None, None);
            return None;
        }
        if self.drift_status_due_at().is_some_and(|at| at <= self.now) {
            self.update_drift_status();
        }
        let Some(state) = &self.state.drift else { return Some(DriftReport::Unchanged) };
        let revision =
            self.status.revision.filter(|_| matches!(decision, Plan::Wait(Wait::RolledBack { .. })));
        let report = revision.and_then(|revision| state.report_rolled_back(revision));
        let report =
            report.or_else(|| self.drift.snapshot.as_ref().map(|known| state.report(known, self.now)));
        Some(report.unwrap_or(DriftReport::Unchanged))
    }

    /// Returns when the status has to be updated although nothing was compared.
    pub(super) fn drift_status_due_at(&self) -> Option<Timestamp> {
        self.state.drift.as_ref()?.status_due_at()
    }

    fn update_drift_status(&mut self) {
        if let Some(state) = &mut self.state.drift {
            Arc::make_mut(state).update_status(&mut self.status.drift, self.now);
        }
    }

    /// Takes in that an operation has changed the objects.
    pub(super) fn note_changed_objects(&mut self) {
        if self.placement.policy.effective().drift.mode != DriftMode::Ignore {
            Arc::make_mut(self.state.drift.get_or_insert_default()).operated(self.now);
        }
    }

    /// Takes in how a comparison has ended.
    pub(super) fn take_compared(
        &mut self,
        desired: &Desired,
        comparison: Comparison,
        results: &[ObjectComparison],
    ) {
        let Comparison { snapshot, objects } = comparison;
        let state = Arc::make_mut(self.state.drift.get_or_insert_default());
        let changes = state.compared(snapshot, &objects, results, self.now);
        self.update_drift_status();
        let (release, cluster) = (&desired.release, &desired.cluster.name);
        if !changes.drifted.is_empty() {
            let what = drift::message(&changes.drifted, NAMED_OBJECTS);
            let note =
                format!("Objects of release {release} on cluster {cluster} were changed by others: {what}");
            self.publish_warning("DriftFound", &note);
        }
        let is_due = self
            .state
            .corrected_event_at
            .is_none_or(|last| self.now.duration_since(last).unsigned_abs() >= EVENT_INTERVAL);
        if !changes.corrected.is_empty() && is_due {
            self.state.corrected_event_at = Some(self.now);
            let what = drift::correction_message(&changes.corrected, NAMED_OBJECTS);
            let note = format!("Corrected objects of release {release} on cluster {cluster}: {what}");
            self.publish_normal("DriftCorrected", &note);
        }
    }

    /// Takes in that a comparison has failed. It says nothing about the release.
    pub(super) fn take_failed_comparison(&mut self, scope: &ComparisonScope, failure: Failure) {
        let (object, category) = (self.object.name_any(), failure.category);
        tracing::debug!(object, %category, "objects could not be compared: {failure}");
        Arc::make_mut(self.state.drift.get_or_insert_default()).failed(scope, failure, Timestamp::now());
    }
}
