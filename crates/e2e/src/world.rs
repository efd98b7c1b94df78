//! The environment of a test: its own namespace, clusters, a chart repository, and managers that it may kill.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    status::ReleaseStatus,
};
use chandler_sandbox::{
    apply,
    chart::Package,
    fault_proxy::FaultProxy,
    plane::Plane,
    provider::cluster_resource,
    repository::ChartRepository,
    service_account,
    test_record::{self, Record, current_test, since_epoch},
    testing::{self, SharedSandbox},
};
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Secret},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    canary, crds, diagnostics,
    manager::Manager,
    wait::{LIMIT, eventually, pause},
};

static CRDS: OnceCell<()> = OnceCell::const_new();

/// A namespace on the shared management cluster, with a chart repository and workload clusters for one test.
pub struct World {
    pub sandbox: SharedSandbox,
    pub client: Client,
    pub namespace: String,
    pub repository: ChartRepository,
    pub dir: PathBuf,
    _slot: Arc<TestSlot>,
}

/// Tests run in parallel, except those that need the whole machine.
static SLOTS: RwLock<()> = RwLock::const_new(());

/// Permission for a test to run, in parallel with others or exclusively. Its end is recorded.
pub struct TestSlot {
    _permit: Permit,
    test: String,
    start: Duration,
    waited: Duration,
}

enum Permit {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Exclusive { _guard: RwLockWriteGuard<'static, ()> },
}

thread_local! {
    /// The slot of the test that runs on this thread.
    static HELD: Arc<Mutex<Weak<TestSlot>>> = Arc::default();
}

impl TestSlot {
    /// Waits until no test runs exclusively. A test that has a slot gets the same one again: a second one would wait for
    /// exclusive tests, which wait for the first.
    pub async fn shared() -> Arc<Self> {
        let held = HELD.with(Arc::clone);
        let mut held = held.lock().await;
        if let Some(slot) = held.upgrade() {
            return slot;
        }
        let slot = Self::new(async { Permit::Shared { _guard: SLOTS.read().await } }).await;
        *held = Arc::downgrade(&slot);
        slot
    }

    /// Waits until no other test has a slot. The test must not have a slot yet. It belongs into a module
    /// whose tests run last: those after it wait for it.
    pub async fn exclusive() -> Arc<Self> {
        let held = HELD.with(Arc::clone);
        let mut held = held.lock().await;
        assert!(held.upgrade().is_none(), "the test has a slot");
        let slot = Self::new(async { Permit::Exclusive { _guard: SLOTS.write().await } }).await;
        *held = Arc::downgrade(&slot);
        slot
    }

    async fn new(permit: impl Future<Output = Permit>) -> Arc<Self> {
        diagnostics::print_failures_at_once();
        let asked = since_epoch();
        let permit = permit.await;
        let start = since_epoch();
        let waited = start.saturating_sub(asked);
        Arc::new(Self { _permit: permit, test: current_test(), start, waited })
    }
}

impl Drop for TestSlot {
    fn drop(&mut self) {
        test_record::append(&Record::Test {
            test: &self.test,
            start_millis: self.start.as_millis(),
            waited_millis: self.waited.as_millis(),
            ran_millis: since_epoch().saturating_sub(self.start).as_millis(),
            failed: std::thread::panicking(),
        });
    }
}

impl World {
    pub async fn new(name: &str) -> Self {
        Self::with(TestSlot::shared().await, name).await
    }

    /// Returns an environment for a test that must not run in parallel with others, because it has many clusters or
    /// measures a time that Chandler promises.
    pub async fn exclusive(name: &str) -> Self {
        let slot = TestSlot::exclusive().await;
        // A Cluster of a test that has failed may not be deletable.
        let _ = testing::sandbox().await.unwrap().wait_cleaned().await;
        Self::with(slot, name).await
    }

