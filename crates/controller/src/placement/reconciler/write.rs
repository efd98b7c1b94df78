//! Writes the changes of release objects.

use std::sync::Arc;

use chandler_api::extensions::UNSELECTED_ANNOTATION;
use chandler_core::{
    identity::ClusterKey,
    naming,
    placement::{Change, ClusterFailure, DeleteFailure, PlacementKind},
    policy::is_marked_unselected,
    release::unused_values_secret,
};
use futures::{StreamExt as _, stream};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::{Reconciler, WRITES};
use crate::overwrite;

/// The changes that were not written.
#[derive(Default)]
pub(super) struct Unwritten {
    pub apply_failures: Vec<ClusterFailure>,
    pub delete_failures: Vec<DeleteFailure>,
    /// Clusters whose cached release object is outdated.
    pub outdated: Vec<ClusterKey>,
}

/// Why a change was not written.
enum WriteFailure {
    Apply(ClusterFailure),
    Delete(DeleteFailure),
    Outdated(ClusterKey),
}

impl<P> Reconciler<P>
where
    P: PlacementKind + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    /// Writes the changes. Returns those that were not written.
    pub(super) async fn write(
        &self,
        reference: &ObjectRef<P>,
        changes: Vec<Change<P::Release>>,
    ) -> Unwritten {
        let api: Api<P::Release> = self.release_api();
        let (mut applies, mut deletions) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Apply(object) => applies.push(self.apply_one(&api, reference, *object)),
                Change::Delete(release) => deletions.push(self.delete_one(&api, reference, release, false)),
                Change::Unselect(release) => deletions.push(self.delete_one(&api, reference, release, true)),
            }
        }
        let (applies, deletions) = futures::join!(failures(applies), failures(deletions));
        let mut unwritten = Unwritten::default();
        for failure in applies.into_iter().chain(deletions) {
            match failure {
                WriteFailure::Apply(failure) => unwritten.apply_failures.push(failure),
                WriteFailure::Delete(failure) => unwritten.delete_failures.push(failure),
                WriteFailure::Outdated(cluster) => unwritten.outdated.push(cluster),
            }
        }
        unwritten
    }

    async fn apply_one(
        &self,
        api: &Api<P::Release>,
        reference: &ObjectRef<P>,
        object: P::Release,
    ) -> Option<WriteFailure> {
        let unused = self.unused_values(&object);
        match overwrite::apply(api, &object, P::same_request).await {
            Ok(written) => {
                self.context.values_secrets.set_owner(&written).await;
                if let Some(secret) = unused {
                    self.context.values_secrets.clear(&written, &secret).await;
                }
                self.context.written.record(reference, written);
                None
            }
            Err(error) if overwrite::is_uid_mismatch(&error) => {
                self.context.written.remove(reference, &object.name_any());
                Some(WriteFailure::Outdated(P::cluster_of(&object)?))
            }
            Err(error) => {
                let cluster = P::cluster_of(&object)?;
                Some(WriteFailure::Apply(ClusterFailure { cluster, message: error.to_string() }))
            }
        }
    }

    /// Returns the Secret with values that no release object refers to after `object` is applied.
    fn unused_values(&self, object: &P::Release) -> Option<String> {
        let owner = naming::label_value(&self.object.name_any());
        let existing = self.context.releases.of_owner_on(&owner, &P::cluster_of(object)?);
        let existing = existing.into_iter().find(|existing| existing.name_any() == object.name_any())?;
        unused_values_secret(&*existing, object)
    }

    async fn delete_one(
        &self,
        api: &Api<P::Release>,
        reference: &ObjectRef<P>,
        release: Arc<P::Release>,
        is_unselected: bool,
    ) -> Option<WriteFailure> {
        let name = release.name_any();
        let marked = if is_unselected { self.mark_unselected(api, &release).await } else { Ok(()) };
        let same = DeleteParams::default()
            .preconditions(Preconditions { uid: release.uid(), resource_version: None });
        let deleted = match marked {
            Ok(()) => api.delete(&name, &same).await.map(drop),
            Err(error) => Err(error),
        };
        let cluster = P::cluster_of(&release);
        match deleted {
            Ok(()) => None,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.context.written.remove(reference, &name);
                None
            }
            Err(error) => Some(match cluster {
                Some(cluster) if overwrite::is_uid_mismatch(&error) => WriteFailure::Outdated(cluster),
                cluster => {
                    WriteFailure::Delete(DeleteFailure { object: name, cluster, message: error.to_string() })
                }
            }),
        }
    }

    /// Marks a release object as one whose Cluster is no longer selected, if that matters to the policy: the deletion may take
    /// until the Cluster is selected again.
    async fn mark_unselected(&self, api: &Api<P::Release>, release: &P::Release) -> Result<(), kube::Error> {
        let exists = P::cluster_of(release).is_some_and(|key| self.context.clusters.get(&key).is_some());
        if self.object.policy().is_none() || !exists || is_marked_unselected(release) {
            return Ok(());
        }
        let annotations = json!({UNSELECTED_ANNOTATION: "true"});
        let patch = Patch::Merge(json!({"metadata": {"uid": release.uid(), "annotations": annotations}}));
        api.patch(&release.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }
}

/// Runs writes concurrently and returns their failures.
async fn failures(writes: Vec<impl Future<Output = Option<WriteFailure>>>) -> Vec<WriteFailure> {
    stream::iter(writes).buffer_unordered(WRITES).filter_map(std::future::ready).collect().await
}
