//! `clusterctl move`: the objects move to another management cluster, and the workload cluster does not change.
//!
//! The tests perform the steps of clusterctl's object mover slowly, with a manager running on both management clusters.

use std::time::Duration;

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_core::release::OperationKind;
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    wait::eventually,
    world::{chart, condition, hello},
};
use chandler_sandbox::{
    apply,
    certificates::Authority,
    clusterctl_move::{ClusterctlMove, ObjectId},
    plane::Plane,
    repository::ChartRepository,
    testing,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Long enough for a manager to react to a change.
const REACTION_TIME: Duration = Duration::from_secs(1);

/// The source or the target management cluster of a move, with its manager.
struct Side {
    cluster: ManagementCluster,
    manager: Manager,
}

impl Side {
    async fn new(name: &str) -> Self {
        let cluster = ManagementCluster::new(name).await;
        let manager = Manager::from_process(cluster.start_manager());
        Self { cluster, manager }
    }

    fn client(&self) -> Client {
        self.cluster.client.clone()
    }

    fn placements(&self) -> Api<HelmChartProxy> {
        Api::namespaced(self.client(), "default")
    }

    fn releases(&self) -> Api<HelmReleaseProxy> {
        Api::namespaced(self.client(), "default")
    }

    /// Sets the status that the Cluster API sets once the control plane runs.
    async fn set_initialized(&self) {
        self.cluster.set_control_plane_initialized("alpha").await;
    }

    /// Waits until the only release object is Ready.
    async fn wait_ready(&self) -> HelmReleaseProxy {
        eventually("the release is ready", || async {
            let mut all = self.releases().list(&ListParams::default()).await.unwrap().items;
            assert!(all.len() <= 1, "{all:?}");
            let release = all.pop()?;
            let status = release.status.as_ref()?;
            let ready = condition(status, "Ready")?.status == "True";
            (ready && status.observed_generation == release.metadata.generation).then_some(release)
        })
        .await
    }

    async fn connections(&self) -> String {
        format!("{}", self.manager.metrics().await["chandler_workload_connections"])
    }
}

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
const CAPI: &str = "cluster.x-k8s.io/v1beta2";

/// A workload cluster with a release, and the two management clusters of a move.
struct Move {
    source: Side,
    target: Side,
    workload: Plane,
    _repository: ChartRepository,
}

impl Move {
    async fn new(name: &str, chart_name: &str, values: &str) -> Self {
        let (source, target) = tokio::join!(Side::new("source"), Side::new("target"));
        let workload = testing::bare_plane().await.unwrap();
        let dir = testing::fresh_dir(name).await.unwrap();
        let authority = Authority::open(&dir, "move").unwrap();
        let repository = ChartRepository::start(&authority, &dir.join("charts")).await.unwrap();
        for folder in [hello(), chart("slow")] {
            repository.publish(&folder).unwrap();
        }
        for object in objects(&workload, &repository, chart_name, values) {
            apply::apply(&source.client(), &object).await.unwrap();
        }
        source.set_initialized().await;
        Self { source, target, workload, _repository: repository }
    }

    fn clusterctl(&self) -> ClusterctlMove<'_> {
        let (source, target) = (&self.source.cluster.client, &self.target.cluster.client);
        ClusterctlMove { source, target, namespace: "default", pause: REACTION_TIME }
    }

    /// Moves all objects, and checks that the managers create and delete none of them meanwhile.
    async fn run(&self) {
        let clusterctl = self.clusterctl();
        clusterctl.set_paused(clusterctl.source, "alpha", true).await.unwrap();
        let nodes = clusterctl.graph(&["ca"], &["alpha"]).await.unwrap();
        let skipped = clusterctl.run(&nodes).await.unwrap();
        assert!(skipped.is_empty(), "{skipped:?}");
        clusterctl.set_paused(clusterctl.target, "alpha", false).await.unwrap();
        self.target.set_initialized().await;
    }

    /// Deletes one object as the move does.
    async fn delete_from_source(&self, kind: &str, name: &str) {
        let object = ObjectId::new(ADDONS, kind, name);
        assert!(self.clusterctl().delete(&object).await.unwrap(), "{object} was already deleted");
    }

    async fn stored_revisions(&self) -> Vec<String> {
        let records: Api<Secret> = Api::namespaced(self.workload.client().await.unwrap(), "default");
        let all = records.list(&ListParams::default().labels("owner=helm")).await.unwrap();
        all.into_iter()
            .map(|record| {
                let labels = record.labels();
                format!("{} {} {}", labels["name"], labels["version"], labels["status"])
            })
            .collect()
    }

    async fn assert_source_is_empty(&self) {
        assert_eq!(self.source.releases().list(&ListParams::default()).await.unwrap().items.len(), 0);
        assert_eq!(self.source.placements().list(&ListParams::default()).await.unwrap().items.len(), 0);
        eventually("the source has no connection to a workload cluster", || async {
            (self.source.connections().await == "0").then_some(())
        })
        .await;
    }
}

