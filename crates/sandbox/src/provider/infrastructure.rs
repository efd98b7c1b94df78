//! Reconciles `SandboxCluster`: chooses a port for the API server and reports the cluster as provisioned.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::condition::ObservedCondition;
use super::owner::owner;
use super::sandbox_cluster::{ClusterInitialization, SandboxCluster, SandboxClusterStatus};
use super::{Context, Error};
use crate::plane::free_port;

/// The port of an API server that has a network of its own.
const SITE_PORT: u16 = 6443;

pub(super) async fn reconcile(object: Arc<SandboxCluster>, context: Arc<Context>) -> Result<Action, Error> {
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let Some(cluster) = owner(&context.client, object.as_ref()).await? else {
        return Ok(Action::await_change());
    };
    if cluster.paused {
        return Ok(Action::await_change());
    }
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<SandboxCluster> = Api::namespaced(context.client.clone(), &namespace);
    if object.spec.control_plane_endpoint.is_none() {
        // Concurrent reconciles could choose the same port.
        let _guard = context.port_lock.lock().await;
        let network = object.spec.plane_network();
        let port = match object.spec.network {
            Some(_) => SITE_PORT,
            None => match context.planes.reserve(&network).await {
                Some(port) => port,
                None => unclaimed_port(&context.client).await?,
            },
        };
        let patch = json!({
            "metadata": {"resourceVersion": object.resource_version()},
            "spec": {"controlPlaneEndpoint": {"host": network.public_host(), "port": port}},
        });
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(Error::write("the endpoint of a SandboxCluster"))?;
        context.reachable.reconcile_all();
    }
    write_status(&api, &object, context.reachable.contains(&cluster.key)).await?;
    Ok(Action::requeue(Duration::from_mins(10)))
}

async fn unclaimed_port(client: &kube::Client) -> Result<u16, Error> {
    let all: Api<SandboxCluster> = Api::all(client.clone());
    let list = all.list(&ListParams::default()).await.map_err(Error::read("the SandboxClusters"))?;
    let claimed: BTreeSet<u16> =
        list.iter().filter_map(|cluster| Some(cluster.spec.control_plane_endpoint.as_ref()?.port)).collect();
    loop {
        let port = free_port()?;
        if !claimed.contains(&port) {
            return Ok(port);
        }
    }
}

async fn write_status(
    api: &Api<SandboxCluster>,
    object: &SandboxCluster,
    reachable: bool,
) -> Result<(), Error> {
    let previous = object.status.clone().unwrap_or_default();
    // The contract requires that `provisioned` never becomes false again.
    let was_provisioned = previous.initialization.as_ref().is_some_and(|previous| previous.provisioned);
    let provisioned = reachable || was_provisioned;
    let status = SandboxClusterStatus {
        initialization: provisioned.then_some(ClusterInitialization { provisioned }),
        conditions: vec![ready(provisioned).to_condition(&previous.conditions, object.metadata.generation)],
    };
    if status == previous {
        return Ok(());
    }
    api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&json!({"status": status})))
        .await
        .map_err(Error::write("the status of a SandboxCluster"))?;
    Ok(())
}

fn ready(provisioned: bool) -> ObservedCondition {
    let (reason, message) = if provisioned {
        ("Provisioned", "")
    } else {
        ("WaitingForControlPlane", "waiting for the control plane to respond at the endpoint")
    };
    ObservedCondition { type_: "Ready", status: provisioned, reason, message: message.to_owned() }
}
