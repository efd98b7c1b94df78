//! Runtime hooks that Cluster API calls.

use std::{process::Command, time::Duration};

use chandler_e2e::{
    manager::Manager,
    programs,
    wait::{eventually, eventually_within},
    world::World,
};
use chandler_sandbox::{assets::KubernetesVersion, plane::free_port, provider::cluster_resource, testing};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::crash::wait_helm_status;

const UPGRADE_LIMIT: Duration = Duration::from_mins(2);

/// A manager's runtime hooks.
pub struct Hooks<'w> {
    world: &'w World,
    port: u16,
}

impl<'w> Hooks<'w> {
    pub fn new(world: &'w World) -> Self {
        Self { world, port: free_port().unwrap() }
    }

    /// Starts a manager that serves hooks.
    pub fn start_manager(&self) -> Manager {
        let (endpoint, address) =
            (format!("https://localhost:{}", self.port), format!("127.0.0.1:{}", self.port));
        self.world.start_manager_with(&["--hooks-endpoint", &endpoint, "--hooks-address", &address])
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.client.clone(), &self.world.namespace, &cluster_resource())
    }

    pub async fn patch_cluster(&self, cluster: &str, patch: Value) {
        self.clusters().patch(cluster, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Returns the name of the ExtensionConfig.
    pub fn config_name(&self) -> String {
        format!("chandler-{}", self.world.namespace)
    }

    /// Returns the ExtensionConfig, if it exists.
    pub async fn extension_config(&self) -> Option<DynamicObject> {
        let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
        let configs: Api<DynamicObject> =
            Api::all_with(self.world.client.clone(), &ApiResource::from_gvk(&kind));
        configs.get_opt(&self.config_name()).await.unwrap()
    }

    /// Waits until Cluster API has discovered the hooks with a CA bundle other than `other_than`. Returns the CA bundle.
    pub async fn wait_discovered(&self, other_than: &Value) -> Value {
        eventually("the hooks are discovered", || async {
            let config = self.extension_config().await?;
            let ca_bundle = config.data["spec"]["clientConfig"]["caBundle"].clone();
            let discovered = condition(&config, "Discovered")?;
            let current = discovered["observedGeneration"] == Value::from(config.metadata.generation);
            (discovered["status"] == "True" && current && ca_bundle != *other_than).then_some(ca_bundle)
        })
        .await
    }

    /// Waits until the message of the Cluster's `TopologyReconciled` condition contains this text.
    pub async fn wait_topology_message(&self, cluster: &str, text: &str) {
        let clusters = self.clusters();
        eventually(text, || async {
            let cluster = clusters.get(cluster).await.unwrap();
            condition(&cluster, "TopologyReconciled")?["message"].as_str()?.contains(text).then_some(())
        })
        .await;
    }
}

pub fn condition<'o>(object: &'o DynamicObject, type_: &str) -> Option<&'o Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

#[tokio::test]
async fn a_kubernetes_upgrade_waits_for_running_operations_unless_overridden() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("hooks").await;
    let hooks = Hooks::new(&world);
    let alpha = hooks.world.create_cluster("alpha").await;
    let workload = alpha.client().await.unwrap();
    let first = hooks.start_manager();
    let ca_bundle = hooks.wait_discovered(&Value::Null).await;
    // Both have the same address: only the leader listens.
    let second = hooks.start_manager();
    eventually("the second manager waits for the Lease", || async {
        second.logs().contains("another process leads").then_some(())
    })
    .await;
    assert_eq!(hooks.wait_discovered(&Value::Null).await, ca_bundle);
    // A manager that stops leaves its hooks registered, so that no upgrade starts before the next manager leads.
    first.stop().await;
    assert!(hooks.extension_config().await.is_some());
    hooks.wait_discovered(&ca_bundle).await;

    hooks.world.apply_placement("slow", "slow", json!({"valuesTemplate": "hold: true"})).await;
    wait_helm_status(hooks.world, &alpha, "pending-install").await;
    hooks.patch_cluster("alpha", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    hooks.wait_topology_message("alpha", "BeforeClusterUpgrade: add-ons are being changed: slow").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");
    hooks.patch_cluster("alpha", json!({"metadata": {"annotations": {"chandler.dev/proceed": "*"}}})).await;
    eventually_within(UPGRADE_LIMIT, "the upgrade proceeds", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;

    second.stop().await;
    let unregister = Command::new(programs::chandler())
        .args(["hooks", "unregister", "--namespace", &hooks.world.namespace, "--kubeconfig"])
        .arg(hooks.world.manager_kubeconfig())
        .output()
        .unwrap();
    assert!(unregister.status.success(), "{}", String::from_utf8_lossy(&unregister.stderr));
    assert!(String::from_utf8_lossy(&unregister.stdout).contains(&hooks.config_name()));
    assert!(hooks.extension_config().await.is_none());
}
