//! Workload clusters that accept connections and do not answer.

use std::time::{Duration, Instant};

use chandler_api::addons::HelmReleaseProxy;
use chandler_core::release::OperationKind;
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    signals::signal_api_server,
    unresponsive_server::{Answers, UnresponsiveServer},
    wait::eventually,
    world::{World, condition},
};
use chandler_sandbox::{apply, testing};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, ResourceExt as _, api::ListParams};
use rustix::process::Signal;
use serde_json::json;

/// A cluster that does not answer is not reported before this.
const HELD: Duration = Duration::from_secs(20);
/// And it is reported by then. The rest is for a busy machine.
const REPORTED: Duration = Duration::from_secs(35);

fn is_unreachable(ready: &Condition) -> bool {
    ready.status == "Unknown"
        && ready.reason == "ClusterUnreachable"
        && ready.message.starts_with("no answer since ")
}

/// Returns since when a cluster has not answered, as its condition says.
fn unanswered_since(ready: &Condition) -> Timestamp {
    let (_, rest) = ready.message.split_once("no answer since ").unwrap();
    rest.split_inclusive('Z').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_stopped_api_server_is_reported_after_20_seconds_and_harms_no_other_cluster() {
    let world = World::new("stopped-server").await;
    let (alpha, _bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    // Later changes of the health would be written while the cluster does not answer.
    for cluster in ["alpha", "bravo"] {
        world.wait_condition("hello", cluster, "Healthy", ("True", "Healthy")).await;
    }
    manager.wait_idle().await;
    let before = world.release("hello", "alpha").await.unwrap().resource_version();

    let stopped_at = Timestamp::now();
    signal_api_server(&alpha, Signal::STOP).await;
    let stopped = Instant::now();
    let ready = eventually("the cluster is reported", || async {
        let release = world.release("hello", "alpha").await.unwrap();
        let at = stopped.elapsed();
        assert!(at >= HELD || release.resource_version() == before, "its status was written after {at:?}");
        let ready = condition(release.status.as_ref()?, "Ready")?.clone();
        is_unreachable(&ready).then_some(ready)
    })
    .await;
    // By the clock of the manager: how long a busy machine takes to store and to read the status does not count.
    let reported = Duration::try_from(ready.last_transition_time.0.duration_since(stopped_at)).unwrap();
    assert!(reported < REPORTED, "reported after {reported:?}");
    assert!(stopped.elapsed() < 2 * REPORTED, "written after {:?}", stopped.elapsed());
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "bravo", 2).await;
    assert!(manager.metrics().await["chandler_workload_cluster_outages_total"] >= 1.0);

    signal_api_server(&alpha, Signal::CONT).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "each change adds one revision");
}

#[tokio::test]
async fn an_outage_after_a_quiet_time_is_not_reported_at_once() {
    let world = World::new("quiet").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    manager.wait_idle().await;
    // Nothing changes for longer than an outage is held back. Meanwhile, the cluster answers the manager's own requests.
    tokio::time::sleep(REPORTED).await;

    let before = world.release("hello", "alpha").await.unwrap().resource_version();
    alpha.stop().await;
    // Long enough to connect again in vain, and short enough even if the last of those requests was 13 s ago.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.release("hello", "alpha").await.unwrap().resource_version(), before);
    alpha.restart().await.unwrap();
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;
}

#[tokio::test]
async fn a_cluster_that_never_answers_or_never_opens_the_watch_is_reported() {
    let management = ManagementCluster::new("silent-server").await;
    let dir = testing::fresh_dir("silent-servers").await.unwrap();
    let mut servers = Vec::new();
    for (name, answers) in [("silent", Answers::Nothing), ("watchless", Answers::AllButWatches)] {
        let server = UnresponsiveServer::start(&dir.join(name), management.client.clone(), answers).await;
        let objects = [
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": format!("{name}-kubeconfig"), "namespace": "default"},
                "stringData": {"value": server.kubeconfig()},
            }),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {},
                "metadata": {"name": name, "namespace": "default"},
            }),
        ];
        for object in objects {
            apply::apply(&management.client, &object).await.unwrap();
        }
        management.set_control_plane_initialized(name).await;
        servers.push(server);
    }
    let placement = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "hello", "namespace": "default"},
        "spec": {
            "clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example", "version": "1.0.0",
            "releaseName": "hello",
        },
    });
    let manager = Manager::from_process(management.start_manager());
    apply::apply(&management.client, &placement).await.unwrap();
    let releases: Api<HelmReleaseProxy> = Api::namespaced(management.client.clone(), "default");
    let readiness = || async {
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        let ready = |release: &HelmReleaseProxy| condition(release.status.as_ref()?, "Ready").cloned();
        all.iter().filter_map(ready).collect::<Vec<_>>()
    };
    let reported = eventually("both clusters are reported", || async {
        let ready = readiness().await;
        assert!(ready.iter().all(|ready| ready.status != "True"), "{ready:?}");
        (ready.len() == 2 && ready.iter().all(is_unreachable)).then_some(ready)
    })
    .await;
    // From the first request on: how long the manager takes to start does not count.
    for ready in &reported {
        let after = Duration::try_from(Timestamp::now().duration_since(unanswered_since(ready))).unwrap();
        assert!((HELD..REPORTED).contains(&after), "reported after {after:?}");
    }
    tokio::time::sleep(HELD + Duration::from_secs(10)).await;
    let later = readiness().await;
    assert_eq!(reported, later, "further attempts change nothing");
    manager.stop().await;
}

#[tokio::test]
async fn a_watch_that_is_silently_dropped_repeats_no_upgrade() {
    let world = World::new("dropped-watch").await;
    let alpha = world.create_cluster("alpha").await;
    let proxy = world.interpose(&alpha).await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    manager.wait_idle().await;

    proxy.drop_open_connections();
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready_at_any_revision("hello", "alpha").await;
    // The watch has shown nothing. When this is noticed, the releases are listed again.
    let listed = world.release("hello", "alpha").await.unwrap();
    tokio::time::sleep(Duration::from_secs(40)).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "{listed:?}");
    // The watch works again.
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("hello", "alpha", 3).await;
    assert_eq!(world.history(&alpha, "hello").len(), 3);
    assert_eq!(manager.succeeded(OperationKind::UPGRADE), 2);
    manager.stop().await;
}

/// A proxy or firewall on the way to the management cluster may drop its watches, too.
#[tokio::test]
async fn silently_dropped_watches_of_the_management_cluster_are_opened_again() {
    let world = World::new("dropped-management").await;
    let _alpha = world.create_cluster("alpha").await;
    let (proxy, kubeconfig) = world.management_proxy().await;
    let manager = world.start_manager_with(&["--kubeconfig", &kubeconfig, "--watch-silence-seconds", "10"]);
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    manager.wait_idle().await;

    proxy.drop_open_connections();
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert!(manager.is_running());
    manager.stop().await;
}
