//! Reconciles placements whose caches differ from the API server.

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_core::placement::release_object;
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::{reflector::store::Writer, watcher::Event};
use serde_json::{Value, json};

use super::*;
use crate::{
    caches::ReleaseCache,
    clusters::{
        Clusters,
        tests::{PATH as CLUSTER, cluster},
    },
    events::Events,
    fake_api_server::FakeApiServer,
    metrics::Metrics,
    placement::{Compose, Composed, PlacementQueue, RolloutTargets, StatusThrottle},
    policies::Policies,
    queue::Trigger,
    routing::{Queues, Router, SharedIndex},
    values::ValuesSecrets,
    watch,
};

const PLACEMENT: &str = "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/fleet/helmchartproxies/hello";
const RELEASES: &str = "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/fleet/helmreleaseproxies";
const NONE: [&str; 0] = [];

/// Returns placement `fleet/hello`, which selects all Clusters of its namespace.
fn placement() -> HelmChartProxy {
    serde_json::from_value(json!({
        "metadata": {
            "name": "hello", "namespace": "fleet", "uid": "1", "generation": 1,
            "finalizers": [HelmChartProxy::FINALIZER],
        },
        "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
    }))
    .unwrap()
}

fn blue() -> ClusterKey {
    ClusterKey::new("fleet", "blue")
}

/// Returns the release object of the placement on Cluster `fleet/blue`.
fn release() -> HelmReleaseProxy {
    let mut release = release_object(&placement(), &blue(), String::new(), None);
    release.metadata.uid = Some("2".to_owned());
    release
}

/// Returns the path of the placement's release object on a cluster.
fn release_on(cluster: &str) -> String {
    format!("{RELEASES}/{}", naming::release_object("hello", cluster))
}

/// Composes release objects with the values of the placement.
struct Composer;

impl Compose<HelmChartProxy> for Composer {
    fn compose<'a>(
        &'a self,
        placement: &'a HelmChartProxy,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<HelmReleaseProxy>>,
        _: &'a ComposeMode<'a, HelmReleaseProxy>,
    ) -> BoxFuture<'a, Result<Composed<HelmReleaseProxy>, ReconcileError>> {
        let values = &placement.spec.values_template;
        let compose = |key: &ClusterKey| {
            let existing = existing.get(key).map(AsRef::as_ref);
            ComposedRelease::from(release_object(placement, key, values.clone(), existing))
        };
        let composed: Composed<HelmReleaseProxy> =
            clusters.keys().map(|key| (key.clone(), Ok(compose(key)))).collect();
        async { Ok(composed) }.boxed()
    }

    fn status(
        &self,
        _: &HelmChartProxy,
        _: &ClusterMap<Arc<DynamicObject>>,
        _: &ClusterMap<Arc<HelmReleaseProxy>>,
        status: PlacementStatus,
    ) -> PlacementStatus {
        status
    }

    fn forget(&self, _: &HelmChartProxy) {}

    fn requeue_after(&self, _: &HelmChartProxy) -> Option<Duration> {
        None
    }

    fn is_needed(&self, _: &HelmReleaseProxy) -> Option<String> {
        None
    }
}

/// A placement, the API server, and caches that only the test fills.
struct World {
    server: FakeApiServer,
    clusters: Writer<DynamicObject>,
    releases: Writer<HelmReleaseProxy>,
    router: Router,
    placement: Arc<HelmChartProxy>,
    context: Arc<PlacementContext<HelmChartProxy>>,
}

impl World {
    /// Returns a world whose API server has the placement and Cluster `fleet/blue`. The caches are empty.
    fn new(placement: HelmChartProxy) -> Self {
        let server = FakeApiServer::default();
        server.put(PLACEMENT, serde_json::to_value(&placement).unwrap());
        server.put(CLUSTER, cluster());
        let (client, metrics, index) = (server.client(), Metrics::new(), SharedIndex::default());
        let clusters = Writer::<DynamicObject>::new(clusters::resource());
        let releases = Writer::<HelmReleaseProxy>::new(());
        let router = Router::new(index.clone(), Queues::unused(&metrics));
        let context = PlacementContext {
            clusters: Clusters::new(clusters.as_reader(), Duration::from_mins(1)),
            releases: ReleaseCache::new(index, releases.as_reader()),
            queue: PlacementQueue::new(Trigger::new(status::kind::<HelmChartProxy>(), &metrics).0),
            written: Arc::default(),
            throttle: StatusThrottle::default(),
            compose: Box::new(Composer),
            policies: Policies::new(Vec::new(), "platform").0,
            values_secrets: ValuesSecrets::new(client.clone()),
            rollout_targets: RolloutTargets::default(),
            followed_version: Box::new(|_| async { Ok(String::new()) }.boxed()),
            poll_interval: Duration::from_mins(1),
            health: true,
            events: Events::discard(),
            metrics,
            client,
        };
        let (placement, context) = (Arc::new(placement), Arc::new(context));
        Self { server, clusters, releases, router, placement, context }
    }

    fn cache_cluster(&mut self, cluster: Value) {
        self.clusters.apply_watcher_event(&Event::Apply(serde_json::from_value(cluster).unwrap()));
    }

    fn cache_release(&mut self, release: HelmReleaseProxy) {
        self.router.on_release::<HelmChartProxy>(&watch::Change::Applied(&release));
        self.releases.apply_watcher_event(&Event::Apply(release));
    }

