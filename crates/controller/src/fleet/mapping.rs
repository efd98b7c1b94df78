//! Deletes BundleNamespaceMappings that no Cluster needs any more.

use std::sync::Arc;

use chandler_core::fleet::is_stale_mapping;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Preconditions},
    runtime::controller::Action,
};

use super::{FleetContext, caches::class_of_cluster, kinds};
use crate::{
    ManagementError, ReconcileError,
    clusters::{self, Clusters, as_json},
    queue,
};

/// Reconciles a mapping. It is named after the namespace of the Clusters that need it.
pub(super) async fn reconcile(
    mapping: Arc<DynamicObject>,
    context: Arc<FleetContext>,
) -> Result<Action, ReconcileError> {
    // A manager for one namespace does not know the Clusters of the others.
    if context.scope.namespace.is_none() {
        delete_stale(&context.client, &context.caches.clusters, &mapping).await?;
    }
    Ok(queue::resync(&*mapping))
}

/// Deletes a mapping if neither the cache nor the API server has a Cluster that needs it. The cache may not show a new Cluster yet.
async fn delete_stale(
    client: &Client,
    cached: &Clusters,
    mapping: &DynamicObject,
) -> Result<(), ManagementError> {
    let (namespace, object) = (mapping.name_any(), as_json(mapping));
    let cached = cached.in_namespace(&namespace);
    if !is_stale_mapping(&object, cached.values().filter_map(|cluster| class_of_cluster(cluster))) {
        return Ok(());
    }
    let listed = clusters::list(client, &namespace).await?;
    if is_stale_mapping(&object, listed.iter().filter_map(class_of_cluster)) {
        delete(client, mapping).await?;
    }
    Ok(())
}

async fn delete(client: &Client, mapping: &DynamicObject) -> Result<(), ManagementError> {
    let (namespace, name) = (mapping.namespace().unwrap_or_default(), mapping.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kinds::mappings());
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

#[cfg(test)]
mod tests {
    use chandler_core::fleet::APPLIED_ANNOTATION;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        clusters::tests::{PATH, cached, cluster},
        fake_api_server::FakeApiServer,
    };

    const MAPPING: &str = "/apis/fleet.cattle.io/v1alpha1/namespaces/classes/bundlenamespacemappings/fleet";
    const CLUSTERS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet/clusters";

    /// Returns an API server with a mapping of Chandler for the Clusters of the namespace `fleet`, and the mapping.
    fn with_mapping() -> (FakeApiServer, DynamicObject) {
        let server = FakeApiServer::default();
        let mut mapping = chandler_core::fleet::mapping("fleet", "classes");
        mapping["metadata"]["annotations"] = json!({APPLIED_ANNOTATION: "x"});
        server.put(MAPPING, mapping);
        let stored = serde_json::from_value(server.get(MAPPING).unwrap()).unwrap();
        (server, stored)
    }

    /// Returns Cluster `fleet/blue` with a class of this namespace.
    fn cluster_of_class(namespace: &str) -> Value {
        let mut cluster = cluster();
        cluster["spec"]["topology"] = json!({"classRef": {"name": "base", "namespace": namespace}});
        cluster
    }

    #[tokio::test]
    async fn a_mapping_is_deleted_only_if_the_api_server_has_no_cluster_that_needs_it() {
        let (needs, other) = (cluster_of_class("classes"), cluster_of_class("others"));
        let mut deleting = needs.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let rows = [
            ("a Cluster is cached", Some(needs.clone()), Some(needs.clone()), true),
            ("a Cluster is not cached yet", None, Some(needs.clone()), true),
            ("an earlier state of a Cluster is cached", Some(other.clone()), Some(needs), true),
            ("there is no Cluster", None, None, false),
            ("the last Cluster is being deleted", None, Some(deleting), false),
            ("the Cluster has a class of another namespace", Some(other.clone()), Some(other), false),
        ];
        for (what, in_cache, stored, is_kept) in rows {
            let (server, mapping) = with_mapping();
            if let Some(stored) = stored {
                server.put(PATH, stored);
            }
            delete_stale(&server.client(), &cached(in_cache), &mapping).await.unwrap();
            assert_eq!(server.get(MAPPING).is_some(), is_kept, "{what}");
        }
    }

    #[tokio::test]
    async fn a_mapping_is_kept_while_clusters_cannot_be_listed() {
        let (server, mapping) = with_mapping();
        server.fail_reads(CLUSTERS);
        assert!(delete_stale(&server.client(), &cached(None), &mapping).await.is_err());
        assert!(server.get(MAPPING).is_some());
    }
}
