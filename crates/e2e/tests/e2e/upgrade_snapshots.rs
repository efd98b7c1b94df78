//! Snapshots of Cluster `alpha` and of its add-ons in the course of a Kubernetes upgrade.

use std::{sync::Mutex, time::Duration};

use chandler_e2e::{
    extension_world::{ExtensionWorld, is_ready},
    wait::eventually_within,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

/// The add-ons of a snapshot.
#[derive(Clone, Copy)]
pub struct Addons {
    /// Extensions that move after the cluster.
    pub last: &'static [&'static str],
    pub extensions: &'static [&'static str],
    /// HelmChartProxies.
    pub charts: &'static [&'static str],
}

/// The versions at one point in time during an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub control_plane: String,
    pub workers: Vec<String>,
    /// The name and version of each add-on, and whether it is ready.
    addons: Vec<(String, String, bool)>,
}

impl Snapshot {
    pub fn version(&self, name: &str) -> &str {
        self.addons.iter().find(|(known, ..)| known == name).map_or("", |(_, version, _)| version)
    }

    pub fn is_ready(&self, name: &str, version: &str) -> bool {
        self.addons.iter().any(|(known, at, ready)| known == name && at == version && *ready)
    }

    /// Returns whether all workers have this version.
    pub fn workers_are_at(&self, version: &str) -> bool {
        !self.workers.is_empty() && self.workers.iter().all(|worker| worker == version)
    }

    pub fn has_worker_at(&self, version: &str) -> bool {
        self.workers.iter().any(|worker| worker == version)
    }
}

async fn versions(test: &ExtensionWorld, kind: &str, group: &str, path: &str) -> Vec<String> {
    let version = if group == "cluster.x-k8s.io" { "v1beta2" } else { "v1alpha1" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> =
        Api::namespaced_with(test.world.client.clone(), &test.world.namespace, &resource);
    let of_alpha = ListParams::default().labels("cluster.x-k8s.io/cluster-name=alpha");
    let all = api.list(&of_alpha).await.unwrap();
    let version = |object: &DynamicObject| Some(object.data.pointer(path)?.as_str()?.to_owned());
    all.items.iter().filter_map(version).collect()
}

/// Reads the parts in the reverse order of their upgrade: when a part is read, everything that a previously read part
/// waited for has been upgraded.
pub async fn snapshot(test: &ExtensionWorld, addons: Addons) -> Snapshot {
    let mut found = Vec::new();
    for name in addons.last {
        found.push(extension(test, name).await);
    }
    let workers = versions(test, "Machine", "cluster.x-k8s.io", "/spec/version").await;
    for name in addons.extensions {
        found.push(extension(test, name).await);
    }
    for name in addons.charts {
        found.push(chart(test, name).await);
    }
    let control_planes =
        versions(test, "SandboxControlPlane", "controlplane.cluster.x-k8s.io", "/status/version").await;
    let [control_plane] = control_planes.as_slice() else { panic!("{control_planes:?}") };
    Snapshot { control_plane: control_plane.clone(), workers, addons: found }
}

/// Returns the name and version of an extension of the cluster, and whether it is ready.
async fn extension(test: &ExtensionWorld, name: &str) -> (String, String, bool) {
    let release = test.release(name, "alpha").await.unwrap();
    let ready = is_ready(&release);
    (name.to_owned(), release.spec.version.unwrap(), ready)
}

/// Returns the name and version of a HelmChartProxy's release, and whether it is ready.
async fn chart(test: &ExtensionWorld, name: &str) -> (String, String, bool) {
    let release = test.world.release(name, "alpha").await.unwrap();
    let current = release.status.filter(|s| s.observed_generation == release.metadata.generation);
    let ready = current.is_some_and(|status| {
        status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    (name.to_owned(), release.spec.version, ready)
}

/// Records distinct snapshots until the upgrade is complete.
pub async fn record(
    test: &ExtensionWorld,
    addons: Addons,
    limit: Duration,
    is_complete: impl Fn(&Snapshot) -> bool,
) -> Vec<Snapshot> {
    let snapshots = Mutex::new(Vec::new());
    eventually_within(limit, "the upgrade is complete", || async {
        let now = snapshot(test, addons).await;
        let mut snapshots = snapshots.lock().unwrap();
        if snapshots.last() != Some(&now) {
            snapshots.push(now.clone());
        }
        is_complete(&now).then_some(())
    })
    .await;
    snapshots.into_inner().unwrap()
}

/// Applies a HelmChartProxy for `alpha` with a version for each Kubernetes version, which moves after the control plane.
pub async fn apply_chart(test: &ExtensionWorld, name: &str, versions: &Value) {
    let annotations = json!({
        "chandler.dev/kubernetes-versions": versions.to_string(),
        "chandler.dev/kubernetes-upgrade": "AfterControlPlane",
    });
    let fields = json!({"version": "", "clusterSelector": {"matchLabels": {"fleet": "alpha"}}});
    test.world.apply_annotated_placement(name, "hello", annotations, fields).await;
}

/// Applies a Cluster with a topology, which is Available only if its add-ons are ready; `fields` replaces fields of the topology.
pub async fn apply_cluster(test: &ExtensionWorld, name: &str, fields: Value) {
    let mut topology = json!({
        "classRef": {"name": "sandbox", "namespace": "default"}, "version": "v1.34.4",
        "variables": [{"name": "nodes", "value": 1}],
    });
    topology.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    test.world
        .apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": test.world.namespace, "labels": {"fleet": name}},
            "spec": {
                "clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/16"]}},
                "availabilityGates": [{"conditionType": "AddonsReady"}], "topology": topology,
            },
        }))
        .await;
}

/// Returns fields of an Extension that is installed on a cluster by default.
pub fn default_on(cluster: &str, when: &str) -> Value {
    let selector = json!({"matchLabels": {"fleet": cluster}});
    json!({
        "install": {"default": selector, "namespace": "default"}, "kubernetesUpgrade": {"when": when},
    })
}
