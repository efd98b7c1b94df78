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
use chandler_sandbox::{apply, certificates::Authority, plane::Plane, repository::ChartRepository, testing};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
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

    fn objects(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client(), "default", &resource)
    }

    fn clusters(&self) -> Api<DynamicObject> {
        self.objects("cluster.x-k8s.io/v1beta2", "Cluster")
    }

    fn placements(&self) -> Api<HelmChartProxy> {
        Api::namespaced(self.client(), "default")
    }

    fn releases(&self) -> Api<HelmReleaseProxy> {
        Api::namespaced(self.client(), "default")
    }

    async fn set_paused(&self, paused: bool) {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        self.clusters().patch("alpha", &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(REACTION_TIME).await;
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

/// An object to move, and its owner, if it has one. Named as in clusterctl's object graph.
struct Node {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    owner: Option<(&'static str, &'static str, String)>,
}

impl Node {
    fn new(api_version: &'static str, kind: &'static str, name: &str) -> Self {
        Self { api_version, kind, name: name.to_owned(), owner: None }
    }

    /// `createTargetObject` of clusterctl: copies the object without its identity and points it to its owner on the target.
    async fn create(&self, source: &Side, target: &Side) {
        let mut object = source.objects(self.api_version, self.kind).get(&self.name).await.unwrap();
        object.metadata.resource_version = None;
        object.metadata.owner_references = None;
        object.metadata.managed_fields = None;
        if let Some((api_version, kind, name)) = &self.owner {
            let uid = target.objects(api_version, kind).get(name).await.unwrap().uid();
            let owner = json!([{
                "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
            }]);
            object.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
        }
        let objects = target.objects(self.api_version, self.kind);
        objects.create(&PostParams::default(), &object).await.unwrap();
        tokio::time::sleep(REACTION_TIME).await;
    }

    /// `deleteSourceObject` of clusterctl: annotates the object, which removes all other annotations, deletes it, and
    /// removes its finalizers.
    async fn delete(&self, source: &Side) {
        let objects = source.objects(self.api_version, self.kind);
        let annotation = json!([{
            "op": "add", "path": "/metadata/annotations",
            "value": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
        }]);
        let annotate = Patch::<()>::Json(serde_json::from_value(annotation).unwrap());
        let uid = objects.patch(&self.name, &PatchParams::default(), &annotate).await.unwrap().uid();
        tokio::time::sleep(REACTION_TIME).await;
        objects.delete(&self.name, &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(REACTION_TIME).await;
        let strip = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        match objects.patch(&self.name, &PatchParams::default(), &strip).await {
            Ok(_) => {}
            // clusterctl retries and finds that the object is deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{}: {error}", self.name),
        }
        eventually(&format!("{} {} is deleted", self.kind, self.name), || async {
            let found = objects.get_opt(&self.name).await.unwrap();
            found.is_none_or(|found| found.uid() != uid).then_some(())
        })
        .await;
    }
}

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
const CAPI: &str = "cluster.x-k8s.io/v1beta2";

/// Returns the objects in the order of their creation: owners first.
async fn graph(source: &Side) -> Vec<Node> {
    let mut nodes = vec![
        Node::new("v1", "Secret", "ca"),
        Node::new(CAPI, "Cluster", "alpha"),
        Node::new(ADDONS, "HelmChartProxy", "hello"),
        Node {
            owner: Some((CAPI, "Cluster", "alpha".to_owned())),
            ..Node::new("v1", "Secret", "alpha-kubeconfig")
        },
    ];
    for release in source.releases().list(&ListParams::default()).await.unwrap() {
        let owner = Some((ADDONS, "HelmChartProxy", "hello".to_owned()));
        nodes.push(Node { owner, ..Node::new(ADDONS, "HelmReleaseProxy", &release.name_any()) });
    }
    nodes
}

async fn move_all(source: &Side, target: &Side) {
    source.set_paused(true).await;
    let nodes = graph(source).await;
    for node in &nodes {
        node.create(source, target).await;
    }
    for node in nodes.iter().rev() {
        node.delete(source).await;
    }
    target.set_paused(false).await;
    target.set_initialized().await;
}

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
    move_all(&moving.source, &moving.target).await;
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
    Node::new(ADDONS, "HelmReleaseProxy", &release.name_any()).delete(&moving.source).await;
    let again = moving.source.wait_ready().await;
    assert_ne!(again.uid(), release.uid(), "its placement still exists and creates it again");
    Node::new(ADDONS, "HelmChartProxy", "hello").delete(&moving.source).await;
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
    move_all(&moving.source, &moving.target).await;
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