    /// Stores the release object on Cluster `fleet/blue` on the API server.
    fn store_release(&self) {
        self.server.put(&release_on("blue"), serde_json::to_value(release()).unwrap());
    }

    /// Deletes the release object on Cluster `fleet/blue`, which the watch shows at once.
    fn delete_release(&mut self) {
        let release = release();
        self.server.remove(&release_on("blue"));
        self.releases.apply_watcher_event(&Event::Delete(release.clone()));
        self.context.queue.record_deleted(&release);
        self.router.on_release::<HelmChartProxy>(&watch::Change::Deleted(&release));
    }

    async fn run(&self) {
        let (object, context) = (self.placement.clone(), self.context.clone());
        Reconciler { object, context }.run().await.unwrap();
    }

    /// Returns the paths that were read.
    fn reads(&self) -> Vec<String> {
        let requests = self.server.requests().into_iter();
        requests.filter(|request| !request.is_write()).map(|request| request.path).collect()
    }

    /// Returns the writes of release objects, and forgets all requests.
    fn release_writes(&self) -> Vec<String> {
        let writes = self.server.take_writes().into_iter();
        writes.filter(|write| write.contains(RELEASES)).collect()
    }

    /// Reconciles the placement. Returns the writes of release objects.
    async fn reconcile(&self) -> Vec<String> {
        self.run().await;
        self.release_writes()
    }
}

/// Returns a world whose placement has been reconciled and whose release object was deleted afterwards.
async fn with_deleted_release() -> World {
    let mut world = World::new(placement());
    world.cache_cluster(cluster());
    world.store_release();
    world.cache_release(release());
    assert_eq!(world.reconcile().await, NONE);
    world.delete_release();
    world
}

/// Returns a world after a restart. The status lists Cluster `fleet/blue`, but there is no release object.
fn restarted() -> World {
    let mut placement = placement();
    let matching_clusters = vec![cluster_reference(&blue())];
    placement.status = Some(PlacementStatus { matching_clusters, ..PlacementStatus::default() });
    let mut world = World::new(placement);
    world.cache_cluster(cluster());
    world
}

#[tokio::test]
async fn the_release_object_of_a_new_cluster_is_created_without_reading_placement_or_cluster() {
    let mut world = World::new(placement());
    world.cache_cluster(cluster());
    world.run().await;
    assert_eq!(world.reads(), [RELEASES], "only the release objects are listed, once");
    assert_eq!(world.release_writes(), [format!("PATCH {}", release_on("blue"))]);
    let mut green = cluster();
    green["metadata"]["name"] = json!("green");
    world.cache_cluster(green);
    world.run().await;
    assert_eq!(world.reads(), NONE, "all release objects of an applied placement are known");
    assert_eq!(world.release_writes(), [format!("PATCH {}", release_on("green"))]);
}

#[tokio::test]
async fn a_deleted_release_object_is_created_again_if_placement_and_cluster_exist() {
    let world = with_deleted_release().await;
    assert_eq!(world.reconcile().await, [format!("PATCH {}", release_on("blue"))]);
}

#[tokio::test]
async fn a_deleted_release_object_is_not_created_again_without_its_placement_or_cluster() {
    for gone in [PLACEMENT, CLUSTER] {
        let world = with_deleted_release().await;
        world.server.remove(gone);
        for attempt in ["first", "second"] {
            assert_eq!(world.reconcile().await, NONE, "{attempt} reconcile without {gone}");
        }
    }
}

#[tokio::test]
async fn a_listed_cluster_without_a_release_object_gets_one_after_a_restart_if_it_exists() {
    assert_eq!(restarted().reconcile().await, [format!("PATCH {}", release_on("blue"))]);
    let world = restarted();
    world.server.remove(CLUSTER);
    for attempt in ["first", "second"] {
        assert_eq!(world.reconcile().await, NONE, "{attempt} reconcile");
    }
}

#[tokio::test]
async fn an_update_does_not_create_a_release_object_that_only_the_cache_contains() {
    let mut changed = placement();
    changed.spec.values_template = "color: blue".to_owned();
    let mut world = World::new(changed);
    world.cache_cluster(cluster());
    world.cache_release(release());
    let path = release_on("blue");
    assert_eq!(world.reconcile().await, [format!("PATCH {path}")], "the update is refused");
    assert_eq!(world.server.get(&path), None);
}

#[tokio::test]
async fn a_release_object_is_deleted_only_if_its_cluster_is_gone_from_the_api_server_too() {
    let mut world = World::new(placement());
    world.store_release();
    world.cache_release(release());
    assert_eq!(world.reconcile().await, NONE, "only the cache does not contain the Cluster");
    world.server.remove(CLUSTER);
    assert_eq!(world.reconcile().await, [format!("DELETE {}", release_on("blue"))]);
}

#[tokio::test]
async fn the_finalizer_of_a_placement_stays_while_the_api_server_has_a_release_object() {
    let mut deleted = placement();
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let world = World::new(deleted);
    world.store_release();
    world.run().await;
    assert_eq!(world.server.take_writes(), NONE, "only the cache does not contain the release object");
    world.server.remove(&release_on("blue"));
    world.run().await;
    assert_eq!(world.server.take_writes(), [format!("PATCH {PLACEMENT}")]);
    assert_eq!(world.server.get(PLACEMENT), None, "the finalizer is removed");
}