    async fn with(slot: Arc<TestSlot>, name: &str) -> Self {
        let sandbox = testing::sandbox().await.unwrap();
        let client = sandbox.management().client().await.unwrap();
        CRDS.get_or_init(|| crds::install(client.clone())).await;
        let namespace = sandbox.namespace(name).await.unwrap();
        let dir = testing::fresh_dir(name).await.unwrap();
        let repository = ChartRepository::start(sandbox.authority(), &dir.join("charts")).await.unwrap();
        for folder in [hello(), chart("slow"), chart("stubborn")] {
            repository.publish(&folder).unwrap();
        }
        let world = Self { sandbox, client, namespace, repository, dir, _slot: slot };
        let kubeconfig =
            service_account::kubeconfig(sandbox.management(), "chandler-system", "chandler-manager").await;
        std::fs::write(world.manager_kubeconfig(), kubeconfig.unwrap()).unwrap();
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": world.namespace},
            "stringData": {"ca.crt": world.repository.ca_pem()},
        });
        world.apply(&ca).await;
        world
    }

    /// Creates a Cluster with one Node and waits until it is Available.
    pub async fn create_cluster(&self, name: &str) -> Arc<Plane> {
        self.sandbox.cluster(&self.namespace, name, 1, &[("fleet", "test")]).await.unwrap()
    }

    /// Like [`Self::create_cluster`], for a test of a Cluster with a topology.
    pub async fn create_topology_cluster(&self, name: &str) -> Arc<Plane> {
        self.sandbox.topology_cluster(&self.namespace, name, 1, &[("fleet", "test")]).await.unwrap()
    }

    /// Returns the kubeconfig of the manager, which has the permissions that Chandler is shipped with.
    pub fn manager_kubeconfig(&self) -> PathBuf {
        self.dir.join("manager-kubeconfig")
    }

    /// Starts a proxy in front of the management API server. Returns it with the path of a kubeconfig that uses it.
    pub async fn management_proxy(&self) -> (FaultProxy, String) {
        let port = self.sandbox.management().port();
        let proxy = FaultProxy::start(port).await.unwrap();
        let kubeconfig = std::fs::read_to_string(self.manager_kubeconfig()).unwrap();
        let path = self.dir.join("proxied-kubeconfig");
        std::fs::write(&path, kubeconfig.replace(&format!(":{port}"), &format!(":{}", proxy.port())))
            .unwrap();
        (proxy, path.to_string_lossy().into_owned())
    }

    /// Starts a proxy in front of the API server of a workload cluster, and lets managers reach the cluster through it.
    pub async fn interpose(&self, plane: &Plane) -> FaultProxy {
        let proxy = FaultProxy::start(plane.port()).await.unwrap();
        let ports = [plane.port(), proxy.port()].map(|port| format!(":{port}"));
        let kubeconfig = plane.kubeconfig().replace(&ports[0], &ports[1]);
        let patch = Patch::Merge(json!({"stringData": {"value": kubeconfig}}));
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = format!("{}-kubeconfig", plane.name());
        secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        proxy
    }

    pub fn start_manager(&self) -> Manager {
        self.start_manager_with(&[])
    }

    /// Starts a manager with additional arguments.
    pub fn start_manager_with(&self, arguments: &[&str]) -> Manager {
        Manager::start(self, 15, arguments)
    }

    /// Starts a manager whose Lease does not expire while the machine is overloaded.
    pub fn start_manager_with_long_lease(&self) -> Manager {
        Manager::start(self, 30, &[])
    }

    /// Applies a HelmChartProxy for a chart of the test's repository; `fields` replaces fields of its spec.
    pub async fn apply_placement(&self, name: &str, chart: &str, fields: Value) {
        self.apply_annotated_placement(name, chart, json!({}), fields).await;
    }

    /// Like [`Self::apply_placement`], with annotations from the beginning.
    pub async fn apply_annotated_placement(
        &self,
        name: &str,
        chart: &str,
        annotations: Value,
        fields: Value,
    ) {
        let mut spec = json!({
            "clusterSelector": {"matchLabels": {"fleet": "test"}}, "repoURL": self.repository.url(),
            "chartName": chart, "version": "1.0.0", "releaseName": name, "namespace": "default",
            "tlsConfig": {"caSecret": {"name": "ca"}},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        // Every template contains a secret, in a comment that changes no value.
        if let Some(template) = spec["valuesTemplate"].as_str() {
            spec["valuesTemplate"] = format!("{template}\n# canary-of-{name}\n").into();
        }
        self.apply(&json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations}, "spec": spec,
        }))
        .await;
    }

    pub async fn apply(&self, object: &Value) {
        apply::apply(&self.client, object).await.unwrap();
    }

    /// Changes the spec of a HelmChartProxy by a merge patch.
    pub async fn patch_placement(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.placements().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete_placement(&self, name: &str) {
        self.placements().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &cluster_resource())
    }

    pub fn placements(&self) -> Api<HelmChartProxy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn releases(&self) -> Api<HelmReleaseProxy> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns the release objects of a placement.
    pub async fn releases_of(&self, placement: &str) -> Vec<HelmReleaseProxy> {
        let owned = format!("helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name={placement}");
        self.releases().list(&ListParams::default().labels(&owned)).await.unwrap().items
    }

    /// Returns the release object of a placement on a cluster.
    pub async fn release(&self, placement: &str, cluster: &str) -> Option<HelmReleaseProxy> {
        let all = self.releases_of(placement).await;
        all.into_iter().find(|release| release.spec.cluster_ref.name.as_deref() == Some(cluster))
    }

    /// Waits until the release is Ready at this revision.
    pub async fn wait_ready(&self, placement: &str, cluster: &str, revision: u32) -> ReleaseStatus {
        self.wait_status(placement, cluster, &format!("Ready at revision {revision}"), |status| {
            condition(status, "Ready").is_some_and(|c| c.status == "True")
                && status.revision == Some(revision)
        })
        .await
    }

    /// Waits until the release is Ready. Returns its revision.
    pub async fn wait_ready_at_any_revision(&self, placement: &str, cluster: &str) -> u32 {
        let ready = |status: &ReleaseStatus| condition(status, "Ready").is_some_and(|c| c.status == "True");
        self.wait_status(placement, cluster, "Ready", ready).await.revision.unwrap()
    }

    /// Waits until the status of the release is up to date and satisfies a predicate.
    pub async fn wait_status(
        &self,
        placement: &str,
        cluster: &str,
        what: &str,
        predicate: impl Fn(&ReleaseStatus) -> bool,
    ) -> ReleaseStatus {
        let (mut last, start) = (None, Instant::now());
        while start.elapsed() < LIMIT {
            last = self.release(placement, cluster).await;
            let current = last.as_ref().and_then(|release| {
                release.status.clone().filter(|s| s.observed_generation == release.metadata.generation)
            });
            if let Some(status) = current.filter(&predicate) {
                return status;
            }
            pause(start).await;
        }
        panic!(
            "{placement} on {cluster} is not {what}; last seen: {:#?}",
            last.map(|release| release.status)
        );
    }

    /// Returns the notes of the Events of the namespace with this reason.
    pub async fn event_notes(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        all.filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|event| event.note).collect()
    }

    /// Waits until the placement is deleted, and checks that its release objects are deleted too.
    pub async fn wait_deleted(&self, placement: &str) {
        eventually(&format!("{placement} is deleted"), || async {
            self.placements().get_opt(placement).await.unwrap().is_none().then_some(())
        })
        .await;
        assert_eq!(self.releases_of(placement).await, [], "releases are deleted before their placement");
    }

    /// Writes the archive of a chart to a file, for the helm CLI.
    pub fn archive(&self, folder: &Path) -> PathBuf {
        let package = Package::pack(folder, None).unwrap();
        let path = self.dir.join(package.file_name());
        std::fs::write(&path, &package.bytes).unwrap();
        path
    }
}

