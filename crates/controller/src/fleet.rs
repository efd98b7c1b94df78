//! Hands Clusters over to Fleet, if `--fleet` is set: applies the objects that `chandler_core::fleet` wants.
//!
//! The controllers start when the management cluster serves the kinds of Fleet. Nothing has a finalizer of Chandler.

mod caches;
mod class;
mod cluster;
mod config;
mod kinds;
mod mapping;
mod queues;
mod write;

use std::{sync::Arc, time::Duration};

use chandler_core::fleet::FleetState;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    runtime::reflector::{Store, store::Writer},
};

use self::caches::FleetCaches;
pub use self::queues::FleetQueues;
use crate::{
    clusters::{self, Clusters},
    metrics::Metrics,
    queue,
    references::References,
    routing::Router,
    tasks::Tasks,
    watch::{Change, FirstList, Scope, watch},
};

/// Delay before it is checked again whether Fleet is installed.
const NOT_INSTALLED_RETRY: Duration = Duration::from_secs(5);

/// What the controllers of the hand-over need of the manager.
pub struct FleetInputs {
    pub client: Client,
    pub scope: Scope,
    pub router: Router,
    pub metrics: Metrics,
    pub clusters: Clusters,
    pub references: References,
}

/// The context of the reconcilers.
struct FleetContext {
    client: Client,
    scope: Scope,
    caches: FleetCaches,
    references: References,
}

/// Waits until Fleet is installed, then watches and reconciles.
pub async fn run(inputs: FleetInputs) {
    let (configs, mut listed) = watch_configs(&inputs);
    if !listed.is_complete().await {
        return;
    }
    wait_until_installed(&inputs.client, &inputs.scope, &configs).await;
    let writers = Writers::new();
    let caches = FleetCaches {
        clusters: inputs.clusters.clone(),
        classes: writers.classes.as_reader(),
        configs,
        fleet_clusters: writers.fleet_clusters.as_reader(),
        groups: writers.groups.as_reader(),
        mappings: writers.mappings.as_reader(),
    };
    let queues = inputs.router.fleet().activate(caches.clone(), &inputs.metrics);
    for mut list in writers.watch(&inputs) {
        if !list.is_complete().await {
            return;
        }
    }
    inputs.router.fleet().on_config();
    let FleetInputs { client, scope, metrics, references, .. } = inputs;
    let stores = caches.clone();
    let context = Arc::new(FleetContext { client, scope, caches, references });
    let mut tasks = Tasks::default();
    tasks.spawn(queue::run(
        kinds::CLUSTER,
        clusters::resource(),
        stores.clusters.store(),
        queues.clusters,
        metrics.clone(),
        context.clone(),
        cluster::reconcile,
    ));
    tasks.spawn(queue::run(
        kinds::CLASS,
        kinds::classes(),
        stores.classes,
        queues.classes,
        metrics.clone(),
        context.clone(),
        class::reconcile,
    ));
    tasks.spawn(queue::run(
        kinds::MAPPING,
        kinds::mappings(),
        stores.mappings,
        queues.mappings,
        metrics.clone(),
        context.clone(),
        mapping::reconcile,
    ));
    tasks.spawn(queue::run(
        kinds::CONFIG,
        kinds::configs(),
        stores.configs,
        queues.configs,
        metrics,
        context,
        config::reconcile,
    ));
    tasks.join().await;
}

/// The stores of the kinds that are watched when Fleet is installed.
struct Writers {
    classes: Writer<DynamicObject>,
    fleet_clusters: Writer<DynamicObject>,
    groups: Writer<DynamicObject>,
    mappings: Writer<DynamicObject>,
}

impl Writers {
    fn new() -> Self {
        Self {
            classes: Writer::new(kinds::classes()),
            fleet_clusters: Writer::new(kinds::fleet_clusters()),
            groups: Writer::new(kinds::groups()),
            mappings: Writer::new(kinds::mappings()),
        }
    }

    fn watch(self, inputs: &FleetInputs) -> Vec<FirstList> {
        vec![
            start(inputs, &kinds::classes(), self.classes, Router::on_cluster_class),
            start(inputs, &kinds::fleet_clusters(), self.fleet_clusters, |router, change| {
                router.fleet().on_fleet_cluster(change.object());
            }),
            start(inputs, &kinds::groups(), self.groups, |router, change| {
                router.fleet().on_group(change.object());
            }),
            start(inputs, &kinds::mappings(), self.mappings, |router, change| {
                router.fleet().on_mapping(change.object());
            }),
        ]
    }
}

fn start(
    inputs: &FleetInputs,
    resource: &ApiResource,
    writer: Writer<DynamicObject>,
    on_change: fn(&Router, &Change<'_, DynamicObject>),
) -> FirstList {
    let router = inputs.router.clone();
    watch(inputs.client.clone(), &inputs.scope, resource, writer, move |change| on_change(&router, change))
}

fn watch_configs(inputs: &FleetInputs) -> (Store<DynamicObject>, FirstList) {
    let writer = Writer::new(kinds::configs());
    let (store, router) = (writer.as_reader(), inputs.router.clone());
    let everywhere = Scope { namespace: None, labels: None };
    let on_change = move |_: &Change<'_, DynamicObject>| router.fleet().on_config();
    (store, watch(inputs.client.clone(), &everywhere, &kinds::configs(), writer, on_change))
}

/// Waits until the management cluster serves the kinds of Fleet. Logs and reports what is missing, once.
async fn wait_until_installed(client: &Client, scope: &Scope, configs: &Store<DynamicObject>) {
    let mut reported = None;
    while let Some(missing) = missing_kind(client, scope).await {
        if reported.as_ref() != Some(&missing) {
            tracing::warn!(
                "waiting for Fleet: {missing}; install Fleet, or start the manager without --fleet"
            );
            reported = Some(missing.clone());
        }
        if let Some(config) = caches::config(configs) {
            let written = config::update_status(client, &config, &FleetState::NotInstalled(missing)).await;
            if let Err(error) = written {
                tracing::warn!("{error}");
            }
        }
        tokio::time::sleep(NOT_INSTALLED_RETRY).await;
    }
    tracing::info!("Fleet is installed; Clusters are handed over to it");
}

/// Returns which kind cannot be listed, and why. Returns `None` if all can be.
async fn missing_kind(client: &Client, scope: &Scope) -> Option<String> {
    for resource in [kinds::fleet_clusters(), kinds::groups(), kinds::mappings()] {
        let api: Api<DynamicObject> = match &scope.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let kind = format!("{} {}", resource.api_version, resource.kind);
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return Some(format!("{kind} is not served by the management cluster"));
            }
            Err(error) => return Some(format!("{kind} cannot be listed: {error}")),
        }
    }
    None
}
