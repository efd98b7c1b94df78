//! The objects of the sandbox's Clusters and of its ClusterClass.

use serde_json::{Value, json};

use super::{CLASS, NAMESPACE, WORKERS};
use crate::assets::KubernetesVersion;
use crate::provider::ClusterKey;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";

/// An annotation without a meaning. When Cluster API removes its last annotation from an object, it also removes those
/// that others have added in the meantime. With this one, the annotations of Cluster API are never the last.
const KEEP_ANNOTATIONS: &str = "sandbox.chandler.dev/made-here";

pub(super) fn topology_cluster(key: &ClusterKey, nodes: u32, labels: &Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": cluster_metadata(key, labels),
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

/// Returns a Cluster without a topology, after the objects to which it refers: Cluster API looks for a missing
/// one only twice a minute. `infrastructure` is the spec of its `SandboxCluster`.
pub fn plain_cluster(key: &ClusterKey, nodes: u32, labels: &Value, infrastructure: &Value) -> [Value; 3] {
    let metadata = json!({"name": key.name, "namespace": key.namespace});
    let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": key.name});
    [
        json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1alpha1"),
            "kind": "SandboxCluster",
            "metadata": metadata,
            "spec": infrastructure,
        }),
        json!({
            "apiVersion": format!("{CONTROL_PLANE}/v1alpha1"),
            "kind": "SandboxControlPlane",
            "metadata": metadata,
            "spec": {"version": KubernetesVersion::default().to_string(), "nodes": nodes},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": cluster_metadata(key, labels),
            "spec": {
                "clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/16"]}},
                "infrastructureRef": reference(INFRASTRUCTURE, "SandboxCluster"),
                "controlPlaneRef": reference(CONTROL_PLANE, "SandboxControlPlane"),
            },
        }),
    ]
}

fn cluster_metadata(key: &ClusterKey, labels: &Value) -> Value {
    let annotations = json!({KEEP_ANNOTATIONS: ""});
    json!({"name": key.name, "namespace": key.namespace, "labels": labels, "annotations": annotations})
}

pub(super) fn class() -> [Value; 5] {
    let [infrastructure, control_plane, bootstrap] =
        [INFRASTRUCTURE, CONTROL_PLANE, "bootstrap.cluster.x-k8s.io"]
            .map(|group| format!("{group}/v1alpha1"));
    let metadata = json!({"name": CLASS, "namespace": NAMESPACE});
    let reference = |api_version: &str, kind: &str| json!({"templateRef": {"apiVersion": api_version, "kind": kind, "name": CLASS}});
    [
        json!({
            "apiVersion": infrastructure,
            "kind": "SandboxClusterTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {}}},
        }),
        json!({
            "apiVersion": control_plane,
            "kind": "SandboxControlPlaneTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {"nodes": 1}}},
        }),
        json!({
            "apiVersion": infrastructure,
            "kind": "SandboxMachineTemplate",
            "metadata": metadata,
            "spec": {"template": {"spec": {}}},
        }),
        json!({
            "apiVersion": bootstrap,
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
                "infrastructure": reference(&infrastructure, "SandboxClusterTemplate"),
                "controlPlane": reference(&control_plane, "SandboxControlPlaneTemplate"),
                "workers": {"machineDeployments": [{
                    "class": WORKERS,
                    "infrastructure": reference(&infrastructure, "SandboxMachineTemplate"),
                    "bootstrap": reference(&bootstrap, "SandboxBootstrapTemplate"),
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
                            "apiVersion": control_plane,
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