impl World {
    /// Fails the test if objects, logs of its managers, the store, or temporary files contain a secret.
    fn assert_no_leaks(&self) {
        let secrets = self.secrets();
        let objects = [self.events().unwrap(), self.reporting_objects().unwrap()].concat();
        let mut outputs = canary::objects(&objects);
        for folder in ["logs", "store", "tmp"] {
            outputs.extend(canary::files(&self.dir.join(folder)));
        }
        canary::assert_no_leaks(&secrets, &outputs);
    }

    /// Returns the secret values of the namespace and of the manager's kubeconfig.
    pub fn secrets(&self) -> canary::Secrets {
        let mut secrets = self.manager_secrets();
        secrets.extend(canary::Secrets::of_objects(&self.secret_objects().unwrap()));
        secrets
    }

    pub fn manager_secrets(&self) -> canary::Secrets {
        canary::Secrets::of_kubeconfig(
            &std::fs::read_to_string(self.manager_kubeconfig()).unwrap_or_default(),
        )
    }
}

/// Deletes the clusters of the test: dozens of idle API servers would slow down the tests that follow.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.sandbox.discard(&self.namespace);
            diagnostics::print(self);
            diagnostics::keep_clusters(self);
        } else {
            self.assert_no_leaks();
        }
        // Errors are ignored: after a failure there may be no cluster to delete, or no API server to ask.
        let _ = self.delete_clusters();
    }
}

pub fn condition<'a>(status: &'a ReleaseStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns the folder of the example chart.
pub fn hello() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/charts/hello")
}

/// Returns the folder of a chart of these tests.
pub fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/charts").join(name)
}

/// Returns a value of a ConfigMap in namespace `default` of a workload cluster.
pub async fn config_value(plane: &Plane, name: &str, key: &str) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    maps.get_opt(name).await.unwrap()?.data?.remove(key)
}

/// Returns the finalizers of a release object.
pub fn finalizers(object: &HelmReleaseProxy) -> Vec<String> {
    object.finalizers().to_vec()
}
