//! The environment of tests of Syncs: a management cluster with a Source of a git repository.

use std::{path::PathBuf, time::Duration};

use chandler_api::extensions::{SyncObject, SyncStatus};
use chandler_sandbox::{
    apply,
    certificates::Authority,
    git_server::{GitServer, WorkTree},
    provider::cluster_resource,
    testing,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};

use crate::{management_cluster::ManagementCluster, manager::Manager, wait::LIMIT};

pub const NAMESPACE: &str = "default";
pub const CAPI: &str = "cluster.x-k8s.io/v1beta2";

/// A management cluster with a Source of a git repository, and an account that may change everything.
pub struct SyncWorld {
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

impl SyncWorld {
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
            binding("ClusterRoleBinding", "deployer", "cluster-admin", [NAMESPACE, "deployer"]),
            json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
                "metadata": {"name": "git", "namespace": NAMESPACE},
                "spec": {
                    "git": {"url": url}, "interval": "1s",
                    "certificateAuthority": {"name": "ca", "key": "ca.crt"},
                },
            }),
        ];
        for object in deployer(NAMESPACE).iter().chain(&objects) {
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

/// Returns the account of Syncs in a namespace, which may change everything in it.
pub fn deployer(namespace: &str) -> [Value; 3] {
    let bind = |name: &str, role: &str, account: [&str; 2]| {
        let mut binding = binding("RoleBinding", name, role, account);
        binding["metadata"]["namespace"] = json!(namespace);
        binding
    };
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": namespace},
    });
    [
        account,
        bind("deployer", "cluster-admin", [namespace, "deployer"]),
        bind("chandler-impersonator", "chandler-impersonator", ["chandler-system", "chandler-manager"]),
    ]
}

/// Returns a binding of a ClusterRole to an account, by its namespace and name.
fn binding(kind: &str, name: &str, role: &str, [namespace, account]: [&str; 2]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    })
}

pub fn ready_message(status: &SyncStatus) -> &str {
    &status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap().message
}
