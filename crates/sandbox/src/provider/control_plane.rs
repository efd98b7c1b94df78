//! Reconciles `SandboxControlPlane`: runs a control plane at the Cluster's endpoint and writes its kubeconfig Secret.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::condition::ObservedCondition;
use super::kubeconfig_secret;
use super::owner::{OwnerCluster, owner, owner_key};
use super::planes::DesiredPlane;
use super::programs::Programs;
use super::sandbox_cluster::SandboxCluster;
use super::sandbox_control_plane::{
    ControlPlaneInitialization, SandboxControlPlane, SandboxControlPlaneStatus,
};
use super::version::{self, Decision};
use super::{Context, Error};
use crate::assets::KubernetesVersion;
use crate::plane::{Network, Plane};

const FINALIZER: &str = "sandbox.controlplane.cluster.x-k8s.io";
/// How often the processes of a control plane are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

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
        return reconcile_delete(&api, &object, &context).await;
    }
    let Some(cluster) = cluster else {
        return Ok(Action::await_change());
    };
    if !object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        write_finalizers(&api, &object, true).await?;
    }
    let requested = object.spec.version.parse::<KubernetesVersion>();
    let decision = version::decide(context.planes.version(&cluster.key), requested);
    match ensure_running(&api, &object, &cluster, &context, &decision).await? {
        Ok((plane, rolling_out)) => {
            kubeconfig_secret::reconcile(&context.client, &object, &cluster.key, &plane).await?;
            context.reachable.insert(&cluster.key);
            let observed = match decision.rejection {
                Some(rejection) => Observed::running(&plane, "VersionRefused", rejection),
                None => Observed::running(&plane, "Available", String::new()),
            };
            write_status(&api, &object, &Observed { rolling_out, ..observed }).await?;
        }
        Err(observed) => write_status(&api, &object, &observed).await?,
    }
    Ok(Action::requeue(CHECK_INTERVAL))
}

/// The observed state of a control plane, for the status.
#[derive(Debug, Default)]
struct Observed {
    /// The running version. `None` if the control plane does not run.
    version: Option<KubernetesVersion>,
    available: bool,
    reason: &'static str,
    message: String,
    /// The message of the condition `RollingOut`, while the requested version does not run yet.
    rolling_out: Option<String>,
}

impl Observed {
    fn running(plane: &Plane, reason: &'static str, message: String) -> Self {
        Self { version: Some(plane.version()), available: true, reason, message, rolling_out: None }
    }

    fn waiting(reason: &'static str, message: String) -> Self {
        Self { reason, message, ..Self::default() }
    }
}

/// Starts or upgrades the control plane. Returns the running control plane and the message of its rollout, if any, or
/// the state to report if it does not run.
async fn ensure_running(
    api: &Api<SandboxControlPlane>,
    object: &SandboxControlPlane,
    cluster: &OwnerCluster,
    context: &Arc<Context>,
    decision: &Decision,
) -> Result<Result<(Arc<Plane>, Option<String>), Observed>, Error> {
    let Some(version) = decision.run else {
        let rejection = decision.rejection.clone().unwrap_or_default();
        return Ok(Err(Observed::waiting("VersionRefused", rejection)));
    };
    let Some((port, network)) = endpoint(&context.client, cluster).await? else {
        let message = "waiting for the infrastructure to choose the control plane endpoint".to_owned();
        return Ok(Err(Observed::waiting("WaitingForInfrastructure", message)));
    };
    let assets = match programs(context, version).await? {
        Programs::Available(assets) => assets,
        Programs::Building { last_error } => {
            let message = building_message(version, last_error);
            return Ok(match context.planes.get(&cluster.key).await {
                Some(plane) => Ok((plane, Some(message))),
                None => Err(Observed::waiting("BuildingPrograms", message)),
            });
        }
    };
    let running = context.planes.get(&cluster.key).await.map(|plane| plane.version());
    if let Some(from) = running.filter(|running| *running != version) {
        let message = format!("upgrading from {from} to {version}");
        let rolling_out = Some(message.clone());
        write_status(api, object, &Observed { rolling_out, ..Observed::waiting("Upgrading", message) })
            .await?;
    }
    let desired = DesiredPlane { port, network, nodes: object.spec.nodes, assets };
    match context.planes.ensure(&cluster.key, desired).await {
        Ok(plane) => Ok(Ok((plane, None))),
        Err(error) => {
            tracing::warn!(cluster = %cluster.key.name, %error, "a control plane did not start");
            Ok(Err(Observed::waiting("StartFailed", error.to_string())))
        }
    }
}

