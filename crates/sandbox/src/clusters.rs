//! Creates, deletes and waits for the Clusters of a sandbox.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::apply::{self, apply};
use crate::assets::KubernetesVersion;
use crate::provider::{ClusterKey, cluster_resource};

/// The namespace of the ClusterClass and of the Clusters that `chandler-sandbox up` creates.
pub const NAMESPACE: &str = "default";
/// The name of the sandbox's ClusterClass.
pub const CLASS: &str = "sandbox";

/// The `MachineDeployment` class of [`CLASS`].
pub const WORKERS: &str = "workers";

const POLL_INTERVAL: Duration = Duration::from_millis(200);

const NAMES: [&str; 26] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo",
    "lima", "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango", "uniform", "victor",
    "whiskey", "xray", "yankee", "zulu",
];

/// An error while creating, deleting or waiting for a Cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Apply(#[from] apply::Error),
    #[error("cannot read the Cluster {name}: {source}")]
    Read { name: String, source: Box<kube::Error> },
    #[error("cannot list the Clusters: {0}")]
    List(Box<kube::Error>),
    #[error("cannot delete the Cluster {name}: {source}")]
    Delete { name: String, source: Box<kube::Error> },
    #[error("the Cluster {name} was not Available within {} s: {message}", timeout.as_secs())]
    NotAvailable { name: String, timeout: Duration, message: String },
    #[error("the Cluster {name} was not deleted within {} s", timeout.as_secs())]
    NotDeleted { name: String, timeout: Duration },
}

/// Returns the name of the n-th cluster, counted from zero.
pub fn name(index: u32) -> String {
    usize::try_from(index)
        .ok()
        .and_then(|index| NAMES.get(index))
        .map_or_else(|| format!("cluster-{}", index + 1), |name| (*name).to_owned())
}

/// Applies the ClusterClass and its templates.
pub async fn apply_class(client: &kube::Client) -> Result<(), Error> {
    for object in class() {
        apply(client, &object).await?;
    }
    Ok(())
}

/// Applies a Cluster of the sandbox's ClusterClass.
pub async fn apply_cluster(
    client: &kube::Client,
    key: &ClusterKey,
    nodes: u32,
    labels: &Value,
) -> Result<(), Error> {
    Ok(apply(client, &topology_cluster(key, nodes, labels)).await?)
}

/// Waits until the Cluster has the condition `Available`.
pub async fn wait_available(client: &kube::Client, key: &ClusterKey, timeout: Duration) -> Result<(), Error> {
    let deadline = Instant::now() + timeout;
    loop {
        let cluster = get(client, key).await?;
        let message = cluster.map_or_else(
            || Some("it does not exist".to_owned()),
            |cluster| unavailable_message(&cluster.data),
        );
        let Some(message) = message else { return Ok(()) };
        if Instant::now() > deadline {
            let name = key.name.clone();
            return Err(Error::NotAvailable { name, timeout, message });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Deletes the Cluster and waits until it no longer exists.
pub async fn delete(client: &kube::Client, key: &ClusterKey, timeout: Duration) -> Result<(), Error> {
    let api = clusters(client, key);
    match api.delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        Err(source) => {
            return Err(Error::Delete { name: key.name.clone(), source: Box::new(source) });
        }
    }
    let deadline = Instant::now() + timeout;
    while get(client, key).await?.is_some() {
        if Instant::now() > deadline {
            let name = key.name.clone();
            return Err(Error::NotDeleted { name, timeout });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Returns the Clusters that are being deleted.
pub async fn deleting(client: &kube::Client) -> Result<Vec<ClusterKey>, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &cluster_resource());
    let all = api.list(&ListParams::default()).await.map_err(|source| Error::List(Box::new(source)))?;
    let deleted = all.into_iter().filter(|cluster| cluster.metadata.deletion_timestamp.is_some());
    Ok(deleted
        .map(|cluster| ClusterKey::new(&cluster.namespace().unwrap_or_default(), &cluster.name_any()))
        .collect())
}

/// Returns whether the Cluster exists, Available or not.
pub async fn exists(client: &kube::Client, key: &ClusterKey) -> Result<bool, Error> {
    Ok(get(client, key).await?.is_some())
}

fn clusters(client: &kube::Client, key: &ClusterKey) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &key.namespace, &cluster_resource())
}

async fn get(client: &kube::Client, key: &ClusterKey) -> Result<Option<DynamicObject>, Error> {
    clusters(client, key)
        .get_opt(&key.name)
        .await
        .map_err(|source| Error::Read { name: key.name.clone(), source: Box::new(source) })
}

/// Returns the message of a Cluster's condition `Available`, or `None` if the Cluster is Available.
pub fn unavailable_message(cluster: &Value) -> Option<String> {
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
    let available = conditions.into_iter().flatten().find(|condition| condition["type"] == "Available");
    match available {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => Some(condition["message"].as_str().unwrap_or_default().to_owned()),
        None => Some("the condition Available is not set yet".to_owned()),
    }
}

/// An annotation without a meaning. When Cluster API removes its last annotation from an object, it also removes those
/// that others have added in the meantime. With this one, the annotations of Cluster API are never the last.
const KEEP_ANNOTATIONS: &str = "sandbox.chandler.dev/made-here";

fn topology_cluster(key: &ClusterKey, nodes: u32, labels: &Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": labels, "annotations": {KEEP_ANNOTATIONS: ""}},
        "spec": {
            "clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/16"]}},
            "topology": {
                "classRef": {"name": CLASS, "namespace": NAMESPACE},
                "version": KubernetesVersion::default().to_string(),
                "variables": [{"name": "nodes", "value": nodes}],
            },
        },
    })
}

