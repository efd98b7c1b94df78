//! Reads the Cluster that owns an object of the provider.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt};
use serde_json::Value;

use super::Error;
use super::planes::ClusterKey;
use super::sandbox_cluster::{Endpoint, SandboxCluster};

const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Returns the API resource of `Cluster` in the contract's version.
pub fn cluster_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"))
}

/// The fields of a Cluster that the provider needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerCluster {
    pub(super) key: ClusterKey,
    pub(super) paused: bool,
    /// The name of its `SandboxCluster`, or `None` if its infrastructure is of another provider.
    pub(super) sandbox_cluster: Option<String>,
    endpoint: Option<Endpoint>,
    infrastructure_provisioned: bool,
}

impl OwnerCluster {
    /// Reads the fields of a Cluster.
    pub(super) fn of(cluster: &DynamicObject) -> Self {
        Self {
            key: ClusterKey::new(&cluster.namespace().unwrap_or_default(), &cluster.name_any()),
            paused: is_paused(cluster),
            sandbox_cluster: sandbox_cluster(&cluster.data),
            endpoint: endpoint(&cluster.data),
            infrastructure_provisioned: flag(
                &cluster.data,
                "/status/initialization/infrastructureProvisioned",
            ),
        }
    }

    /// Returns the endpoint that the infrastructure of another provider has set.
    pub(super) fn provisioned_endpoint(&self) -> Option<Endpoint> {
        self.endpoint.clone().filter(|_| self.infrastructure_provisioned)
    }
}

/// Returns the key of the owning Cluster, or `None` until Cluster API has set the owner reference.
pub(super) fn owner_key<K: Resource>(object: &K) -> Option<ClusterKey> {
    let namespace = object.meta().namespace.as_deref()?;
    object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Cluster" && owner.api_version.starts_with("cluster.x-k8s.io/"))
        .map(|owner| ClusterKey::new(namespace, &owner.name))
}

pub(super) async fn owner<K: Resource>(
    client: &kube::Client,
    object: &K,
) -> Result<Option<OwnerCluster>, Error> {
    let Some(key) = owner_key(object) else {
        return Ok(None);
    };
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &key.namespace, &cluster_resource());
    let found = clusters.get_opt(&key.name).await.map_err(Error::read("the owning Cluster"))?;
    let object_is_paused = object.annotations().contains_key(PAUSED);
    Ok(found.map(|cluster| {
        let cluster = OwnerCluster::of(&cluster);
        OwnerCluster { paused: cluster.paused || object_is_paused, ..cluster }
    }))
}

fn is_paused(cluster: &DynamicObject) -> bool {
    flag(&cluster.data, "/spec/paused") || cluster.annotations().contains_key(PAUSED)
}

fn sandbox_cluster(cluster: &Value) -> Option<String> {
    let reference = cluster.pointer("/spec/infrastructureRef")?;
    let is_sandbox_cluster = reference.get("kind")?.as_str()? == SandboxCluster::kind(&());
    let name = reference.get("name")?.as_str()?;
    is_sandbox_cluster.then(|| name.to_owned())
}

fn endpoint(cluster: &Value) -> Option<Endpoint> {
    let endpoint = cluster.pointer("/spec/controlPlaneEndpoint")?;
    let endpoint: Endpoint = serde_json::from_value(endpoint.clone()).ok()?;
    (endpoint.port != 0).then_some(endpoint)
}

fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}
