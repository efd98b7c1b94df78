//! `clusterctl move` with running add-ons, with the commands of the guide.

use std::{path::PathBuf, sync::Arc, time::Duration};

use chandler_api::{
    addons::HelmReleaseProxy,
    extensions::{AddonRelease, ExtensionInstance, Source, SyncObject},
    status::ReleaseStatus,
};
use chandler_e2e::{shell::Shell, wait::until};
use chandler_sandbox::{
    Sandbox, apply,
    git_server::GitServer,
    plane::Plane,
    process::Child,
    progress::Silent,
    provider::{ClusterKey, cluster_resource},
    repository::ChartRepository,
    sandbox::Options,
    testing,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use crate::{
    documents::{commands_of, root},
    installed_manager,
    providers::{INIT_CORE, Providers, wait_cert_manager_test_deleted},
};

pub const GUIDE: &str = "docs/guides/moving.md";

/// The source or the target management cluster of a move.
struct Side {
    name: &'static str,
    sandbox: Sandbox,
    dir: PathBuf,
}

impl Side {
    /// Creates a management cluster. With `beside`, both share the infrastructure of workload clusters.
    async fn new(name: &'static str, beside: Option<&Self>) -> Self {
        let dir = testing::fresh_dir(name).await.unwrap();
        let options = Options { dir: dir.join("sandbox"), clusters: 0, nodes: 1 };
        let sandbox = match beside {
            Some(other) => other.sandbox.second_management(&options, &Silent).await.unwrap(),
            None => Sandbox::up(testing::assets().await.unwrap(), &options, &Silent).await.unwrap(),
        };
        Self { name, sandbox, dir }
    }

    fn plane(&self) -> &Plane {
        self.sandbox.management()
    }

    fn kubeconfig(&self) -> String {
        self.plane().kubeconfig_path().to_string_lossy().into_owned()
    }

    /// Installs the providers with clusterctl. Each side has its own component files, because the webhooks differ.
    async fn install(&self, shell: &Shell) {
        let client = self.plane().client().await.unwrap();
        let providers = Providers::new(&self.dir.join("providers"), &client).await;
        providers.chandler().await;
        shell.configure_clusterctl(&providers.config());
        let kubeconfig = self.kubeconfig();
        let environment = [("KUBECONFIG", kubeconfig.as_str())];
        shell.expect(INIT_CORE, &environment).await;
        wait_cert_manager_test_deleted(&client).await;
        shell.expect("clusterctl init --addon chandler", &environment).await;
    }

    async fn start_manager(&self) -> Child {
        installed_manager::start(self.plane(), &self.dir, &[]).await
    }

    async fn apply(&self, objects: &[Value]) {
        let client = self.plane().client().await.unwrap();
        for object in objects {
            apply::apply(&client, object).await.unwrap();
        }
    }

    async fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.plane().client().await.unwrap(), "default")
    }

    /// Returns the name of every release object, and the revision at which it is Ready.
    async fn releases(&self) -> Vec<(String, Option<u32>)> {
        let proxies: Vec<HelmReleaseProxy> =
            self.api().await.list(&ListParams::default()).await.unwrap().items;
        let releases: Vec<AddonRelease> = self.api().await.list(&ListParams::default()).await.unwrap().items;
        let proxies = proxies.iter().map(|proxy| (proxy.name_any(), ready_revision(proxy.status.as_ref())));
        let releases =
            releases.iter().map(|release| (release.name_any(), ready_revision(release.status.as_ref())));
        proxies.chain(releases).collect()
    }

    /// Waits until there are `count` release objects and all are Ready.
    async fn wait_ready(&self, count: usize) -> Vec<(String, Option<u32>)> {
        let deadline = std::time::Instant::now() + Duration::from_mins(2);
        loop {
            let releases = self.releases().await;
            if releases.len() == count && releases.iter().all(|(_, revision)| revision.is_some()) {
                return releases;
            }
            assert!(std::time::Instant::now() < deadline, "{}: {releases:?}", self.name);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until a condition of the Sync is true.
    async fn wait_sync(&self, type_: &str) {
        let syncs: Api<SyncObject> = self.api().await;
        until(&format!("the Sync is {type_}"), async || {
            let status = syncs.get("clusters").await.unwrap().status.unwrap_or_default();
            status.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
        })
        .await;
    }

    async fn cluster_exists(&self, name: &str) -> bool {
        let client = self.plane().client().await.unwrap();
        let clusters: Api<DynamicObject> = Api::namespaced_with(client, "default", &cluster_resource());
        clusters.get_opt(name).await.unwrap().is_some()
    }
}

/// Returns a Source, a Sync of its root, and what the Sync needs.
fn gitops(url: &str) -> [Value; 5] {
    let binding = |kind: &str, role: &str, namespace: &str, account: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": role, "namespace": (kind == "RoleBinding").then_some("default")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        })
    };
    let mut admin = binding("ClusterRoleBinding", "cluster-admin", "default", "deployer");
    admin["metadata"] = json!({"name": "deployer"});
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "deployer", "namespace": "default"},
        }),
        admin,
        binding("RoleBinding", "chandler-impersonator", "chandler-system", "chandler-manager"),
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": "git", "namespace": "default"},
            "spec": {"git": {"url": url}, "certificateAuthority": {"name": "ca", "key": "ca.crt"}},
        }),
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": "clusters", "namespace": "default"},
            "spec": {"source": {"sourceRef": {"name": "git"}}, "serviceAccountName": "deployer"},
        }),
    ]
}

