//! The environment of a test: a namespace with its own hooks on the shared sandbox.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chandler_core::{extension::AnnouncedUpgrade, identity::ClusterKey};
use chandler_hooks::{
    Caller, Endpoint, FailurePolicy, Hook, HookCall, HookHandler, HookResponse, HookServer, Options,
    Registration,
};
use chandler_sandbox::{
    plane::free_port,
    provider::cluster_resource,
    testing::{self, SharedSandbox},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::Value;

pub const TIMEOUT: Duration = Duration::from_mins(2);

pub struct TestEnv {
    pub sandbox: SharedSandbox,
    pub client: Client,
    pub namespace: String,
    pub options: Options,
}

impl TestEnv {
    /// Prepares hooks for the Clusters of one namespace, without server them yet.
    pub async fn new(name: &str) -> Self {
        let sandbox = testing::sandbox().await.unwrap();
        let namespace = sandbox.namespace(name).await.unwrap();
        let port = free_port().unwrap();
        let only_here = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), namespace.clone())]);
        let options = Options {
            address: ([127, 0, 0, 1], port).into(),
            registration: Registration {
                name: namespace.clone(),
                endpoint: Endpoint::url(&format!("https://localhost:{port}")).unwrap(),
                namespaces: LabelSelector { match_labels: Some(only_here), ..LabelSelector::default() },
                owners: Vec::new(),
            },
            failure_policy: FailurePolicy::Fail,
            certificate_lifetime: chandler_hooks::CERTIFICATE_LIFETIME,
            unreachable_limit: chandler_hooks::UNREACHABLE_LIMIT,
        };
        Self { client: sandbox.management().client().await.unwrap(), sandbox, namespace, options }
    }

    pub async fn serve(&self, handler: &Arc<ScriptedHandler>) -> HookServer {
        chandler_hooks::start(self.client.clone(), self.options.clone(), handler.clone()).await.unwrap()
    }

    pub fn extension_configs(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &cluster_resource())
    }

    /// Waits until Cluster API has discovered the current generation of the ExtensionConfig, and returns it.
    pub async fn wait_for_discovery(&self) -> DynamicObject {
        let configs = self.extension_configs();
        wait_for("discovered", async || {
            let config = configs.get_opt(&self.options.registration.name).await.unwrap()?;
            let condition = condition(&config, "Discovered")?;
            let current = condition["observedGeneration"] == Value::from(config.metadata.generation);
            // Cluster API writes the conditions first, then the handlers.
            let listed = config.data["status"]["handlers"].is_array();
            (condition["status"] == "True" && current && listed).then_some(config)
        })
        .await
    }

    pub async fn patch(&self, cluster: &str, change: Value) {
        self.clusters().patch(cluster, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    /// Waits until an upgrade is complete.
    pub async fn wait_for_upgrade(&self, cluster: &str, version: &str) {
        let clusters = self.clusters();
        wait_for(version, async || {
            let cluster = clusters.get(cluster).await.unwrap();
            let pending = cluster.annotations().contains_key("runtime.cluster.x-k8s.io/pending-hooks");
            let condition = condition(&cluster, "TopologyReconciled")?;
            // Otherwise the condition may be older than the new version.
            let is_current = condition["observedGeneration"].as_i64() == cluster.metadata.generation;
            let reconciled = is_current && condition["status"] == "True";
            let has_version = cluster.data["spec"]["topology"]["version"] == version;
            (has_version && reconciled && !pending).then_some(())
        })
        .await;
    }

    /// Waits until the `TopologyReconciled` condition of the Cluster contains `text`.
    pub async fn wait_for_topology_message(&self, cluster: &str, text: &str) {
        let clusters = self.clusters();
        wait_for(text, async || {
            let cluster = clusters.get(cluster).await.unwrap();
            let condition = condition(&cluster, "TopologyReconciled")?;
            condition["message"].as_str()?.contains(text).then_some(())
        })
        .await;
    }
}

/// Returns configured responses, and records the calls.
#[derive(Default)]
pub struct ScriptedHandler {
    response: Mutex<Option<(Hook, HookResponse)>>,
    calls: Mutex<Vec<String>>,
}

impl ScriptedHandler {
    /// Sets the response of one hook. All other hooks proceed.
    pub fn set_response(&self, hook: Hook, response: HookResponse) {
        *self.response.lock().unwrap() = Some((hook, response));
    }

    pub fn clear_response(&self) {
        *self.response.lock().unwrap() = None;
    }

    /// Returns the distinct calls, in the order in which they were first made.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl HookHandler for ScriptedHandler {
    fn respond(&self, cluster: &ClusterKey, call: HookCall<'_>, _: &Caller) -> HookResponse {
        use AnnouncedUpgrade::{Step, Whole};
        let (hook, versions) = match call {
            HookCall::BeforeUpgrade(Whole { from, to }) => (Hook::BeforeClusterUpgrade, vec![from, to]),
            HookCall::BeforeUpgrade(Step { from, to }) => (Hook::BeforeControlPlaneUpgrade, vec![from, to]),
            HookCall::AfterControlPlaneUpgrade { version } => (Hook::AfterControlPlaneUpgrade, vec![version]),
            HookCall::AfterClusterUpgrade { version } => (Hook::AfterClusterUpgrade, vec![version]),
            HookCall::BeforeClusterDelete => (Hook::BeforeClusterDelete, Vec::new()),
        };
        let call = [&[hook.name(), &cluster.name][..], &versions].concat().join(" ");
        let mut calls = self.calls.lock().unwrap();
        if !calls.contains(&call) {
            calls.push(call);
        }
        match &*self.response.lock().unwrap() {
            Some((configured, response)) if *configured == hook => response.clone(),
            _ => HookResponse::Proceed,
        }
    }
}

pub fn condition<'o>(object: &'o DynamicObject, kind: &str) -> Option<&'o Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

pub async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(result) = check().await {
            return result;
        }
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
