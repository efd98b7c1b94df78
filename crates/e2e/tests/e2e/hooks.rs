//! Runtime hooks that Cluster API calls.

use std::{net::TcpStream, process::Command, time::Duration};

use chandler_e2e::{
    manager::Manager,
    programs,
    wait::{eventually, eventually_within, until},
    world::World,
};
use chandler_sandbox::{assets::KubernetesVersion, plane::free_port, provider::cluster_resource, testing};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::crash::wait_helm_status;

const UPGRADE_LIMIT: Duration = Duration::from_mins(4);

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
        self.start_manager_with(&[])
    }

    /// Starts a manager that serves hooks, with additional arguments. As in a Pod, it registers its own address.
    pub fn start_manager_with(&self, arguments: &[&str]) -> Manager {
        let address = self.address();
        let hooks = ["--hooks-pod-ip", "127.0.0.1", "--hooks-address", &address];
        self.world.start_manager_with(&[&hooks, arguments].concat())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
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

    /// Waits until Cluster API has discovered hooks with these failure policies, in the order in which it calls them.
    async fn wait_failure_policies(&self, expected: [&str; 5]) {
        eventually(&format!("the hooks have the failure policies {expected:?}"), || async {
            let config = self.extension_config().await?;
            let handlers = config.data["status"]["handlers"].as_array()?;
            let policies: Vec<_> = handlers.iter().map(|handler| &handler["failurePolicy"]).collect();
            (policies == expected).then_some(())
        })
        .await;
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

/// Returns what `chandler doctor` reports about hooks.
fn doctor(world: &World) -> String {
    let mut command = Command::new(programs::chandler());
    command.args(["doctor", "--namespace", &world.namespace]);
    command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    text.lines().filter(|line| line.contains(" hooks: ")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_kubernetes_upgrade_waits_for_running_operations_unless_overridden() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("hooks").await;
    let (hooks, other) = (Hooks::new(&world), Hooks::new(&world));
    let alpha = hooks.world.create_topology_cluster("alpha").await;
    let workload = alpha.client().await.unwrap();
    assert!(doctor(&world).contains("hooks are off"), "{}", doctor(&world));
    // In a Pod, whose address is known, hooks are registered without a flag. Only a flag lets upgrades wait for a manager.
    let first = hooks.start_manager();
    let ca_bundle = hooks.wait_discovered(&Value::Null).await;
    hooks.wait_failure_policies(["Ignore"; 5]).await;
    let config = hooks.extension_config().await.unwrap();
    assert_eq!(config.data["spec"]["clientConfig"]["url"], format!("https://{}", hooks.address()));
    let discovered =
        "is registered and discovered; if no manager answers, upgrades start (failure policy Ignore)";
    assert!(doctor(&world).contains(discovered), "{}", doctor(&world));
    // Only the leader listens, and its address is registered.
    let second = other.start_manager_with(&["--hooks-failure-policy", "fail"]);
    eventually("the second manager waits for the Lease", || async {
        second.logs().contains("another process leads").then_some(())
    })
    .await;
    assert_eq!(hooks.wait_discovered(&Value::Null).await, ca_bundle);
    assert!(TcpStream::connect(other.address()).is_err(), "the second manager does not listen");
    // With `Ignore`, the registration of a manager that stops would protect nothing: the next one registers its own.
    first.stop().await;
    hooks.wait_discovered(&ca_bundle).await;
    let earlier = config.uid();
    let config = hooks.extension_config().await.unwrap();
    assert_ne!(config.uid(), earlier, "the first manager has unregistered its hooks");
    assert_eq!(config.data["spec"]["clientConfig"]["url"], format!("https://{}", other.address()));
    hooks.wait_failure_policies(["Fail", "Fail", "Ignore", "Ignore", "Fail"]).await;

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

    // With `Fail`, upgrades have to wait for the next manager.
    second.stop().await;
    let config = hooks.extension_config().await.unwrap();
    let unregister = Command::new(programs::chandler())
        .args(["hooks", "unregister", "--namespace", &hooks.world.namespace, "--kubeconfig"])
        .arg(hooks.world.manager_kubeconfig())
        .output()
        .unwrap();
    assert!(unregister.status.success(), "{}", String::from_utf8_lossy(&unregister.stderr));
    assert!(String::from_utf8_lossy(&unregister.stdout).contains(&hooks.config_name()));
    assert!(hooks.extension_config().await.is_none());

    // A manager without hooks unregisters those of an earlier one, which no manager would answer.
    let left = json!({
        "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig",
        "metadata": {"name": hooks.config_name()}, "spec": config.data["spec"],
    });
    hooks.world.apply(&left).await;
    assert!(hooks.extension_config().await.is_some());
    let third = hooks.start_manager_with(&["--hooks-endpoint", "none"]);
    until("the hooks are unregistered", async || hooks.extension_config().await.is_none()).await;
    third.stop().await;
}
