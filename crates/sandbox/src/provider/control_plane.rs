//! Reconciling `SandboxControlPlane`: a plane at the Cluster's endpoint, its kubeconfig Secret, its status.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::condition::Finding;
use super::owner::{OwnerCluster, owner, owner_key};
use super::planes::{ClusterKey, Wanted};
use super::sandbox_cluster::{Endpoint, SandboxCluster};
use super::sandbox_control_plane::{
    ControlPlaneInitialization, SandboxControlPlane, SandboxControlPlaneStatus,
};
use super::{Context, Error};
use crate::apply::FIELD_MANAGER;
use crate::assets::KubernetesVersion;
use crate::plane::Plane;

const FINALIZER: &str = "sandbox.controlplane.cluster.x-k8s.io";
/// How often a plane is looked after.
const CHECK: Duration = Duration::from_secs(15);

pub(super) async fn reconcile(
    object: Arc<SandboxControlPlane>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<SandboxControlPlane> = Api::namespaced(context.client.clone(), &namespace);
    if object.meta().deletion_timestamp.is_some() {
        return remove(&api, &object, &context).await;
    }
    let Some(cluster) = owner(&context.client, object.as_ref()).await? else {
        return Ok(Action::await_change());
    };
    if cluster.paused {
        return Ok(Action::await_change());
    }
    if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        write_finalizers(&api, &object, true).await?;
    }
    match bring_up(&object, &cluster, &context).await? {
        Ok(plane) => {
            write_kubeconfig(&context.client, &object, &cluster.key, &plane).await?;
            context.reachable.insert(&cluster.key);
            let available = finding(true, "Available", String::new());
            write_status(&api, &object, &available).await?;
        }
        Err(waiting) => write_status(&api, &object, &waiting).await?,
    }
    Ok(Action::requeue(CHECK))
}

/// The running plane, or why there is none yet.
async fn bring_up(
    object: &SandboxControlPlane,
    cluster: &OwnerCluster,
    context: &Context,
) -> Result<Result<Arc<Plane>, Finding>, Error> {
    if let Err(unsupported) = object.spec.version.parse::<KubernetesVersion>() {
        return Ok(Err(finding(false, "VersionNotSupported", unsupported.to_string())));
    }
    let Some(endpoint) = endpoint(&context.client, cluster).await? else {
        let message = "waiting for the infrastructure to choose the control plane endpoint".to_owned();
        return Ok(Err(finding(false, "WaitingForInfrastructure", message)));
    };
    let wanted =
        Wanted { port: endpoint.port, nodes: object.spec.nodes, version: object.spec.version.clone() };
    match context.planes.ensure(&cluster.key, &wanted).await {
        Ok(plane) => Ok(Ok(plane)),
        Err(error) => {
            tracing::warn!(cluster = %cluster.key.name, %error, "a plane does not start");
            Ok(Err(finding(false, "StartFailed", error.to_string())))
        }
    }
}

/// On our own infrastructure the plane comes first: the Cluster API core connects once, as soon as the infrastructure
/// is provisioned, and tries again only after half a minute.
async fn endpoint(client: &kube::Client, cluster: &OwnerCluster) -> Result<Option<Endpoint>, Error> {
    let Some(name) = &cluster.sandbox_cluster else {
        return Ok(cluster.provisioned_endpoint());
    };
    let api: Api<SandboxCluster> = Api::namespaced(client.clone(), &cluster.key.namespace);
    let infrastructure = api.get_opt(name).await.map_err(Error::read("a SandboxCluster"))?;
    Ok(infrastructure.and_then(|infrastructure| infrastructure.spec.control_plane_endpoint))
}

async fn remove(
    api: &Api<SandboxControlPlane>,
    object: &SandboxControlPlane,
    context: &Context,
) -> Result<Action, Error> {
    if let Some(key) = owner_key(object) {
        context.reachable.remove(&key);
        context.planes.remove(&key).await?;
    }
    if object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        write_finalizers(api, object, false).await?;
    }
    Ok(Action::await_change())
}

async fn write_finalizers(
    api: &Api<SandboxControlPlane>,
    object: &SandboxControlPlane,
    ours: bool,
) -> Result<(), Error> {
    let mut finalizers: Vec<_> = object.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if ours {
        finalizers.push(FINALIZER.to_owned());
    }
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(Error::write("the finalizers of a SandboxControlPlane"))?;
    Ok(())
}

async fn write_kubeconfig(
    client: &kube::Client,
    object: &SandboxControlPlane,
    key: &ClusterKey,
    plane: &Plane,
) -> Result<(), Error> {
    let name = format!("{}-kubeconfig", key.name);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
    let current = secrets.get_opt(&name).await.map_err(Error::read("a kubeconfig Secret"))?;
    let written = current
        .and_then(|secret| secret.data)
        .is_some_and(|data| data.get("value").is_some_and(|value| value.0 == plane.kubeconfig().as_bytes()));
    if written {
        return Ok(());
    }
    let secret = kubeconfig_secret(object, key, &name, plane.kubeconfig());
    let apply = PatchParams::apply(FIELD_MANAGER).force();
    secrets
        .patch(&name, &apply, &Patch::Apply(&secret))
        .await
        .map_err(Error::write("a kubeconfig Secret"))?;
    Ok(())
}

fn kubeconfig_secret(object: &SandboxControlPlane, key: &ClusterKey, name: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": key.namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": key.name},
            "ownerReferences": [object.controller_owner_ref(&())],
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": {"value": kubeconfig},
    })
}

async fn write_status(
    api: &Api<SandboxControlPlane>,
    object: &SandboxControlPlane,
    available: &Finding,
) -> Result<(), Error> {
    let previous = object.status.clone().unwrap_or_default();
    let mut status = SandboxControlPlaneStatus {
        external_managed_control_plane: true,
        conditions: vec![available.condition(&previous.conditions, object.metadata.generation)],
        ..previous.clone()
    };
    if available.status {
        status.version = Some(object.spec.version.clone());
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: true });
    }
    if status == previous {
        return Ok(());
    }
    api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&json!({"status": status})))
        .await
        .map_err(Error::write("the status of a SandboxControlPlane"))?;
    Ok(())
}

fn finding(status: bool, reason: &'static str, message: String) -> Finding {
    Finding { type_: "Available", status, reason, message }
}
