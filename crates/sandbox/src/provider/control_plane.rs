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
use super::programs::Programs;
use super::sandbox_cluster::{Endpoint, SandboxCluster};
use super::sandbox_control_plane::{
    ControlPlaneInitialization, SandboxControlPlane, SandboxControlPlaneStatus,
};
use super::version::{self, Decision};
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
    let cluster = owner(&context.client, object.as_ref()).await?;
    if cluster.as_ref().is_some_and(|cluster| cluster.paused) {
        return Ok(Action::await_change());
    }
    if object.meta().deletion_timestamp.is_some() {
        return remove(&api, &object, &context).await;
    }
    let Some(cluster) = cluster else {
        return Ok(Action::await_change());
    };
    if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        write_finalizers(&api, &object, true).await?;
    }
    let asked = object.spec.version.parse::<KubernetesVersion>();
    let decision = version::decide(context.planes.version(&cluster.key), asked);
    match bring_up(&api, &object, &cluster, &context, &decision).await? {
        Ok((plane, pending)) => {
            write_kubeconfig(&context.client, &object, &cluster.key, &plane).await?;
            context.reachable.insert(&cluster.key);
            let found = match decision.refusal {
                Some(refusal) => Found::running(&plane, "VersionRefused", refusal),
                None => Found::running(&plane, "Available", String::new()),
            };
            write_status(&api, &object, &Found { rolling_out: pending, ..found }).await?;
        }
        Err(found) => write_status(&api, &object, &found).await?,
    }
    Ok(Action::requeue(CHECK))
}

/// What a reconcile found out.
#[derive(Debug, Default)]
struct Found {
    /// The version that runs, if one does.
    version: Option<KubernetesVersion>,
    available: bool,
    reason: &'static str,
    message: String,
    /// What is going on, while the version that was asked for does not run yet.
    rolling_out: Option<String>,
}

impl Found {
    fn running(plane: &Plane, reason: &'static str, message: String) -> Self {
        Self { version: Some(plane.version()), available: true, reason, message, rolling_out: None }
    }

    fn waiting(reason: &'static str, message: String) -> Self {
        Self { reason, message, ..Self::default() }
    }
}

/// The running plane and what it still waits for, or why there is none yet.
async fn bring_up(
    api: &Api<SandboxControlPlane>,
    object: &SandboxControlPlane,
    cluster: &OwnerCluster,
    context: &Arc<Context>,
    decision: &Decision,
) -> Result<Result<(Arc<Plane>, Option<String>), Found>, Error> {
    let Some(version) = decision.run else {
        let refusal = decision.refusal.clone().unwrap_or_default();
        return Ok(Err(Found::waiting("VersionRefused", refusal)));
    };
    let Some(endpoint) = endpoint(&context.client, cluster).await? else {
        let message = "waiting for the infrastructure to choose the control plane endpoint".to_owned();
        return Ok(Err(Found::waiting("WaitingForInfrastructure", message)));
    };
    let assets = match programs(context, version).await? {
        Programs::AtHand(assets) => assets,
        Programs::Awaited { failure } => {
            let pending = awaited(version, failure);
            return Ok(match context.planes.get(&cluster.key).await {
                Some(plane) => Ok((plane, Some(pending))),
                None => Err(Found::waiting("BuildingPrograms", pending)),
            });
        }
    };
    let running = context.planes.get(&cluster.key).await.map(|plane| plane.version());
    if let Some(from) = running.filter(|running| *running != version) {
        let message = format!("upgrading from {from} to {version}");
        let rolling_out = Some(message.clone());
        write_status(api, object, &Found { rolling_out, ..Found::waiting("Upgrading", message) }).await?;
    }
    let wanted = Wanted { port: endpoint.port, nodes: object.spec.nodes, assets };
    match context.planes.ensure(&cluster.key, wanted).await {
        Ok(plane) => Ok(Ok((plane, None))),
        Err(error) => {
            tracing::warn!(cluster = %cluster.key.name, %error, "a plane does not start");
            Ok(Err(Found::waiting("StartFailed", error.to_string())))
        }
    }
}

/// Has everything looked at again when programs that are missing have been built.
async fn programs(context: &Arc<Context>, version: KubernetesVersion) -> Result<Programs, Error> {
    let built = {
        let context = context.clone();
        move || context.reachable.announce()
    };
    Ok(context.planes.versions().get(version, built).await?)
}

fn awaited(version: KubernetesVersion, failure: Option<String>) -> String {
    failure.map_or_else(
        || {
            format!(
                "building the programs of Kubernetes {version}, which takes some minutes; `chandler-sandbox prepare` does so beforehand"
            )
        },
        |failure| format!("building the programs of Kubernetes {version} again: {failure}"),
    )
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
    found: &Found,
) -> Result<(), Error> {
    let current = api.get_opt(&object.name_any()).await.map_err(Error::read("a SandboxControlPlane"))?;
    let Some(previous) = current.map(|current| current.status.unwrap_or_default()) else { return Ok(()) };
    let status = status(&previous, object.metadata.generation, found);
    if status == previous {
        return Ok(());
    }
    api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(&json!({"status": status})))
        .await
        .map_err(Error::write("the status of a SandboxControlPlane"))?;
    Ok(())
}

fn status(
    previous: &SandboxControlPlaneStatus,
    generation: Option<i64>,
    found: &Found,
) -> SandboxControlPlaneStatus {
    let available = Finding {
        type_: "Available",
        status: found.available,
        reason: found.reason,
        message: found.message.clone(),
    };
    let rolling_out = Finding {
        type_: "RollingOut",
        status: found.rolling_out.is_some(),
        reason: if found.rolling_out.is_some() { "RollingOut" } else { "NotRollingOut" },
        message: found.rolling_out.clone().unwrap_or_default(),
    };
    let mut status = SandboxControlPlaneStatus {
        external_managed_control_plane: true,
        observed_generation: generation,
        conditions: [available, rolling_out]
            .map(|finding| finding.condition(&previous.conditions, generation))
            .to_vec(),
        ..previous.clone()
    };
    if let Some(version) = found.version {
        status.version = Some(version.to_string());
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: true });
    }
    status
}
