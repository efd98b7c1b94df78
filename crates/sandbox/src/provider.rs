//! A Cluster API provider for infrastructure, control plane and bootstrap, whose control planes are local processes.
//! Implements the contract v1beta2.

mod bootstrap;
mod condition;
mod control_plane;
mod infrastructure;
mod kubeconfig_secret;
mod machine;
mod metadata;
mod owner;
mod planes;
mod pool;
mod programs;
mod reachable;
pub mod sandbox_bootstrap;
pub mod sandbox_bootstrap_template;
pub mod sandbox_cluster;
pub mod sandbox_cluster_template;
pub mod sandbox_control_plane;
pub mod sandbox_control_plane_template;
pub mod sandbox_machine;
pub mod sandbox_machine_template;
mod version;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{CustomResourceExt, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::condition::Condition;
pub use self::metadata::TemplateMetadata;
use self::owner::OwnerCluster;
pub use self::owner::cluster_resource;
pub use self::planes::{ClusterKey, Planes};
use self::reachable::ReachableClusters;
use self::sandbox_bootstrap::SandboxBootstrap;
use self::sandbox_bootstrap_template::SandboxBootstrapTemplate;
use self::sandbox_cluster::SandboxCluster;
use self::sandbox_cluster_template::SandboxClusterTemplate;
use self::sandbox_control_plane::SandboxControlPlane;
use self::sandbox_control_plane_template::SandboxControlPlaneTemplate;
use self::sandbox_machine::SandboxMachine;
use self::sandbox_machine_template::SandboxMachineTemplate;
use crate::{assets, plane};

const RETRY_DELAY: Duration = Duration::from_secs(2);

/// An error during a reconcile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {what}: {source}")]
    Read { what: &'static str, source: Box<kube::Error> },
    #[error("cannot write {what}: {source}")]
    Write { what: &'static str, source: Box<kube::Error> },
    #[error(transparent)]
    Plane(#[from] plane::Error),
    #[error(transparent)]
    Port(#[from] plane::NoFreePort),
    #[error(transparent)]
    Programs(#[from] assets::Error),
}

impl Error {
    fn read(what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Read { what, source: Box::new(source) }
    }

    fn write(what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Write { what, source: Box::new(source) }
    }
}

/// State that the reconcilers share.
struct Context {
    client: kube::Client,
    planes: Arc<Planes>,
    reachable: ReachableClusters,
    port_lock: tokio::sync::Mutex<()>,
}

/// The running controllers of the provider.
pub struct Provider {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Returns the CRDs of the provider.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        SandboxCluster::crd(),
        SandboxClusterTemplate::crd(),
        SandboxControlPlane::crd(),
        SandboxControlPlaneTemplate::crd(),
        SandboxMachine::crd(),
        SandboxMachineTemplate::crd(),
        SandboxBootstrap::crd(),
        SandboxBootstrapTemplate::crd(),
    ]
}

impl Provider {
    /// Starts the controllers on the current Tokio runtime.
    pub fn start(client: &kube::Client, planes: Arc<Planes>) -> Self {
        let stop = CancellationToken::new();
        let context = Arc::new(Context {
            client: client.clone(),
            planes,
            reachable: ReachableClusters::default(),
            port_lock: tokio::sync::Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let infrastructure = Some("infrastructureRef");
        tasks.spawn(run(context.clone(), stop.clone(), infrastructure::reconcile, infrastructure));
        tasks.spawn(run(context.clone(), stop.clone(), control_plane::reconcile, Some("controlPlaneRef")));
        tasks.spawn(run(context.clone(), stop.clone(), machine::reconcile, None));
        tasks.spawn(run(context, stop.clone(), bootstrap::reconcile, None));
        Self { stop, tasks }
    }

    /// Stops the controllers and waits until running reconciles have finished.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Runs the controller of a kind. `reference` is the field of a Cluster's spec that refers to objects of the kind.
async fn run<K, Reconcile, Reconciled>(
    context: Arc<Context>,
    stop: CancellationToken,
    reconcile: Reconcile,
    reference: Option<&'static str>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    Reconcile: FnMut(Arc<K>, Arc<Context>) -> Reconciled,
    Reconciled: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let objects: Api<K> = Api::all(context.client.clone());
    let resource = cluster_resource();
    let clusters: Api<DynamicObject> = Api::all_with(context.client.clone(), &resource);
    let changes = ClusterChanges::default();
    Controller::new(objects, watcher::Config::default())
        .watches_with(clusters, resource, watcher::Config::default(), move |cluster| {
            referenced(&cluster, reference?).filter(|_| changes.contains(&cluster))
        })
        .reconcile_all_on(context.reachable.changes())
        .graceful_shutdown_on(async move { stop.cancelled().await })
        .run(reconcile, retry, context)
        .for_each(|_| futures::future::ready(()))
        .await;
}

/// The Clusters as they were seen last. Cluster API writes their status dozens of times, which the provider does
/// not read.
#[derive(Default)]
struct ClusterChanges(Mutex<HashMap<String, OwnerCluster>>);

impl ClusterChanges {
    /// Returns whether what the provider reads of a Cluster has changed.
    fn contains(&self, cluster: &DynamicObject) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = cluster.uid().unwrap_or_default();
        if cluster.metadata.deletion_timestamp.is_some() {
            seen.remove(&uid);
            return true;
        }
        let current = OwnerCluster::of(cluster);
        seen.insert(uid, current.clone()) != Some(current)
    }
}

fn referenced<K>(cluster: &DynamicObject, reference: &str) -> Option<ObjectRef<K>>
where
    K: Resource<DynamicType = ()>,
{
    let reference = cluster.data.get("spec")?.get(reference)?;
    let is_of_kind = reference.get("kind")?.as_str()? == K::kind(&());
    let name = reference.get("name")?.as_str()?;
    is_of_kind.then(|| ObjectRef::new(name).within(&cluster.namespace().unwrap_or_default()))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that Controller::run expects")]
fn retry<K: Resource>(object: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    tracing::warn!(object = %object.name_any(), %error, "reconcile failed; it will be retried");
    Action::requeue(RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_provider_reads_counts_as_a_change() {
        let changes = ClusterChanges::default();
        let seen = |paused: bool, message: &str, deleted: Option<&str>| {
            let cluster = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "alpha", "namespace": "default", "uid": "1", "deletionTimestamp": deleted},
                "spec": {"paused": paused}, "status": {"conditions": [{"message": message}]},
            });
            changes.contains(&serde_json::from_value(cluster).unwrap())
        };
        assert!(seen(false, "", None));
        assert!(!seen(false, "waiting", None));
        assert!(seen(true, "waiting", None));
        assert!(seen(false, "waiting", None));
        let deleted = Some("2026-01-01T00:00:00Z");
        assert!(seen(false, "deleting", deleted) && seen(false, "deleted", deleted));
    }
}
