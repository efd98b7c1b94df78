//! Creates, deletes and waits for the Clusters of a sandbox.

mod manifests;

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Map, Value};

pub use self::manifests::plain_cluster;
use crate::apply::{self, apply};
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
    apply_all(client, manifests::class()).await
}

/// Applies a Cluster of the sandbox's ClusterClass.
pub async fn apply_cluster(
    client: &kube::Client,
    key: &ClusterKey,
    nodes: u32,
    labels: &Value,
) -> Result<(), Error> {
    Ok(apply(client, &manifests::topology_cluster(key, nodes, labels)).await?)
}

/// Applies a Cluster without a topology. Cluster API does less for it than for one of a ClusterClass.
pub async fn apply_plain_cluster(
    client: &kube::Client,
    key: &ClusterKey,
    nodes: u32,
    labels: &Value,
) -> Result<(), Error> {
    apply_all(client, plain_cluster(key, nodes, labels, &Value::Object(Map::new()))).await
}

async fn apply_all(client: &kube::Client, objects: impl IntoIterator<Item = Value>) -> Result<(), Error> {
    for object in objects {
        apply(client, &object).await?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
