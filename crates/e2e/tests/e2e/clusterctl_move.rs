//! `clusterctl move`: the objects go to another management cluster, the workload cluster notices nothing.
//!
//! What the mover of clusterctl does is done here step by step, slowly, with a manager at work on either side.

use std::time::Duration;

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_core::release::OperationKind;
use chandler_e2e::{
    bare::Bare,
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

/// Long enough for a manager to act on what it sees.
const MOMENT: Duration = Duration::from_secs(1);

/// A management cluster.
struct Side {
    bare: Bare,
    manager: Manager,
}

impl Side {
    async fn new(name: &str) -> Self {
        let bare = Bare::new(name).await;
        let manager = Manager::of(bare.manager());
        Self { bare, manager }
    }

    fn client(&self) -> Client {
        self.bare.client.clone()
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

    async fn pause(&self, paused: bool) {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        self.clusters().patch("alpha", &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(MOMENT).await;
    }

    /// What the Cluster API's controllers say of a control plane that runs.
    async fn initialized(&self) {
        let patch = Patch::Merge(json!({"status": {"initialization": {"controlPlaneInitialized": true}}}));
        self.clusters().patch_status("alpha", &PatchParams::default(), &patch).await.unwrap();
    }

    /// The only release object there is, once it is Ready.
    async fn ready(&self) -> HelmReleaseProxy {
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

/// One object on its way, and its owner, if it has one.
struct Node {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    owner: Option<(&'static str, &'static str, String)>,
}

impl Node {
    fn of(api_version: &'static str, kind: &'static str, name: &str) -> Self {
        Self { api_version, kind, name: name.to_owned(), owner: None }
    }

    /// createTargetObject: as it is, less its identity, owned by what its owner has become.
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
        tokio::time::sleep(MOMENT).await;
    }

    /// deleteSourceObject: annotate (which takes all other annotations away), delete, strip the finalizers.
    async fn delete(&self, source: &Side) {
        let objects = source.objects(self.api_version, self.kind);
        let annotation = json!([{
            "op": "add", "path": "/metadata/annotations",
            "value": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
        }]);
        let annotate = Patch::<()>::Json(serde_json::from_value(annotation).unwrap());
        let uid = objects.patch(&self.name, &PatchParams::default(), &annotate).await.unwrap().uid();
        tokio::time::sleep(MOMENT).await;
        objects.delete(&self.name, &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(MOMENT).await;
        let strip = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        match objects.patch(&self.name, &PatchParams::default(), &strip).await {
            Ok(_) => {}
            // The mover tries again and finds that it is gone.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{}: {error}", self.name),
        }
        eventually(&format!("{} {} is gone", self.kind, self.name), || async {
            let there = objects.get_opt(&self.name).await.unwrap();
            there.is_none_or(|there| there.uid() != uid).then_some(())
        })
        .await;
    }
}

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
const CAPI: &str = "cluster.x-k8s.io/v1beta2";

/// The objects in the order in which they are created: owners first.
async fn graph(source: &Side) -> Vec<Node> {
    let mut nodes = vec![
        Node::of("v1", "Secret", "ca"),
        Node::of(CAPI, "Cluster", "alpha"),
        Node::of(ADDONS, "HelmChartProxy", "hello"),
        Node {
            owner: Some((CAPI, "Cluster", "alpha".to_owned())),
            ..Node::of("v1", "Secret", "alpha-kubeconfig")
        },
    ];
    for release in source.releases().list(&ListParams::default()).await.unwrap() {
        let owner = Some((ADDONS, "HelmChartProxy", "hello".to_owned()));
        nodes.push(Node { owner, ..Node::of(ADDONS, "HelmReleaseProxy", &release.name_any()) });
    }
    nodes
}

async fn move_everything(source: &Side, target: &Side) {
    source.pause(true).await;
    let nodes = graph(source).await;
    for node in &nodes {
        node.create(source, target).await;
    }
    for node in nodes.iter().rev() {
        node.delete(source).await;
    }
    target.pause(false).await;
    target.initialized().await;
}

/// A workload cluster, two management clusters, and a release on its way.
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
        let authority = Authority::open(&dir, "moving").unwrap();
        let repository = ChartRepository::start(&authority, &dir.join("charts")).await.unwrap();
        for folder in [hello(), chart("slow")] {
            repository.publish(&folder).unwrap();
        }
        for object in objects(&workload, &repository, chart_name, values) {
            apply::apply(&source.client(), &object).await.unwrap();
        }
        source.initialized().await;
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

    async fn source_is_empty(&self) {
        assert_eq!(self.source.releases().list(&ListParams::default()).await.unwrap().items.len(), 0);
        assert_eq!(self.source.placements().list(&ListParams::default()).await.unwrap().items.len(), 0);
        eventually("the source follows no cluster any more", || async {
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
async fn a_moved_release_is_taken_over_as_it_is() {
    let moving = Box::pin(Move::new("move", "hello", "cluster: {{ .Cluster.metadata.name }}")).await;
    let before = moving.source.ready().await;
    let revisions = moving.stored_revisions().await;
    assert_eq!(revisions.len(), 1, "{revisions:?}");

    let mut audit = moving.workload.audit_log();
    move_everything(&moving.source, &moving.target).await;
    let after = moving.target.ready().await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!((after.name_any(), &after.spec), (before.name_any(), &before.spec), "the same object");
    assert_ne!(after.uid(), before.uid(), "with another identity");
    let owner = moving.target.placements().get("hello").await.unwrap().uid();
    assert_eq!(after.owner_references().iter().map(|owner| owner.uid.clone()).next(), owner);
    let (old, new) = (before.status.unwrap(), after.status.unwrap());
    assert_eq!((new.revision, new.inventory), (Some(1), old.inventory));

    assert_eq!(moving.stored_revisions().await, revisions, "no revision is added, none is lost");
    assert_eq!(audit.chandler_writes().unwrap(), [], "the workload cluster notices nothing");
    let maps: Api<ConfigMap> = Api::namespaced(moving.workload.client().await.unwrap(), "default");
    let name = &after.spec.release_name;
    assert_eq!(maps.get(name).await.unwrap().data.unwrap()["greeting"], "Hello from alpha");
    moving.source_is_empty().await;

    let upgrade = Patch::Merge(json!({"spec": {"valuesTemplate": "greeting: Moved"}}));
    moving.target.placements().patch("hello", &PatchParams::default(), &upgrade).await.unwrap();
    eventually("it is upgraded from its new home", || async {
        (maps.get(name).await.unwrap().data?["greeting"] == "Moved from somewhere").then_some(())
    })
    .await;
}

/// As `clusterctl move --filter-cluster` may do to the other clusters of a placement.
#[tokio::test]
async fn objects_that_are_moved_away_from_a_cluster_that_is_not_paused_leave_its_release_alone() {
    let moving = Box::pin(Move::new("movebare", "hello", "cluster: {{ .Cluster.metadata.name }}")).await;
    let release = moving.source.ready().await;
    let revisions = moving.stored_revisions().await;
    let mut audit = moving.workload.audit_log();
    Node::of(ADDONS, "HelmReleaseProxy", &release.name_any()).delete(&moving.source).await;
    let again = moving.source.ready().await;
    assert_ne!(again.uid(), release.uid(), "its placement is still there, and makes it again");
    Node::of(ADDONS, "HelmChartProxy", "hello").delete(&moving.source).await;
    eventually("the release object is gone", || async {
        moving.source.releases().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    moving.source_is_empty().await;
    assert_eq!(moving.stored_revisions().await, revisions);
    assert_eq!(audit.chandler_writes().unwrap(), [], "the workload cluster notices nothing");
}

#[tokio::test]
async fn an_operation_that_runs_while_its_object_is_moved_is_stopped_and_recovered_on_the_other_side() {
    let moving = Box::pin(Move::new("movebusy", "slow", "hold: true")).await;
    let pending = |revisions: &[String]| revisions.iter().all(|r| r.ends_with(" 1 pending-install"));
    eventually("the install waits for its hook", || async {
        let revisions = moving.stored_revisions().await;
        (revisions.len() == 1 && pending(&revisions)).then_some(())
    })
    .await;
    move_everything(&moving.source, &moving.target).await;
    moving.source_is_empty().await;
    eventually("the source has stopped", || async {
        (moving.source.manager.ended(OperationKind::INSTALL) == 1).then_some(())
    })
    .await;
    let stopped = moving.source.manager.operations().into_iter().find_map(|operation| operation.outcome);
    assert_eq!(stopped.as_deref(), Some("Cancelled"));
    let mended = Patch::Merge(json!({"spec": {"valuesTemplate": "hold: false"}}));
    moving.target.placements().patch("hello", &PatchParams::default(), &mended).await.unwrap();
    let release = moving.target.ready().await;
    let maps: Api<ConfigMap> = Api::namespaced(moving.workload.client().await.unwrap(), "default");
    assert_eq!(maps.get(&release.spec.release_name).await.unwrap().data.unwrap()["hold"], "false");
}
