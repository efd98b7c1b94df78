//! The health of the objects of a release.

use chandler_api::status::{HEALTHY, ObjectRecord};
use chandler_core::{
    conditions,
    health::{Observation, ReleaseHealth, recheck_at, release_health},
    release::{Collision, Desired, ReleaseKind},
};
use chandler_workload::InventoryView;
use jiff::Timestamp;
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
        let was_observed = conditions::find(&self.status.conditions, HEALTHY).is_some();
        let is_observed = self.context.health && self.placement.policy.observes_health(was_observed);
        let health = self.watch_objects(desired, view, is_observed);
        if is_observed { health } else { Health::default() }
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
        let deployed_at = if self.state.expectation.is_some() {
            // The operation has just ended, and the watch does not show it yet.
            Some(self.now)
        } else {
            inventory.newest(&desired.release).and_then(|newest| newest.updated)
        };
        let state_of = |object: &ObjectRecord| -> Observation { watches.observation(object) };
        Health {
            of_release: Some(release_health(objects, state_of, deployed_at, self.now)),
            recheck_at: recheck_at(objects, state_of, deployed_at, self.now),
        }
    }
}
