//! What a test stands in: a namespace of its own, clusters, a chart repository, and managers it may kill.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    status::ReleaseStatus,
};
use chandler_sandbox::{
    apply,
    chart::Package,
    plane::Plane,
    repository::ChartRepository,
    service_account,
    testing::{self, SharedSandbox},
};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    canary, diagnostics,
    manager::Manager,
    wait::{LIMIT, eventually},
};

static KINDS: OnceCell<()> = OnceCell::const_new();

pub struct World {
    pub sandbox: SharedSandbox,
    pub client: Client,
    pub namespace: String,
    pub repository: ChartRepository,
    pub dir: PathBuf,
    _turn: Turn,
}

/// Tests run side by side, but for those that need the whole machine.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// A test's right to run.
pub enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    async fn shared() -> Self {
        Self::Shared { _guard: MACHINE.read().await }
    }

    pub async fn alone() -> Self {
        Self::Alone { _guard: MACHINE.write().await }
    }
}

impl World {
    pub async fn new(name: &str) -> Self {
        Self::with(Turn::shared().await, name).await
    }

    /// For a test with so many clusters that others would be starved.
    pub async fn alone(name: &str) -> Self {
        Self::with(Turn::alone().await, name).await
    }

    async fn with(turn: Turn, name: &str) -> Self {
        let sandbox = testing::sandbox().await.unwrap();
        let client = sandbox.management().client().await.unwrap();
        KINDS.get_or_init(|| install_kinds(client.clone())).await;
        let namespace = sandbox.namespace(name).await.unwrap();
        let dir = testing::fresh_dir(name).await.unwrap();
        let repository = ChartRepository::start(sandbox.authority(), &dir.join("charts")).await.unwrap();
        for folder in [hello(), chart("slow"), chart("stubborn")] {
            repository.publish(&folder).unwrap();
        }
        let world = Self { sandbox, client, namespace, repository, dir, _turn: turn };
        let config =
            service_account::kubeconfig(sandbox.management(), "chandler-system", "chandler-manager").await;
        std::fs::write(world.manager_config(), config.unwrap()).unwrap();
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": world.namespace},
            "stringData": {"ca.crt": world.repository.ca_pem()},
        });
        world.apply(&ca).await;
        world
    }

    pub async fn cluster(&self, name: &str) -> Arc<Plane> {
        self.sandbox.cluster(&self.namespace, name, 1, &[("fleet", "test")]).await.unwrap()
    }

    /// The rights that Chandler ships with, never an administrator's.
    pub fn manager_config(&self) -> PathBuf {
        self.dir.join("manager-kubeconfig")
    }

    pub fn manager(&self) -> Manager {
        self.manager_with(&[])
    }

    /// A manager with further arguments.
    pub fn manager_with(&self, arguments: &[&str]) -> Manager {
        Manager::start(self, 15, arguments)
    }

    /// With a Lease that lasts on a machine with more to do than it can.
    pub fn patient_manager(&self) -> Manager {
        Manager::start(self, 30, &[])
    }

    /// A HelmChartProxy of a chart of this world's repository; `changes` is merged into its spec.
    pub async fn place(&self, name: &str, chart: &str, changes: Value) {
        let mut spec = json!({
            "clusterSelector": {"matchLabels": {"fleet": "test"}}, "repoURL": self.repository.url(),
            "chartName": chart, "version": "1.0.0", "releaseName": name, "namespace": "default",
            "tlsConfig": {"caSecret": {"name": "ca"}},
        });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        // A secret in every template: a comment changes no value.
        if let Some(template) = spec["valuesTemplate"].as_str() {
            spec["valuesTemplate"] = format!("{template}\n# canary-of-{name}\n").into();
        }
        self.apply(&json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        }))
        .await;
    }

    pub async fn apply(&self, object: &Value) {
        apply::apply(&self.client, object).await.unwrap();
    }

    pub async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.placements().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.placements().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub fn placements(&self) -> Api<HelmChartProxy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn releases(&self) -> Api<HelmReleaseProxy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The release objects of a placement.
    pub async fn releases_of(&self, placement: &str) -> Vec<HelmReleaseProxy> {
        let owned = format!("helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name={placement}");
        self.releases().list(&ListParams::default().labels(&owned)).await.unwrap().items
    }

    /// The release object of a placement on a cluster.
    pub async fn release(&self, placement: &str, cluster: &str) -> Option<HelmReleaseProxy> {
        let all = self.releases_of(placement).await;
        all.into_iter().find(|release| release.spec.cluster_ref.name.as_deref() == Some(cluster))
    }

    /// Waits until the release is Ready at this revision.
    pub async fn ready(&self, placement: &str, cluster: &str, revision: u32) -> ReleaseStatus {
        self.status(placement, cluster, &format!("Ready at revision {revision}"), |status| {
            condition(status, "Ready").is_some_and(|c| c.status == "True")
                && status.revision == Some(revision)
        })
        .await
    }

    /// Waits until the release is Ready; returns its revision.
    pub async fn ready_at_any_revision(&self, placement: &str, cluster: &str) -> u32 {
        let ready = |status: &ReleaseStatus| condition(status, "Ready").is_some_and(|c| c.status == "True");
        self.status(placement, cluster, "Ready", ready).await.revision.unwrap()
    }

    /// Waits until the release's status is as wanted, for its present generation.
    pub async fn status(
        &self,
        placement: &str,
        cluster: &str,
        what: &str,
        wanted: impl Fn(&ReleaseStatus) -> bool,
    ) -> ReleaseStatus {
        let mut last = None;
        for _ in 0..LIMIT.as_millis() / 100 {
            last = self.release(placement, cluster).await;
            let current = last.as_ref().and_then(|release| {
                release.status.clone().filter(|s| s.observed_generation == release.metadata.generation)
            });
            if let Some(status) = current.filter(&wanted) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!(
            "{placement} on {cluster} is not {what}; last seen: {:#?}",
            last.map(|release| release.status)
        );
    }

    /// Waits until the placement and its releases are gone.
    pub async fn gone(&self, placement: &str) {
        eventually(&format!("{placement} is gone"), || async {
            self.placements().get_opt(placement).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_eq!(self.releases_of(placement).await, [], "releases go before their placement");
    }

    /// A chart's archive on disk, for the helm CLI.
    pub fn archive(&self, folder: &Path) -> PathBuf {
        let package = Package::pack(folder, None).unwrap();
        let path = self.dir.join(package.file_name());
        std::fs::write(&path, &package.bytes).unwrap();
        path
    }
}

impl World {
    /// What is left of it tells no secret: objects, logs of its managers, the store, and files they left.
    fn check_canaries(&self) {
        let secrets = self.secrets();
        let mut told = canary::objects(&self.objects(&format!("events,{TELLING}")));
        for folder in ["logs", "store", "tmp"] {
            told.extend(canary::files(&self.dir.join(folder)));
        }
        canary::check(&secrets, &told);
    }

    /// All that are in it: of its Secrets, and of the manager's own kubeconfig.
    pub fn secrets(&self) -> canary::Secrets {
        let mut secrets = self.manager_secrets();
        secrets.extend(canary::Secrets::of_objects(&self.objects("secrets")));
        secrets
    }

    fn objects(&self, kinds: &str) -> Value {
        let listed = self.kubectl(&["get", kinds, "--output", "json", "--namespace", &self.namespace]);
        serde_json::from_str(&listed).unwrap()
    }

    pub fn manager_secrets(&self) -> canary::Secrets {
        canary::Secrets::of_kubeconfig(&std::fs::read_to_string(self.manager_config()).unwrap_or_default())
    }
}

/// Kinds in whose conditions Chandler tells something.
pub const TELLING: &str = "clusters.cluster.x-k8s.io,helmchartproxies,helmreleaseproxies,extensions,extensioncatalogs,\
                           extensioninstances,addonreleases";

/// Its clusters go with it: dozens of idle API servers would take the machine from the tests that follow.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            diagnostics::show(self);
        } else {
            self.check_canaries();
        }
        let clusters = ["delete", "clusters.cluster.x-k8s.io", "--all", "--wait=false"];
        // A test that has failed may have left nothing to delete, or nobody to ask.
        let _ = self.kubectl_command(&clusters).args(["--namespace", &self.namespace]).output();
    }
}

pub fn condition<'a>(status: &'a ReleaseStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

/// The example chart.
pub fn hello() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/charts/hello")
}

/// A chart of these tests.
pub fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/charts").join(name)
}

/// A value of a ConfigMap in `default` on a workload cluster.
pub async fn config_value(plane: &Plane, name: &str, key: &str) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    maps.get_opt(name).await.unwrap()?.data?.remove(key)
}

async fn install_kinds(client: Client) {
    for crd in chandler_api::crds() {
        apply::apply(&client, &serde_json::to_value(&crd).unwrap()).await.unwrap();
    }
    apply::apply_all(&client, include_str!("../../../deploy/rbac.yaml")).await.unwrap();
    let all: Api<HelmReleaseProxy> = Api::all(client);
    eventually("the kinds are served", || async { all.list(&ListParams::default().limit(1)).await.ok() })
        .await;
}

/// The finalizers of an object, for assertions.
pub fn finalizers(object: &HelmReleaseProxy) -> Vec<String> {
    object.finalizers().to_vec()
}
