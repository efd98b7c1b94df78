//! Deletes BundleNamespaceMappings that no Cluster needs any more.

use std::sync::Arc;

use chandler_core::fleet::is_stale_mapping;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Preconditions},
    runtime::controller::Action,
};

use super::{FleetContext, caches::class_of_cluster, kinds};
use crate::{ManagementError, ReconcileError, clusters::as_json, queue};

/// Reconciles a mapping. It is named after the namespace of the Clusters that need it.
pub(super) async fn reconcile(
    mapping: Arc<DynamicObject>,
    context: Arc<FleetContext>,
) -> Result<Action, ReconcileError> {
    let clusters = context.caches.clusters.in_namespace(&mapping.name_any());
    let classes = clusters.values().filter_map(|cluster| class_of_cluster(cluster));
    // A manager for one namespace does not know the Clusters of the others.
    if context.scope.namespace.is_none() && is_stale_mapping(&as_json(&mapping), classes) {
        delete(&context, &mapping).await?;
    }
    Ok(queue::resync(&*mapping))
}

async fn delete(context: &FleetContext, mapping: &DynamicObject) -> Result<(), ManagementError> {
    let (namespace, name) = (mapping.namespace().unwrap_or_default(), mapping.name_any());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &kinds::mappings());
    let unchanged = Preconditions { resource_version: mapping.resource_version(), uid: mapping.uid() };
    match api.delete(&name, &DeleteParams::default().preconditions(unchanged)).await {
        Ok(_) => {
            tracing::info!(
                namespace,
                name,
                "deleted a BundleNamespaceMapping that no Cluster needs any more"
            );
            Ok(())
        }
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(source) => Err(ManagementError::Write { kind: kinds::MAPPING, name, source }),
    }
}