fn objects(workload: &Plane, repository: &ChartRepository, chart_name: &str, values: &str) -> [Value; 4] {
    [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "default"},
            "stringData": {"ca.crt": repository.ca_pem()},
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": "alpha-kubeconfig", "namespace": "default"},
            "stringData": {"value": workload.kubeconfig()},
        }),
        json!({
            "apiVersion": CAPI, "kind": "Cluster", "spec": {"paused": false},
            "metadata": {"name": "alpha", "namespace": "default", "labels": {"fleet": "test"}},
        }),
        json!({
            "apiVersion": ADDONS, "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "namespace": "default"},
            "spec": {
                "clusterSelector": {"matchLabels": {"fleet": "test"}}, "repoURL": repository.url(),
                "chartName": chart_name, "version": "1.0.0", "valuesTemplate": values,
                "tlsConfig": {"caSecret": {"name": "ca"}},
            },
        }),
    ]
}

#[tokio::test]
async fn a_moved_release_is_adopted_unchanged() {
    let moving = Box::pin(Move::new("move", "hello", "cluster: {{ .Cluster.metadata.name }}")).await;
    let before = moving.source.wait_ready().await;
    let revisions = moving.stored_revisions().await;
    assert_eq!(revisions.len(), 1, "{revisions:?}");

    let mut audit = moving.workload.audit_log();
    moving.run().await;
    let after = moving.target.wait_ready().await;
    tokio::time::sleep(REACTION_TIME).await;
    assert_eq!((after.name_any(), &after.spec), (before.name_any(), &before.spec), "the same object");
    assert_ne!(after.uid(), before.uid(), "with another UID");
    let owner = moving.target.placements().get("hello").await.unwrap().uid();
    assert_eq!(after.owner_references().iter().map(|owner| owner.uid.clone()).next(), owner);
    let (old, new) = (before.status.unwrap(), after.status.unwrap());
    assert_eq!((new.revision, new.inventory), (Some(1), old.inventory));

    assert_eq!(moving.stored_revisions().await, revisions, "no revision is added, none is lost");
    assert_eq!(audit.chandler_writes().unwrap(), [], "nothing is written to the workload cluster");
    let maps: Api<ConfigMap> = Api::namespaced(moving.workload.client().await.unwrap(), "default");
    let name = &after.spec.release_name;
    assert_eq!(maps.get(name).await.unwrap().data.unwrap()["greeting"], "Hello from alpha");
    moving.assert_source_is_empty().await;

    let upgrade = Patch::Merge(json!({"spec": {"valuesTemplate": "greeting: Moved"}}));
    moving.target.placements().patch("hello", &PatchParams::default(), &upgrade).await.unwrap();
    eventually("the target upgrades the release", || async {
        (maps.get(name).await.unwrap().data?["greeting"] == "Moved from somewhere").then_some(())
    })
    .await;
}

/// `clusterctl move --filter-cluster` may do this to the other clusters of a placement.
#[tokio::test]
async fn moving_objects_of_an_unpaused_cluster_leaves_its_release_unchanged() {
    let moving = Box::pin(Move::new("moveunpaused", "hello", "cluster: {{ .Cluster.metadata.name }}")).await;
    let release = moving.source.wait_ready().await;
    let revisions = moving.stored_revisions().await;
    let mut audit = moving.workload.audit_log();
    moving.delete_from_source("HelmReleaseProxy", &release.name_any()).await;
    let again = moving.source.wait_ready().await;
    assert_ne!(again.uid(), release.uid(), "its placement still exists and creates it again");
    moving.delete_from_source("HelmChartProxy", "hello").await;
    eventually("the release object is deleted", || async {
        moving.source.releases().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    moving.assert_source_is_empty().await;
    assert_eq!(moving.stored_revisions().await, revisions);
    assert_eq!(audit.chandler_writes().unwrap(), [], "nothing is written to the workload cluster");
}

#[tokio::test]
async fn an_operation_that_runs_during_a_move_is_canceled_and_recovered_by_the_target() {
    let moving = Box::pin(Move::new("movebusy", "slow", "hold: true")).await;
    let pending = |revisions: &[String]| revisions.iter().all(|r| r.ends_with(" 1 pending-install"));
    eventually("the install waits for its hook", || async {
        let revisions = moving.stored_revisions().await;
        (revisions.len() == 1 && pending(&revisions)).then_some(())
    })
    .await;
    moving.run().await;
    moving.assert_source_is_empty().await;
    eventually("the source has canceled the operation", || async {
        (moving.source.manager.ended(OperationKind::INSTALL) == 1).then_some(())
    })
    .await;
    let outcome = moving.source.manager.operations().into_iter().find_map(|operation| operation.outcome);
    assert_eq!(outcome.as_deref(), Some("Cancelled"));
    let fixed = Patch::Merge(json!({"spec": {"valuesTemplate": "hold: false"}}));
    moving.target.placements().patch("hello", &PatchParams::default(), &fixed).await.unwrap();
    let release = moving.target.wait_ready().await;
    let maps: Api<ConfigMap> = Api::namespaced(moving.workload.client().await.unwrap(), "default");
    assert_eq!(maps.get(&release.spec.release_name).await.unwrap().data.unwrap()["hold"], "false");
}
