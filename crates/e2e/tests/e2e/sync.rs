//! Syncs: a folder of a git repository is applied to the management cluster. What goes wrong with the repository is in
//! `sync_guard`, several Syncs on one cluster are in `several_syncs`.

use std::{path::PathBuf, time::Duration};

use chandler_api::extensions::{SyncObject, SyncStatus};
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    programs,
    wait::{LIMIT, eventually},
};
use chandler_sandbox::{
    apply,
    certificates::Authority,
    clusterctl_move::{ClusterctlMove, ObjectId},
    git_server::{GitServer, WorkTree},
    provider::cluster_resource,
    testing,
};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::RoleBinding};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

pub const NAMESPACE: &str = "default";
pub const CAPI: &str = "cluster.x-k8s.io/v1beta2";
/// Long enough for a manager to react to a change.
const REACTION_TIME: Duration = Duration::from_secs(3);

/// A management cluster with a Source of a git repository, and an account that may change everything.
pub struct World {
    pub cluster: ManagementCluster,
    /// Serves the repository until it is dropped.
    pub git: Option<GitServer>,
    /// The folder with the repository.
    pub served: PathBuf,
    pub tree: WorkTree,
}

pub fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{value: {value}}}\n")
}

pub fn cluster(name: &str) -> String {
    format!("apiVersion: {CAPI}\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {{paused: false}}\n")
}