/// Returns the programs of a version. If they have to be built, all objects are reconciled afterwards.
async fn programs(context: &Arc<Context>, version: KubernetesVersion) -> Result<Programs, Error> {
    let on_built = {
        let context = context.clone();
        move || context.reachable.reconcile_all()
    };
    Ok(context.planes.versions().get(version, on_built).await?)
}

fn building_message(version: KubernetesVersion, last_error: Option<String>) -> String {
    last_error.map_or_else(
        || {
            format!(
                "building the programs of Kubernetes {version}, which takes some minutes; `chandler-sandbox prepare` builds them in advance"
            )
        },
        |error| format!("building the programs of Kubernetes {version} again after an error: {error}"),
    )
}

/// Returns the port and the network of the control plane. With a `SandboxCluster`, does not wait until the infrastructure is
/// provisioned: Cluster API connects as soon as it is, and if that fails, retries only after half a minute.
async fn endpoint(client: &kube::Client, cluster: &OwnerCluster) -> Result<Option<(u16, Network)>, Error> {
    let Some(name) = &cluster.sandbox_cluster else {
        return Ok(cluster.provisioned_endpoint().map(|endpoint| (endpoint.port, Network::default())));
    };
    let api: Api<SandboxCluster> = Api::namespaced(client.clone(), &cluster.key.namespace);
    let infrastructure = api.get_opt(name).await.map_err(Error::read("a SandboxCluster"))?;
    Ok(infrastructure.and_then(|infrastructure| {
        let network = infrastructure.spec.plane_network();
        Some((infrastructure.spec.control_plane_endpoint?.port, network))
    }))
}

async fn reconcile_delete(
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
    present: bool,
) -> Result<(), Error> {
    let mut finalizers: Vec<_> = object.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if present {
        finalizers.push(FINALIZER.to_owned());
    }
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(Error::write("the finalizers of a SandboxControlPlane"))?;
    Ok(())
}

async fn write_status(
    api: &Api<SandboxControlPlane>,
    object: &SandboxControlPlane,
    observed: &Observed,
) -> Result<(), Error> {
    let current = api.get_opt(&object.name_any()).await.map_err(Error::read("a SandboxControlPlane"))?;
    let Some(previous) = current.map(|current| current.status.unwrap_or_default()) else { return Ok(()) };
    let status = status(&previous, object.metadata.generation, observed);
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
    observed: &Observed,
) -> SandboxControlPlaneStatus {
    let available = ObservedCondition {
        type_: "Available",
        status: observed.available,
        reason: observed.reason,
        message: observed.message.clone(),
    };
    let rolling_out = ObservedCondition {
        type_: "RollingOut",
        status: observed.rolling_out.is_some(),
        reason: if observed.rolling_out.is_some() { "RollingOut" } else { "NotRollingOut" },
        message: observed.rolling_out.clone().unwrap_or_default(),
    };
    let mut status = SandboxControlPlaneStatus {
        external_managed_control_plane: true,
        observed_generation: generation,
        conditions: [available, rolling_out]
            .map(|condition| condition.to_condition(&previous.conditions, generation))
            .to_vec(),
        ..previous.clone()
    };
    if let Some(version) = observed.version {
        status.version = Some(version.to_string());
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: true });
    }
    status
}
