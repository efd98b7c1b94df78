//! What Cluster API asks the manager.

use std::{process::Command, time::Duration};

use chandler_e2e::{
    manager::Manager,
    programs,
    wait::{eventually, eventually_within},
    world::World,
};
use chandler_sandbox::{
    apply, assets::KubernetesVersion, plane::free_port, provider::cluster_resource, testing,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::crash::pending;

const UPGRADE_LIMIT: Duration = Duration::from_mins(2);

pub struct Hooks<'w> {
    world: &'w World,
    port: u16,
}

impl<'w> Hooks<'w> {
    pub fn of(world: &'w World) -> Self {
        Self { world, port: free_port().unwrap() }
    }

    /// A manager that serves hooks.
    pub fn manager(&self) -> Manager {
        let (endpoint, address) =
            (format!("https://localhost:{}", self.port), format!("127.0.0.1:{}", self.port));
        self.world.manager_with(&["--hooks-endpoint", &endpoint, "--hooks-address", &address])
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.world.client.clone(), &self.world.namespace, &cluster_resource())
    }

    pub async fn change(&self, cluster: &str, change: Value) {
        self.clusters().patch(cluster, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    pub fn name(&self) -> String {
        format!("chandler-{}", self.world.namespace)
    }

    /// The ExtensionConfig, if there is one.
    pub async fn registered(&self) -> Option<DynamicObject> {
        let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
        let configs: Api<DynamicObject> =
            Api::all_with(self.world.client.clone(), &ApiResource::from_gvk(&kind));
        configs.get_opt(&self.name()).await.unwrap()
    }

    /// Waits until Cluster API has found the hooks behind an authority other than this one. Returns the new one.
    pub async fn discovered(&self, other_than: &Value) -> Value {
        eventually("the hooks are discovered", || async {
            let config = self.registered().await?;
            let authority = config.data["spec"]["clientConfig"]["caBundle"].clone();
            let discovered = condition(&config, "Discovered")?;
            let current = discovered["observedGeneration"] == Value::from(config.metadata.generation);
            (discovered["status"] == "True" && current && authority != *other_than).then_some(authority)
        })
        .await
    }

    /// Waits until the Cluster says this of its topology.
    pub async fn topology_says(&self, cluster: &str, words: &str) {
        let clusters = self.clusters();
        eventually(words, || async {
            let cluster = clusters.get(cluster).await.unwrap();
            condition(&cluster, "TopologyReconciled")?["message"].as_str()?.contains(words).then_some(())
        })
        .await;
    }
}

pub fn condition<'o>(object: &'o DynamicObject, kind: &str) -> Option<&'o Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

#[tokio::test]
async fn an_upgrade_waits_for_operations_and_goes_on_when_a_person_says_so() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let world = World::new("hooks").await;
    let hooks = Hooks::of(&world);
    apply::apply_all(&hooks.world.client, include_str!("../../../../deploy/hooks.yaml")).await.unwrap();
    let alpha = hooks.world.cluster("alpha").await;
    let workload = alpha.client().await.unwrap();
    let first = hooks.manager();
    let authority = hooks.discovered(&Value::Null).await;
    // At the same address: one that does not lead does not listen.
    let second = hooks.manager();
    eventually("the second one waits", || async {
        second.logs().contains("another process leads").then_some(())
    })
    .await;
    assert_eq!(hooks.discovered(&Value::Null).await, authority);
    // One that ends leaves them registered: an upgrade does not slip through between it and the next one.
    first.stop().await;
    assert!(hooks.registered().await.is_some());
    hooks.discovered(&authority).await;

    hooks.world.place("slow", "slow", json!({"valuesTemplate": "hold: true"})).await;
    pending(hooks.world, &alpha, "pending-install").await;
    hooks.change("alpha", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    hooks.topology_says("alpha", "BeforeClusterUpgrade: add-ons are being changed: slow").await;
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");
    hooks.change("alpha", json!({"metadata": {"annotations": {"chandler.dev/proceed": "*"}}})).await;
    eventually_within(UPGRADE_LIMIT, "the upgrade goes on", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;

    second.stop().await;
    let unregister = Command::new(programs::chandler())
        .args(["hooks", "unregister", "--namespace", &hooks.world.namespace, "--kubeconfig"])
        .arg(hooks.world.manager_config())
        .output()
        .unwrap();
    assert!(unregister.status.success(), "{}", String::from_utf8_lossy(&unregister.stderr));
    assert!(String::from_utf8_lossy(&unregister.stdout).contains(&hooks.name()));
    assert!(hooks.registered().await.is_none());
}