impl World {
    pub async fn new(name: &str) -> Self {
        let cluster = ManagementCluster::new(name).await;
        let dir = testing::fresh_dir(&format!("{name}-git")).await.unwrap();
        let authority = Authority::open(&dir, "git").unwrap();
        let served = dir.join("served");
        let git = GitServer::start(&authority, &served).await.unwrap();
        let (url, tree) = (git.url("clusters"), git.create("clusters").await.unwrap());
        let world = Self { cluster, git: Some(git), served, tree };
        let objects = [
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": NAMESPACE},
                "stringData": {"ca.crt": authority.certificate()},
            }),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "deployer", "namespace": NAMESPACE},
            }),
            binding("ClusterRoleBinding", "deployer", "cluster-admin", NAMESPACE, "deployer"),
            binding(
                "RoleBinding",
                "chandler-impersonator",
                "chandler-impersonator",
                "chandler-system",
                "chandler-manager",
            ),
            json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
                "metadata": {"name": "git", "namespace": NAMESPACE},
                "spec": {
                    "git": {"url": url}, "interval": "1s",
                    "certificateAuthority": {"name": "ca", "key": "ca.crt"},
                },
            }),
        ];
        for object in &objects {
            world.apply(object).await;
        }
        world
    }

    pub async fn apply(&self, object: &Value) {
        apply::apply(&self.cluster.client, object).await.unwrap();
    }

    pub fn start_manager(&self) -> Manager {
        Manager::from_process(self.cluster.start_manager())
    }

    /// Pushes a commit whose tree contains exactly these files. Returns its id.
    pub async fn push(&self, files: &[(&str, String)]) -> String {
        self.tree.git(&["rm", "-r", "--quiet", "--ignore-unmatch", "."]).await.unwrap();
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        self.tree.commit("change", &files).await.unwrap()
    }

    /// Applies the Sync `base` of the folder `clusters`; `fields` replaces fields of its spec.
    pub async fn apply_sync(&self, fields: &Value) {
        self.apply_named_sync("base", fields).await;
    }

    /// Like [`Self::apply_sync`], for another Sync.
    pub async fn apply_named_sync(&self, name: &str, fields: &Value) {
        let mut spec = json!({
            "source": {"sourceRef": {"name": "git"}, "path": "clusters"}, "serviceAccountName": "deployer",
            "prune": {"enabled": true},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        }))
        .await;
    }

    pub fn syncs(&self) -> Api<SyncObject> {
        Api::namespaced(self.cluster.client.clone(), NAMESPACE)
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.client.clone(), NAMESPACE, &cluster_resource())
    }

    /// Waits until a condition of the Sync `base` has this reason, at this revision if one is given. Returns the status.
    pub async fn wait(&self, type_: &str, reason: &str, revision: Option<&str>) -> SyncStatus {
        self.wait_sync("base", type_, reason, revision).await
    }

    /// Like [`Self::wait`], for another Sync.
    pub async fn wait_sync(
        &self,
        name: &str,
        type_: &str,
        reason: &str,
        revision: Option<&str>,
    ) -> SyncStatus {
        let found = tokio::time::timeout(LIMIT, async {
            loop {
                let sync = self.syncs().get(name).await.unwrap();
                if let Some(status) = sync.status.filter(|status| {
                    let conditions = &mut status.conditions.iter();
                    status.observed_generation == sync.metadata.generation
                        && (revision.is_none() || status.revision.as_deref() == revision)
                        && conditions.any(|condition| condition.type_ == type_ && condition.reason == reason)
                }) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        if let Ok(status) = found.await {
            return status;
        }
        let status = self.syncs().get(name).await.unwrap().status;
        panic!("not within {LIMIT:?}: Sync {name} has {type_} {reason} at {revision:?}: {status:#?}")
    }

    /// Returns a value of a ConfigMap.
    pub async fn value(&self, name: &str) -> Option<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        maps.get_opt(name).await.unwrap()?.data?.remove("value")
    }

    pub async fn cluster_exists(&self, name: &str) -> bool {
        self.clusters().get_opt(name).await.unwrap().is_some()
    }
}

fn binding(kind: &str, name: &str, role: &str, namespace: &str, account: &str) -> Value {
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    if kind == "RoleBinding" {
        binding["metadata"]["namespace"] = json!(NAMESPACE);
    }
    binding
}

pub fn ready_message(status: &SyncStatus) -> &str {
    &status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap().message
}

#[tokio::test]
async fn a_push_is_applied_a_bad_push_changes_nothing_and_a_revert_restores() {
    let world = Box::pin(World::new("sync")).await;
    let _manager = world.start_manager();
    let good = [("clusters/a.yaml", map("a", "one")), ("clusters/b.yaml", cluster("blue"))];
    let first = world.push(&good).await;
    world.apply_sync(&json!({})).await;
    let status = world.wait("Ready", "Applied", Some(&first)).await;
    assert_eq!((status.inventory.len(), status.last_applied.unwrap().revision), (2, first.clone()));
    assert!(world.cluster_exists("blue").await);

    let bad = [
        ("clusters/a.yaml", map("a", "two")),
        ("clusters/b.yaml", cluster("blue")),
        (
            "clusters/c.yaml",
            "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec: {ports: 7}\n".to_owned(),
        ),
    ];
    let second = world.push(&bad).await;
    eventually("the bad push is reported", || async {
        let status = world.syncs().get("base").await.unwrap().status?;
        (status.revision.as_deref() == Some(&*second) && ready_message(&status).contains("c.yaml:1"))
            .then_some(())
    })
    .await;
    assert_eq!(world.value("a").await.as_deref(), Some("one"), "nothing of a bad commit is applied");

    let third = world.push(&good).await;
    world.wait("Ready", "Applied", Some(&third)).await;
    let fourth =
        world.push(&[("clusters/a.yaml", map("a", "three")), ("clusters/b.yaml", cluster("blue"))]).await;
    world.wait("Ready", "Applied", Some(&fourth)).await;
    assert_eq!(world.value("a").await.as_deref(), Some("three"));

    // A field that someone else has set is a conflict, unless `force` is set.
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    let mine = Patch::Apply(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"value": "mine"},
    }));
    maps.patch("a", &PatchParams::apply("user").force(), &mine).await.unwrap();
    let fifth =
        world.push(&[("clusters/a.yaml", map("a", "five")), ("clusters/b.yaml", cluster("blue"))]).await;
    let status = world.wait("Ready", "Conflict", Some(&fifth)).await;
    assert!(ready_message(&status).contains(".data.value"), "{}", ready_message(&status));
    assert_eq!(world.value("a").await.as_deref(), Some("mine"));
    world.apply_sync(&json!({"force": true})).await;
    world.wait("Ready", "Applied", Some(&fifth)).await;
    assert_eq!(world.value("a").await.as_deref(), Some("five"));
}

#[tokio::test]
async fn a_kustomization_is_built_and_a_bad_one_changes_nothing() {
    let world = Box::pin(World::new("sync-kustomize")).await;
    let _manager = world.start_manager();
    let files = |resources: &str| {
        [
            ("base/kustomization.yaml", "resources: [a.yaml]\n".to_owned()),
            ("base/a.yaml", map("a", "one")),
            ("clusters/kustomization.yaml", format!("resources: [{resources}]\nnamePrefix: built-\n")),
        ]
    };
    let first = world.push(&files("../base")).await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&first)).await;
    assert_eq!(world.value("built-a").await.as_deref(), Some("one"));
    for (resources, problem) in
        [("../missing", "missing"), ("https://git.example/base", "kustomization.yaml")]
    {
        let bad = world.push(&files(resources)).await;
        let status = world.wait("Ready", "InvalidPackage", Some(&bad)).await;
        assert!(ready_message(&status).contains(problem), "{}", ready_message(&status));
        assert_eq!(world.value("built-a").await.as_deref(), Some("one"));
    }
}

