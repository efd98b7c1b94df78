//! A namespace with hooks of its own on the shared sandbox.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chandler_core::identity::ClusterKey;
use chandler_hooks::{Answer, Answers, Endpoint, FailurePolicy, Hook, Options, Registration, Serving};
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

pub const LIMIT: Duration = Duration::from_mins(2);

pub struct World {
    pub sandbox: SharedSandbox,
    pub client: Client,
    pub namespace: String,
    pub options: Options,
}

impl World {
    /// Hooks for the Clusters of one namespace, not yet served.
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
            before_upgrade: FailurePolicy::Fail,
            lifetime: chandler_hooks::LIFETIME,
        };
        Self { client: sandbox.management().client().await.unwrap(), sandbox, namespace, options }
    }

    pub async fn serve(&self, script: &Arc<Script>) -> Serving {
        chandler_hooks::start(self.client.clone(), self.options.clone(), script.clone()).await.unwrap()
    }

    pub fn extension_configs(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &cluster_resource())
    }

    /// The ExtensionConfig, once Cluster API has discovered it as it is.
    pub async fn discovered(&self) -> DynamicObject {
        let configs = self.extension_configs();
        until("discovered", async || {
            let config = configs.get_opt(&self.options.registration.name).await.unwrap()?;
            let condition = condition(&config, "Discovered")?;
            let current = condition["observedGeneration"] == Value::from(config.metadata.generation);
            (condition["status"] == "True" && current).then_some(config)
        })
        .await
    }

    pub async fn patch(&self, cluster: &str, change: Value) {
        self.clusters().patch(cluster, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    /// Waits until an upgrade is over.
    pub async fn upgraded(&self, cluster: &str, version: &str) {
        let clusters = self.clusters();
        until(version, async || {
            let cluster = clusters.get(cluster).await.unwrap();
            let pending = cluster.annotations().contains_key("runtime.cluster.x-k8s.io/pending-hooks");
            let reconciled = condition(&cluster, "TopologyReconciled")?["status"] == "True";
            let wanted = cluster.data["spec"]["topology"]["version"] == version;
            (wanted && reconciled && !pending).then_some(())
        })
        .await;
    }

    /// What the Cluster says of its topology, once that contains the words.
    pub async fn topology_says(&self, cluster: &str, words: &str) {
        let clusters = self.clusters();
        until(words, async || {
            let cluster = clusters.get(cluster).await.unwrap();
            let condition = condition(&cluster, "TopologyReconciled")?;
            condition["message"].as_str()?.contains(words).then_some(())
        })
        .await;
    }
}

/// Answers as it is told, and notes what it was asked.
#[derive(Default)]
pub struct Script {
    held: Mutex<Option<(Hook, Answer)>>,
    asked: Mutex<Vec<String>>,
}

impl Script {
    /// Everything goes but one hook.
    pub fn hold(&self, hook: Hook, answer: Answer) {
        *self.held.lock().unwrap() = Some((hook, answer));
    }

    pub fn release(&self) {
        *self.held.lock().unwrap() = None;
    }

    /// What was asked, in order; asking again counts for nothing.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn answer(&self, hook: Hook, cluster: &ClusterKey, versions: &[&str]) -> Answer {
        let asked = [&[hook.name(), &cluster.name][..], versions].concat().join(" ");
        let mut before = self.asked.lock().unwrap();
        if !before.contains(&asked) {
            before.push(asked);
        }
        match &*self.held.lock().unwrap() {
            Some((held, answer)) if *held == hook => answer.clone(),
            _ => Answer::Go,
        }
    }
}

impl Answers for Script {
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer {
        self.answer(Hook::BeforeClusterUpgrade, cluster, &[from, to])
    }

    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer {
        self.answer(Hook::BeforeControlPlaneUpgrade, cluster, &[from, to])
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer {
        self.answer(Hook::AfterControlPlaneUpgrade, cluster, &[version])
    }

    fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer {
        self.answer(Hook::AfterClusterUpgrade, cluster, &[version])
    }

    fn before_cluster_delete(&self, cluster: &ClusterKey) -> Answer {
        self.answer(Hook::BeforeClusterDelete, cluster, &[])
    }
}

pub fn condition<'o>(object: &'o DynamicObject, kind: &str) -> Option<&'o Value> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
