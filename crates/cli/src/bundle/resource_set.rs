//! Reads a ClusterResourceSet, the ConfigMaps and Secrets that it names, and what was applied to which cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde::{Deserialize, Serialize};

const GROUP: &str = "addons.cluster.x-k8s.io";
/// The only type of Secret that a ClusterResourceSet applies.
const SECRET_TYPE: &str = "addons.cluster.x-k8s.io/resource-set";
/// The versions that the Cluster API has served, newest first. The fields that are read here are the same in both.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";

/// A ClusterResourceSet and everything that it refers to.
#[derive(Debug, Clone, Default)]
pub struct ResourceSet {
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
    /// The API version in which it was read.
    pub version: String,
    pub paused: bool,
    pub deleting: bool,
    pub spec: ResourceSetSpec,
    /// The resources of the spec, in its order.
    pub resources: Vec<Resource>,
    pub bindings: Vec<Binding>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSetSpec {
    #[serde(default)]
    pub cluster_selector: LabelSelector,
    #[serde(default)]
    pub resources: Vec<ResourceRef>,
}

/// A ConfigMap or Secret in the namespace of the set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRef {
    pub kind: String,
    pub name: String,
}

impl std::fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A resource of the set and what it contains.
#[derive(Debug, Clone)]
pub struct Resource {
    pub reference: ResourceRef,
    pub content: ResourceContent,
}

#[derive(Debug, Clone)]
pub enum ResourceContent {
    /// The values by their keys.
    Data(BTreeMap<String, Vec<u8>>),
    Missing,
    /// A Secret of a type that is not applied.
    WrongType(String),
}

/// What was applied to a cluster.
#[derive(Debug, Clone)]
pub struct Binding {
    pub cluster: String,
    pub resources: Vec<AppliedResource>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct AppliedResource {
    #[serde(flatten)]
    pub reference: ResourceRef,
    /// Digest of the data at the time at which it was applied. Empty if it was not applied.
    #[serde(default)]
    pub hash: String,
}

/// The spec of a ClusterResourceSetBinding: the sets that were applied to a cluster.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingSpec {
    #[serde(default)]
    bindings: Vec<SetBinding>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetBinding {
    cluster_resource_set_name: String,
    #[serde(default)]
    resources: Vec<AppliedResource>,
}

/// Returns the API of a kind of the Cluster API in a namespace.
pub fn api(client: &Client, namespace: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<ResourceSet> {
    let reading = || format!("reading ClusterResourceSet {namespace}/{name}");
    let mut found = None;
    for version in VERSIONS {
        let sets = api(client, namespace, version, "ClusterResourceSet");
        if let Some(object) = sets.get_opt(name).await.with_context(reading)? {
            found = Some((version, object));
            break;
        }
    }
    let Some((version, object)) = found else {
        bail!(
            "ClusterResourceSet {namespace}/{name} does not exist; list them with `kubectl get clusterresourcesets -A`"
        )
    };
    let spec: ResourceSetSpec = serde_json::from_value(object.data["spec"].clone()).with_context(reading)?;
    let mut resources = Vec::new();
    for reference in &spec.resources {
        let content = read_resource(client, namespace, reference).await?;
        resources.push(Resource { reference: reference.clone(), content });
    }
    Ok(ResourceSet {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: object.uid(),
        version: version.to_owned(),
        paused: object.annotations().contains_key(PAUSED_ANNOTATION),
        deleting: object.metadata.deletion_timestamp.is_some(),
        spec,
        resources,
        bindings: read_bindings(client, namespace, version, name).await?,
    })
}

async fn read_resource(client: &Client, namespace: &str, reference: &ResourceRef) -> Result<ResourceContent> {
    let name = &reference.name;
    let reading = || format!("reading {} {namespace}/{name}", reference.kind);
    if reference.kind == "ConfigMap" {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let found = maps.get_opt(name).await.with_context(reading)?;
        return Ok(found.map_or(ResourceContent::Missing, of_config_map));
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(name).await.with_context(reading)?;
    Ok(found.map_or(ResourceContent::Missing, of_secret))
}

fn of_config_map(map: ConfigMap) -> ResourceContent {
    let data = map.data.unwrap_or_default().into_iter();
    ResourceContent::Data(data.map(|(key, value)| (key, value.into_bytes())).collect())
}

fn of_secret(secret: Secret) -> ResourceContent {
    let type_ = secret.type_.unwrap_or_default();
    if type_ != SECRET_TYPE {
        return ResourceContent::WrongType(type_);
    }
    let data = secret.data.unwrap_or_default().into_iter();
    ResourceContent::Data(data.map(|(key, value)| (key, value.0)).collect())
}

/// Returns what the set has applied to clusters, sorted by cluster.
async fn read_bindings(client: &Client, namespace: &str, version: &str, set: &str) -> Result<Vec<Binding>> {
    let all = api(client, namespace, version, "ClusterResourceSetBinding")
        .list(&ListParams::default())
        .await
        .with_context(|| format!("listing the ClusterResourceSetBindings of namespace {namespace}"))?;
    let mut bindings = Vec::new();
    for object in all.items {
        let cluster = object.name_any();
        let spec: BindingSpec = serde_json::from_value(object.data["spec"].clone())
            .with_context(|| format!("reading ClusterResourceSetBinding {namespace}/{cluster}"))?;
        let of_set = spec.bindings.into_iter().filter(|binding| binding.cluster_resource_set_name == set);
        bindings
            .extend(of_set.map(|binding| Binding { cluster: cluster.clone(), resources: binding.resources }));
    }
    Ok(bindings)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_of_other_types_are_not_read() {
        let secret = |type_: &str| Secret {
            type_: Some(type_.to_owned()),
            data: Some(BTreeMap::from([("a".to_owned(), ByteString(b"x".to_vec()))])),
            ..Secret::default()
        };
        assert!(
            matches!(of_secret(secret("Opaque")), ResourceContent::WrongType(type_) if type_ == "Opaque")
        );
        let ResourceContent::Data(data) = of_secret(secret(SECRET_TYPE)) else { panic!("not read") };
        assert_eq!(data, BTreeMap::from([("a".to_owned(), b"x".to_vec())]));
    }

    #[test]
    fn the_kinds_of_the_cluster_api_are_read() {
        let spec: ResourceSetSpec = serde_json::from_value(json!({
            "clusterSelector": {"matchLabels": {"cni": "x"}}, "strategy": "Reconcile",
            "resources": [{"kind": "Secret", "name": "cni"}],
        }))
        .unwrap();
        assert_eq!(spec.resources[0].to_string(), "Secret cni");
        let spec: BindingSpec = serde_json::from_value(json!({
            "clusterName": "alpha", "bindings": [{"clusterResourceSetName": "cni", "resources": [
                {"kind": "Secret", "name": "cni", "applied": true, "hash": "sha256:1", "lastAppliedTime": "2025-01-01T00:00:00Z"},
            ]}],
        }))
        .unwrap();
        assert_eq!(spec.bindings[0].resources[0].hash, "sha256:1");
        assert_eq!(spec.bindings[0].resources[0].reference.name, "cni");
    }
}
