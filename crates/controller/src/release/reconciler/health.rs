//! The health of the objects of a release.

use chandler_api::status::{HEALTHY, ObjectRecord, RevisionHealth, RevisionState};
use chandler_core::{
    conditions,
    health::{Confirmation, Observation, ReleaseHealth, Revision, recheck_at, release_health},
    inventory::ReleaseInventory,
    release::{Collision, Desired, Plan, ReleaseKind},
    rollout::{RolloutRecord, RolloutSettings},
};
use chandler_workload::InventoryView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::NamespaceResourceScope;

use super::{Reconciler, View};

/// The health of a release.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// `None` means that it is not observed.
    pub of_release: Option<ReleaseHealth>,
    /// When to look again although nothing changes.
    pub recheck_at: Option<Timestamp>,
}

impl Health {
    /// Nothing new is known.
    const UNCHANGED: Self = Self { of_release: Some(ReleaseHealth::Unchanged), recheck_at: None };
}

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Observes the objects of the release, as far as they are known, and returns their health.
    pub(super) fn health(&self, desired: &Desired, view: &View) -> Health {
        let is_observed = self.observes_health();
        let health = self.watch_objects(desired, view, is_observed);
        if is_observed { health } else { Health::default() }
    }

    fn observes_health(&self) -> bool {
        let was_observed = conditions::find(&self.status.conditions, HEALTHY).is_some();
        self.context.health && self.placement.policy.observes_health(was_observed)
    }

    /// Returns when the newest revision was deployed.
    fn deployed_at(&self, desired: &Desired, inventory: &ReleaseInventory) -> Option<Timestamp> {
        if self.state.expectation.is_some() {
            // The operation has just ended, and the watch does not show it yet.
            return Some(self.now);
        }
        inventory.newest(&desired.release).and_then(|newest| newest.updated)
    }

    /// Updates the health of the revision that a rollout has created, until it counts as ready. Returns when to look again
    /// although nothing changes.
    pub(super) fn judge_revision(
        &mut self,
        desired: &Desired,
        view: &View,
        decision: &Plan,
    ) -> Option<Timestamp> {
        if *decision != Plan::NoOp || !self.observes_health() {
            return None;
        }
        let record = RolloutRecord::of(&*self.object);
        let record = record.filter(|record| record.from.is_some() && record.ready.is_none())?;
        let rollout = self.placement.policy.effective().rollout.as_ref();
        let settings = rollout.and_then(|rollout| RolloutSettings::parse(rollout).ok())?;
        let (InventoryView::Known(releases), Some(connection)) = (&view.inventory, view.connection()) else {
            return None;
        };
        let revision =
            self.status.revision.filter(|_| self.status.inventory_revision == self.status.revision)?;
        let generation = self.object.meta().generation?;
        let watches = connection.health();
        let deployed_at = self.deployed_at(desired, releases).max(Some(record.at));
        let old = self.status.health.as_ref();
        let old = old.filter(|old| (old.revision, old.generation) == (revision, generation));
        let is_confirmed = old.is_some_and(|old| old.state == RevisionState::Healthy);
        let answers_since = if is_confirmed { deployed_at } else { connection.answers_since() };
        // Others list the same kinds.
        let confirm = |after| {
            if is_confirmed { Confirmation::Confirmed } else { watches.confirm(&desired.release, after) }
        };
        let inventory = &self.status.inventory;
        let revision_of_rollout =
            Revision { inventory, deployed_at, answers_since, min_ready: settings.min_ready };
        let judged = revision_of_rollout.judge(|object| watches.observation(object), confirm, self.now);
        if old.is_none_or(|old| old.state != judged.state) {
            let since = Time(self.now);
            self.status.health = Some(RevisionHealth { revision, generation, state: judged.state, since });
        }
        judged.recheck_at
    }

    /// Watches the objects of the release if their health is observed, or if they are compared with their package.
    fn watch_objects(&self, desired: &Desired, view: &View, is_observed: bool) -> Health {
        let is_fingerprinted = self.compares_objects(view);
        if matches!(self.collision(desired), Collision::Taken { .. }) {
            // The objects are those of the object that owns the release.
            return Health::default();
        }
        if !is_observed && !is_fingerprinted || self.deleting() {
            self.context.caches.connections.forget(&desired.cluster, &desired.release);
            return Health::default();
        }
        let (InventoryView::Known(inventory), Some(connection)) = (&view.inventory, view.connection()) else {
            return Health::UNCHANGED;
        };
        let watches = connection.health();
        let Some(revision) = self.status.revision else {
            watches.forget(&desired.release);
            return Health::default();
        };
        if self.status.inventory_revision != Some(revision) {
            // An operation is creating or removing objects, or another client has done so.
            return Health { of_release: Some(ReleaseHealth::Undescribed), recheck_at: None };
        }
        let objects = &self.status.inventory;
        if let Some(checks) = self.placement.policy.checks() {
            watches.set_checks(&desired.release, &checks);
        }
        let kind = |object: &ObjectRecord| (object.api_version.clone(), object.kind.clone());
        watches.set_fingerprinted(&desired.release, is_fingerprinted);
        watches.set_kinds(&desired.release, objects.iter().map(kind).collect());
        let deployed_at = self.deployed_at(desired, inventory);
        let state_of = |object: &ObjectRecord| -> Observation { watches.observation(object) };
        Health {
            of_release: Some(release_health(objects, state_of, deployed_at, self.now)),
            recheck_at: recheck_at(objects, state_of, deployed_at, self.now),
        }
    }
}
