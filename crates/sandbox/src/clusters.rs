//! The Clusters of a sandbox: their class, their names, and waiting for them.

use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

use crate::apply::{self, apply};
use crate::assets::KubernetesVersion;
use crate::provider::{ClusterKey, cluster_resource};

/// The namespace of the class and of the clusters `up` makes.
pub const NAMESPACE: &str = "default";
/// The class every cluster of the sandbox can be made from.
pub const CLASS: &str = "sandbox";

/// The class of its workers.
pub const WORKERS: &str = "workers";

const LOOK: Duration = Duration::from_millis(200);

const NAMES: [&str; 26] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo",
    "lima", "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango", "uniform", "victor",
    "whiskey", "xray", "yankee", "zulu",
];

/// Why a Cluster is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Apply(#[from] apply::Error),
    #[error("cannot read the Cluster {name}: {source}")]
    Read { name: String, source: Box<kube::Error> },
    #[error("cannot delete the Cluster {name}: {source}")]
    Delete { name: String, source: Box<kube::Error> },
    #[error("the Cluster {name} was not Available within {} s: {why}", limit.as_secs())]
    NotAvailable { name: String, limit: Duration, why: String },
    #[error("the Cluster {name} was not gone within {} s", limit.as_secs())]
    NotGone { name: String, limit: Duration },
}

/// The name of the n-th cluster, counted from zero.
pub fn name(index: u32) -> String {
    usize::try_from(index)
        .ok()
        .and_then(|index| NAMES.get(index))
        .map_or_else(|| format!("cluster-{}", index + 1), |name| (*name).to_owned())
}

/// Applies the class with its templates.
pub async fn apply_class(client: &kube::Client) -> Result<(), Error> {
    for object in class() {
        apply(client, &object).await?;
    }
    Ok(())
}

/// Applies a Cluster of the sandbox's class with so many Nodes.
pub async fn apply_cluster(
    client: &kube::Client,
    key: &ClusterKey,
    nodes: u32,
    labels: &Value,
) -> Result<(), Error> {
    Ok(apply(client, &topology_cluster(key, nodes, labels)).await?)
}

/// Returns when the Cluster API core says `Available`.
pub async fn wait_available(client: &kube::Client, key: &ClusterKey, limit: Duration) -> Result<(), Error> {
    let deadline = Instant::now() + limit;
    loop {
        let cluster = get(client, key).await?;
        let why = cluster
            .map_or_else(|| Some("it does not exist".to_owned()), |cluster| unavailable(&cluster.data));
        let Some(why) = why else { return Ok(()) };
        if Instant::now() > deadline {
            let name = key.name.clone();
            return Err(Error::NotAvailable { name, limit, why });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Deletes the Cluster and returns when it is gone.
pub async fn delete(client: &kube::Client, key: &ClusterKey, limit: Duration) -> Result<(), Error> {
    let api = clusters(client, key);
    match api.delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        Err(source) => {
            return Err(Error::Delete { name: key.name.clone(), source: Box::new(source) });
        }
    }
    let deadline = Instant::now() + limit;
    while get(client, key).await?.is_some() {
        if Instant::now() > deadline {
            let name = key.name.clone();
            return Err(Error::NotGone { name, limit });
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Whether there is such a Cluster, Available or not.
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

/// Why a Cluster is not Available; `None` if it is.
pub fn unavailable(cluster: &Value) -> Option<String> {
    let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
    let available = conditions.into_iter().flatten().find(|condition| condition["type"] == "Available");
    match available {
        Some(condition) if condition["status"] == "True" => None,
        Some(condition) => Some(condition["message"].as_str().unwrap_or_default().to_owned()),
        None => Some("nothing is reported yet".to_owned()),
    }
}

/// Cluster API takes the last annotation off an object together with all that others have put there meanwhile. With this
/// one, none of its own is the last.
const STAYS: &str = "sandbox.chandler.dev/made-here";

fn topology_cluster(key: &ClusterKey, nodes: u32, labels: &Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": labels, "annotations": {STAYS: ""}},
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
                // What there are no programs for is refused when it is asked for, not afterwards.
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
    fn names_never_run_out() {
        assert_eq!(name(0), "alpha");
        assert_eq!(name(25), "zulu");
        assert_eq!(name(26), "cluster-27");
    }

    #[test]
    fn a_cluster_is_unavailable_until_it_says_otherwise() {
        assert!(unavailable(&json!({})).is_some());
        let with = |status: &str| json!({"status": {"conditions": [{"type": "Available", "status": status, "message": "m"}]}});
        assert_eq!(unavailable(&with("False")).as_deref(), Some("m"));
        assert_eq!(unavailable(&with("True")), None);
    }
}