fn class() -> [Value; 5] {
    const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
    const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io/v1alpha1";
    const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io/v1alpha1";
    let metadata = json!({"name": CLASS, "namespace": NAMESPACE});
    let reference = |api_version: &str, kind: &str| json!({"templateRef": {"apiVersion": api_version, "kind": kind, "name": CLASS}});
    [
        json!({
            "apiVersion": INFRASTRUCTURE,
            "kind": "SandboxClusterTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {}}},
        }),
        json!({
            "apiVersion": CONTROL_PLANE,
            "kind": "SandboxControlPlaneTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {"nodes": 1}}},
        }),
        json!({
            "apiVersion": INFRASTRUCTURE,
            "kind": "SandboxMachineTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {}}},
        }),
        json!({
            "apiVersion": BOOTSTRAP,
            "kind": "SandboxBootstrapTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {}}},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "ClusterClass",
            "metadata": metadata,
            "spec": {
                // The webhook rejects other versions, for which the sandbox has no programs.
                "kubernetesVersions": KubernetesVersion::SUPPORTED.map(|version| version.to_string()),
                "infrastructure": reference(INFRASTRUCTURE, "SandboxClusterTemplate"),
                "controlPlane": reference(CONTROL_PLANE, "SandboxControlPlaneTemplate"),
                "workers": {"machineDeployments": [{
                    "class": WORKERS,
                    "infrastructure": reference(INFRASTRUCTURE, "SandboxMachineTemplate"),
                    "bootstrap": reference(BOOTSTRAP, "SandboxBootstrapTemplate"),
                }]},
                "variables": [{
                    "name": "nodes",
                    "required": false,
                    "schema": {"openAPIV3Schema": {"type": "integer", "minimum": 0, "maximum": 1000, "default": 1}},
                }],
                "patches": [{
                    "name": "nodes",
                    "definitions": [{
                        "selector": {
                            "apiVersion": CONTROL_PLANE,
                            "kind": "SandboxControlPlaneTemplate",
                            "matchResources": {"controlPlane": true},
                        },
                        "jsonPatches": [{
                            "op": "add",
                            "path": "/spec/template/spec/nodes",
                            "valueFrom": {"variable": "nodes"},
                        }],
                    }],
                }],
            },
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_generated_after_the_last_one_of_the_list() {
        assert_eq!(name(0), "alpha");
        assert_eq!(name(25), "zulu");
        assert_eq!(name(26), "cluster-27");
    }

    #[test]
    fn a_cluster_is_unavailable_until_its_condition_is_true() {
        assert!(unavailable_message(&json!({})).is_some());
        let with = |status: &str| json!({"status": {"conditions": [{"type": "Available", "status": status, "message": "m"}]}});
        assert_eq!(unavailable_message(&with("False")).as_deref(), Some("m"));
        assert_eq!(unavailable_message(&with("True")), None);
    }
}
