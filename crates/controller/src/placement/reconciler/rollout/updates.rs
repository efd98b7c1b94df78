//! Composes the release objects that a rollout updates now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chandler_api::extensions::ROLLOUT_REPLACED_ANNOTATION;
use chandler_core::{
    identity::{ClusterKey, ClusterMap},
    placement::{PlacementKind, Selection},
    release::{ReleaseKind as _, installed_version},
    rollout::{ChangeKind, Replaced, RolloutTarget, next_record, shared_digest},
};
use jiff::Timestamp;
use kube::{
    Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::{ComposedObjects, Planned};
use crate::{
    ReconcileError,
    error::write_result,
    placement::{
        ComposeError, ComposeMode, ComposedRelease, FollowedPackage, WriteValues,
        pending::ReconcileScope,
        reconciler::{Composition, Reconciler},
    },
    status,
};

impl<P> Reconciler<P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    /// Composes the release objects of the clusters whose turn it is. Also returns why that failed for some.
    pub(super) async fn compose_updates(
        &self,
        reference: &ObjectRef<P>,
        planned: Planned,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> Result<(ClusterMap<P::Release>, ClusterMap<ComposeError>), ReconcileError> {
        let Planned { plan, targets, package_donors, .. } = planned;
        let mut groups: BTreeMap<Option<&ClusterKey>, BTreeSet<ClusterKey>> = BTreeMap::new();
        for cluster in plan.may_update {
            groups.entry(package_donors.get(&cluster)).or_default().insert(cluster);
        }
        let (mut updates, mut all_failing) = (ClusterMap::new(), ClusterMap::new());
        for (donor, clusters) in groups {
            let package_of = donor.and_then(|donor| all.get(donor)).map(AsRef::as_ref);
            let Composition { objects, failing, pending } =
                self.compose_again(clusters, package_of, all).await?;
            for (key, one) in objects {
                let Some(wanted) = targets.get(&key) else { continue };
                let target = one.as_ref().map(|one| self.target(one));
                let is_wanted = target.as_ref().is_some_and(|target| target.is_same_update(wanted));
                if let (Some(one), Some(target)) = (one, target.as_ref().filter(|_| is_wanted)) {
                    let (mut object, there) = (one.object, all.get(&key).map(AsRef::as_ref));
                    next_record(ChangeKind::Shared, there, target, Timestamp::now()).set(&mut object);
                    updates.insert(key, object);
                    continue;
                }
                let will_be_known =
                    pending.contains(&key) || failing.get(&key).is_some_and(ComposeError::is_transient);
                if package_of.is_some() && !will_be_known {
                    // The earlier package is not available any more.
                    self.context.rollout_targets.abandon(reference, &wanted.package);
                    self.context.queue.enqueue(reference.clone(), &ReconcileScope::All);
                } else if target.is_some() {
                    // Something has changed meanwhile.
                    self.context.queue.enqueue(reference.clone(), &ReconcileScope::All);
                }
            }
            // Another package is composed instead of the earlier one.
            let is_reported = |error: &ComposeError| package_of.is_none() || error.is_transient();
            all_failing.extend(failing.into_iter().filter(|(_, error)| is_reported(error)));
        }
        Ok((updates, all_failing))
    }

    /// Returns the releases that the rollout is replacing.
    pub(super) fn replaced(&self, reference: &ObjectRef<P>) -> Replaced {
        let recorded = self.context.rollout_targets.get(reference).replaced;
        recorded.unwrap_or_else(|| Replaced::of(&*self.object))
    }

    /// Records which releases are going to be replaced, before their release objects are deleted: the next start of the manager
    /// has to know it.
    pub(super) async fn record_replaced(
        &self,
        reference: &ObjectRef<P>,
        selection: &Selection,
        updates: &ClusterMap<P::Release>,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> Result<(), ReconcileError> {
        let (old, namespace) = (self.replaced(reference), self.object.namespace().unwrap_or_default());
        let mut new = old.clone();
        let key = |cluster: &str| ClusterKey::new(&*namespace, cluster);
        let now = Timestamp::now();
        new.retain(
            |cluster| self.is_selected(selection, &key(cluster)),
            |cluster| all.get(&key(cluster)).map(AsRef::as_ref),
            now,
        );
        for (cluster, object) in updates {
            if let Some(there) = all.get(cluster).filter(|there| !P::same_identity(there, object)) {
                new.add(&cluster.name, &**there, now);
            }
        }
        if new != old {
            self.write_replaced(&new).await?;
            self.context.rollout_targets.set_replaced(reference, new);
        }
        Ok(())
    }

    /// Removes what a rollout has recorded that was turned off since.
    pub(super) async fn forget_replaced(&self) -> Result<(), ReconcileError> {
        let has_record = self.object.annotations().contains_key(ROLLOUT_REPLACED_ANNOTATION);
        if has_record { self.write_replaced(&Replaced::default()).await } else { Ok(()) }
    }

    async fn write_replaced(&self, replaced: &Replaced) -> Result<(), ReconcileError> {
        let annotations = json!({ROLLOUT_REPLACED_ANNOTATION: replaced.to_annotation()});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let (api, name) = (status::api(&self.context.client, &*self.object), self.object.name_any());
        let written = api.patch(&name, &PatchParams::default(), &patch).await;
        write_result(status::kind::<P>(), name, written)?;
        Ok(())
    }

    /// Composes release objects that are written now, with the package of `package_of` if there is one.
    pub(super) async fn compose_again(
        &self,
        clusters: BTreeSet<ClusterKey>,
        package_of: Option<&P::Release>,
        all: &ClusterMap<Arc<P::Release>>,
    ) -> Result<Composition<P>, ReconcileError> {
        let mode = ComposeMode { package_of, write_values: WriteValues::Always };
        let selected =
            clusters.into_iter().filter_map(|key| Some((key.clone(), self.context.clusters.get(&key)?)));
        let mut composition = self.desired(&selected.collect(), all, &mode).await?;
        self.pin_versions(&mut composition.objects, all, package_of).await;
        Ok(composition)
    }

    /// Returns what a composed release object is updated to.
    pub(super) fn target(&self, composed: &ComposedRelease<P::Release>) -> RolloutTarget {
        RolloutTarget {
            spec: shared_digest(&self.object.shared_spec(), &composed.parameters),
            defaults: composed.defaults.clone(),
            package: composed.object.package_key(),
            kubernetes: composed.kubernetes.clone(),
        }
    }

    /// Sets the version of release objects that follow the newest one: to that of `package_of`, or else to the newest. If it cannot
    /// be resolved, or the catalog does not offer the installed one any more, the version stays.
    pub(super) async fn pin_versions(
        &self,
        composed: &mut ComposedObjects<P>,
        existing: &ClusterMap<Arc<P::Release>>,
        package_of: Option<&P::Release>,
    ) {
        let version_of = |release: &P::Release| release.desired().ok()?.package.version;
        let of_rollout = package_of.and_then(version_of);
        let mut known: BTreeMap<(String, Option<String>), Option<String>> = BTreeMap::new();
        for (key, one) in composed {
            let Some(one) = one.as_mut().filter(|one| one.object.follows_newest_version()) else { continue };
            let Ok(desired) = one.object.desired() else { continue };
            let there: Option<&P::Release> = existing.get(key).map(AsRef::as_ref);
            let installed = there.and_then(|release| installed_version(release, &desired));
            let package = desired.package.to_string();
            let query = (package.clone(), installed.clone());
            let found = if let Some(found) = known.get(&query) {
                found.clone()
            } else {
                let followed = FollowedPackage { desired, installed, of_rollout: of_rollout.clone() };
                let found = (self.context.followed_version)(followed).await;
                let found =
                    found.map_err(|error| tracing::warn!(%error, %package, "keeping the version")).ok();
                known.insert(query, found.clone());
                found
            };
            if let Some(version) = found.or_else(|| version_of(there?)) {
                one.object.set_version(&version);
            }
        }
    }
}