#[tokio::test]
async fn a_killed_manager_loses_nothing() {
    let world = Box::pin(World::new("sync-kill")).await;
    // Few enough deletions at a time for the guard.
    let files = |from: usize| -> Vec<(String, String)> {
        (from..from + 9)
            .map(|number| (format!("clusters/{number}.yaml"), map(&format!("m{number}"), "x")))
            .collect()
    };
    world.apply_sync(&json!({})).await;
    let mut last = String::new();
    for round in 0..3 {
        let files = files(round);
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        last = world.push(&files).await;
        let manager = Manager::from_process(world.cluster.start_manager_with_lease(5));
        eventually("the revision is being applied", || async {
            let status = world.syncs().get("base").await.unwrap().status?;
            (status.revision.as_deref() == Some(&*last)).then_some(())
        })
        .await;
        manager.kill().await;
    }
    let _manager = Manager::from_process(world.cluster.start_manager_with_lease(5));
    let status = world.wait("Ready", "Applied", Some(&last)).await;
    for number in 0..11 {
        let name = format!("m{number}");
        let known = status.inventory.iter().any(|object| object.name == name);
        assert_eq!(known, number >= 2, "{name}: {:?}", status.held);
        assert_eq!(
            world.value(&name).await.is_some(),
            known,
            "{name} exists exactly if it is in the inventory"
        );
    }
}

#[tokio::test]
async fn a_sync_suspends_itself_during_a_move_and_is_resumed() {
    let world = Box::pin(World::new("sync-move")).await;
    let _manager = world.start_manager();
    let revision = world.push(&[("clusters/b.yaml", cluster("blue"))]).await;
    world.apply_sync(&json!({})).await;
    world.wait("Ready", "Applied", Some(&revision)).await;

    let client = &world.cluster.client;
    let clusterctl =
        ClusterctlMove { source: client, target: client, namespace: NAMESPACE, pause: REACTION_TIME };
    clusterctl.set_paused(client, "blue", true).await.unwrap();
    assert!(clusterctl.delete(&ObjectId::new(CAPI, "Cluster", "blue")).await.unwrap());
    world.wait("Moving", "Moving", None).await;
    world.push(&[("clusters/b.yaml", cluster("blue")), ("clusters/a.yaml", map("a", "one"))]).await;
    tokio::time::sleep(REACTION_TIME).await;
    assert!(!world.cluster_exists("blue").await && world.value("a").await.is_none(), "nothing is written");

    let kubeconfig = world.cluster.plane.kubeconfig_path().clone();
    let output = tokio::task::spawn_blocking(move || {
        let mut command = std::process::Command::new(programs::chandler());
        command.args(["resume", "sync", "base", "--namespace", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
        command.output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.wait("Moving", "NotMoving", None).await;
    assert!(world.cluster_exists("blue").await && world.value("a").await.is_some());
}

#[tokio::test]
async fn the_account_of_a_sync_decides_what_it_may_write() {
    let world = Box::pin(World::new("sync-account")).await;
    let _manager = world.start_manager();
    world.push(&[("clusters/a.yaml", map("a", "one"))]).await;
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "reader", "namespace": NAMESPACE},
        }))
        .await;
    world.apply_sync(&json!({"serviceAccountName": "reader"})).await;
    let status = world.wait("Ready", "Forbidden", None).await;
    let message = ready_message(&status);
    assert!(message.contains("system:serviceaccount:default:reader"), "{message}");
    assert!(world.value("a").await.is_none());

    let bindings: Api<RoleBinding> = Api::namespaced(world.cluster.client.clone(), NAMESPACE);
    bindings.delete("chandler-impersonator", &DeleteParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"interval": "11m"}}));
    world.syncs().patch("base", &PatchParams::default(), &patch).await.unwrap();
    eventually("the missing permission is reported", || async {
        let status = world.syncs().get("base").await.unwrap().status?;
        ready_message(&status).contains("chandler-impersonator").then_some(())
    })
    .await;
}
