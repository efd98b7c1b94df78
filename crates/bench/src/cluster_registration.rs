//! The objects that Cluster API would create for a cluster: the Cluster and the Secret with its kubeconfig.

use anyhow::Result;
use chandler_api::capi::CLUSTER_NAME_LABEL;
use chandler_sandbox::{apply::apply, provider::cluster_resource};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::environment::NAMESPACE;

/// The label whose value the benchmark changes, and its first value.
pub const TIER_LABEL: &str = "tier";
const FIRST_TIER: &str = "initial";

/// A cluster that already runs.
#[derive(Clone, Copy, Debug)]
pub struct ClusterRegistration<'a> {
    pub name: &'a str,
    pub kubeconfig: &'a str,
    pub port: u16,
}

impl ClusterRegistration<'_> {
    /// Creates the objects on the management cluster.
    pub async fn apply(&self, client: &Client) -> Result<()> {
        let Self { name, kubeconfig, port } = *self;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {
                "name": format!("{name}-kubeconfig"), "namespace": NAMESPACE,
                "labels": {CLUSTER_NAME_LABEL: name},
            },
            "stringData": {"value": kubeconfig},
        });
        apply(client, &secret).await?;
        let labels = json!({"fleet": "bench", TIER_LABEL: FIRST_TIER});
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": port}},
        });
        apply(client, &cluster).await?;
        let status = json!({"status": {
            "phase": "Provisioned",
            "initialization": {"controlPlaneInitialized": true, "infrastructureProvisioned": true},
        }});
        clusters(client).patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }
}

/// Returns the API of the Clusters.
pub fn clusters(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &cluster_resource())
}
