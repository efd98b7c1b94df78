//! Nodes without machines. kwok makes them and their Pods Ready.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::Error;
use crate::assets::KubernetesVersion;

/// Creates missing Nodes and sets the kubelet version of existing ones.
pub(super) async fn ensure(
    client: &kube::Client,
    count: u32,
    version: KubernetesVersion,
) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 1..=count {
        let node = node(&name(number), None, &version.to_string())?;
        if !create(&nodes, &node).await? {
            set_version(&nodes, number, version).await?;
        }
    }
    Ok(())
}

/// Adds the Node of a Machine.
pub(super) async fn add(
    client: &kube::Client,
    name: &str,
    provider_id: &str,
    version: &str,
) -> Result<(), Error> {
    create(&Api::all(client.clone()), &node(name, Some(provider_id), version)?).await?;
    Ok(())
}

/// Creates a Node. Returns `false` if it exists.
async fn create(nodes: &Api<Node>, node: &Node) -> Result<bool, Error> {
    match nodes.create(&PostParams::default(), node).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(source) => Err(Error::WriteNode { source: Box::new(source) }),
    }
}

async fn set_version(nodes: &Api<Node>, number: u32, version: KubernetesVersion) -> Result<(), Error> {
    let patch = json!({"status": {"nodeInfo": {"kubeletVersion": version.to_string()}}});
    nodes
        .patch_status(&name(number), &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|source| Error::WriteNode { source: Box::new(source) })?;
    Ok(())
}

pub(super) async fn wait_ready(client: &kube::Client, timeout: Duration) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let deadline = Instant::now() + timeout;
    loop {
        let list = nodes.list(&ListParams::default()).await;
        if list.is_ok_and(|list| list.items.iter().all(is_ready)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::NodesNotReady);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

fn name(number: u32) -> String {
    format!("node-{number}")
}

fn node(name: &str, provider_id: Option<&str>, version: &str) -> Result<Node, Error> {
    let resources = json!({"cpu": "32", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
                "node-role.kubernetes.io/worker": "",
                "topology.kubernetes.io/zone": "sandbox",
            },
        },
        "spec": {"providerID": provider_id},
        "status": {"allocatable": resources, "capacity": resources, "nodeInfo": {"kubeletVersion": version}},
    }))
    .map_err(|source| Error::BuildNode { source })
}