/// The Cluster of the test, which the Sync writes.
const CLUSTER: &str = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\n\
                       metadata: {name: alpha, labels: {team: blue}}\n";

/// Returns the revision at which a release is Ready.
fn ready_revision(status: Option<&ReleaseStatus>) -> Option<u32> {
    let status = status?;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (ready.status == "True").then_some(status.revision?)
}

/// Returns a HelmChartProxy and an ExtensionInstance, with the objects that they need.
fn addons(repository: &ChartRepository) -> [Value; 5] {
    [
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "ca", "namespace": "default"},
            "stringData": {"ca.crt": repository.ca_pem()},
        }),
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "namespace": "default"},
            "spec": {
                "clusterSelector": {}, "repoURL": repository.url(), "chartName": "hello", "version": "1.0.0",
                "valuesTemplate": "cluster: {{ .Cluster.metadata.name }}",
                "tlsConfig": {"caSecret": {"name": "ca"}},
            },
        }),
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": "default"},
            "spec": {"url": repository.url(), "certificateAuthority": {"name": "ca", "key": "ca.crt"}},
        }),
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": "greeter", "namespace": "default"},
            "spec": {"versions": [{"version": "1.0.0", "source": {"catalog": {"name": "charts"}, "chart": "hello"}}]},
        }),
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": "greeter", "namespace": "default"},
            "spec": {
                "extension": {"name": "greeter"}, "clusters": {"selector": {}}, "release": {"namespace": "default"},
            },
        }),
    ]
}

async fn stored_revisions(workload: &Plane) -> Vec<(String, Option<String>)> {
    let secrets: Api<Secret> = Api::namespaced(workload.client().await.unwrap(), "default");
    let all = secrets.list(&ListParams::default().labels("owner=helm")).await.unwrap();
    all.into_iter().map(|secret| (secret.name_any(), secret.uid())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_guide_move_running_addons() {
    let shell = Shell::with_clusterctl("move").await;
    let old = Side::new("old", None).await;
    let new = Side::new("new", Some(&old)).await;
    new.install(&shell).await;
    old.install(&shell).await;
    let key = ClusterKey::new("default", "alpha");
    let alpha: Arc<Plane> = old.sandbox.create_cluster(&key, 1, &json!({})).await.unwrap();
    let repository = ChartRepository::start(old.sandbox.authority(), &old.dir.join("charts")).await.unwrap();
    repository.publish(&root().join("examples/charts/hello")).unwrap();
    let (old_manager, new_manager) = (old.start_manager().await, new.start_manager().await);
    old.apply(&addons(&repository)).await;
    let git = GitServer::start(old.sandbox.authority(), &old.dir.join("served")).await.unwrap();
    git.create("fleet").await.unwrap().commit("first", &[("alpha.yaml", CLUSTER)]).await.unwrap();
    old.apply(&gitops(&git.url("fleet"))).await;
    old.wait_sync("Ready").await;
    let before = old.wait_ready(2).await;
    let revisions = stored_revisions(&alpha).await;
    assert_eq!(revisions.len(), 2, "{revisions:?}");

    let mut audit = alpha.audit_log();
    let (from, to) = (old.kubeconfig(), new.kubeconfig());
    for line in commands_of(GUIDE) {
        shell.expect(&line, &[("KUBECONFIG", &from), ("NEW", &to)]).await;
    }
    let after = new.wait_ready(2).await;
    assert_eq!(after, before, "the same objects at the same revisions");
    assert_eq!(old.releases().await, [], "the source has no release objects");
    let instances: Api<ExtensionInstance> = new.api().await;
    assert!(instances.get_opt("greeter").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(stored_revisions(&alpha).await, revisions, "no revision is added, none is lost");
    assert_eq!(audit.chandler_writes().unwrap(), [], "nothing is written to the workload cluster");
    old.wait_sync("Moving").await;
    assert!(!old.cluster_exists("alpha").await && new.cluster_exists("alpha").await);
    let (sources, syncs): (Api<Source>, Api<SyncObject>) = (new.api().await, new.api().await);
    assert!(sources.get_opt("git").await.unwrap().is_some(), "a Source is moved");
    assert!(syncs.get_opt("clusters").await.unwrap().is_none(), "a Sync is not moved");
    assert!(old_manager.is_running() && new_manager.is_running());
}
