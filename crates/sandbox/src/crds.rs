//! Custom resource definitions: waits until the API server serves a kind, and defines Cluster where Cluster API does not
//! run.

use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use serde_json::{Value, json};

const SERVED_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The API server does not serve a kind.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not serve {kind} within {} s: {source}", SERVED_TIMEOUT.as_secs())]
pub struct NotServed {
    kind: String,
    source: Box<kube::Error>,
}

/// Waits until the API server serves a kind, which happens shortly after it has accepted the CRD.
pub async fn wait_served(client: &kube::Client, resource: &ApiResource) -> Result<(), NotServed> {
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let deadline = Instant::now() + SERVED_TIMEOUT;
    while let Err(error) = objects.list(&ListParams::default().limit(1)).await {
        if Instant::now() > deadline {
            return Err(NotServed { kind: resource.kind.clone(), source: Box::new(error) });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Returns a CRD for Cluster that accepts every field, for management clusters on which Cluster API does not run.
pub fn cluster_without_schema() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": {"kind": "Cluster", "plural": "clusters"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}
