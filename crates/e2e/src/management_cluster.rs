//! A management cluster for a single test: for tests that would disturb others, and for measurements.

use std::{path::PathBuf, process::Command, sync::Arc};

use chandler_sandbox::{
    apply,
    capi::{Core, RuntimeSdk},
    certificates::Authority,
    crds::cluster_without_schema,
    plane::Plane,
    process::{Child, Spec},
    provider::cluster_resource,
    service_account, testing,
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;

use crate::{crds, programs, world::TestSlot};

/// Long enough for a machine that is overloaded.
const LEASE_SECONDS: u32 = 60;

/// A management cluster with Chandler's CRDs and a schemaless CRD for Cluster. The Cluster API does not run on it.
pub struct ManagementCluster {
    pub plane: Plane,
    pub client: Client,
    dir: PathBuf,
    _slot: Arc<TestSlot>,
}

impl ManagementCluster {
    pub async fn new(name: &str) -> Self {
        let slot = TestSlot::shared().await;
        let plane = testing::bare_plane().await.unwrap();
        let client = plane.client().await.unwrap();
        apply::apply(&client, &cluster_without_schema()).await.unwrap();
        Self::on(plane, client, name, slot).await
    }

    /// A management cluster on which the Cluster API runs, without providers: Clusters do not become available.
    pub async fn with_cluster_api(name: &str, runtime_sdk: RuntimeSdk) -> (Self, Core) {
        let slot = TestSlot::shared().await;
        let plane = testing::bare_plane().await.unwrap();
        let client = plane.client().await.unwrap();
        let (assets, home) = (testing::assets().await.unwrap(), testing::fresh_dir("capi").await.unwrap());
        let authority = Authority::open(&home.join("pki"), name).unwrap();
        let core = Core::start(assets, &plane, &client, &authority, &home, runtime_sdk).await.unwrap();
        (Self::on(plane, client, name, slot).await, core)
    }

    /// Installs Chandler.
    async fn on(plane: Plane, client: Client, name: &str, slot: Arc<TestSlot>) -> Self {
        let dir = testing::fresh_dir(name).await.unwrap();
        crds::install(client.clone()).await;
        let kubeconfig =
            service_account::kubeconfig(&plane, "chandler-system", "chandler-manager").await.unwrap();
        std::fs::write(dir.join("kubeconfig"), kubeconfig).unwrap();
        Self { plane, client, dir, _slot: slot }
    }

    /// Sets the status of a Cluster in namespace `default` that the Cluster API sets once the control plane runs.
    pub async fn set_control_plane_initialized(&self, cluster: &str) {
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &cluster_resource());
        let initialized = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        clusters.patch_status(cluster, &PatchParams::default(), &Patch::Merge(initialized)).await.unwrap();
    }

    /// Runs a manager until it exits or 60 seconds have passed. Returns whether it succeeded, and its stderr.
    pub async fn run_manager(&self) -> (bool, String) {
        self.run_manager_with(&[]).await
    }

    /// Like [`Self::run_manager`], with additional arguments.
    pub async fn run_manager_with(&self, additional: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.arg("60").arg(programs::chandler()).args(self.arguments(LEASE_SECONDS)).args(additional);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub fn start_manager(&self) -> Child {
        self.start_manager_with(&[])
    }

    /// Starts a manager with additional arguments.
    pub fn start_manager_with(&self, additional: &[&str]) -> Child {
        self.start_manager_with_environment(additional, Vec::new())
    }

    /// Starts a manager with additional arguments and an environment.
    pub fn start_manager_with_environment(&self, additional: &[&str], env: Vec<(String, String)>) -> Child {
        self.spawn_manager(LEASE_SECONDS, additional, env)
    }

    /// Starts a manager whose successor takes over soon after it was killed.
    pub fn start_manager_with_lease(&self, seconds: u32) -> Child {
        self.spawn_manager(seconds, &[], Vec::new())
    }

    fn spawn_manager(&self, lease_seconds: u32, additional: &[&str], env: Vec<(String, String)>) -> Child {
        let program = PathBuf::from(programs::chandler());
        let mut args = self.arguments(lease_seconds);
        args.extend(additional.iter().map(|argument| (*argument).to_owned()));
        let spec = Spec { name: "manager".to_owned(), program, args, env, home: self.dir.clone() };
        Child::spawn(&spec).unwrap()
    }

    /// Returns the folder in which managers store what they have fetched.
    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    fn arguments(&self, lease_seconds: u32) -> Vec<String> {
        let tool = programs::package_tool();
        let path = |name: &str| self.dir.join(name).to_string_lossy().into_owned();
        let arguments =
            ["manager", "--kubeconfig", &path("kubeconfig"), "--store", &path("store"), "--tool", tool];
        arguments
            .map(str::to_owned)
            .into_iter()
            .chain(["--allow-address", "127.0.0.1"].map(str::to_owned))
            .chain(["--source-min-interval-seconds", "1", "--lease-seconds"].map(str::to_owned))
            .chain([lease_seconds.to_string()])
            .chain(["--metrics-address", "127.0.0.1:0", "--log-format", "json"].map(str::to_owned))
            .collect()
    }
}
