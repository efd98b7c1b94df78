//! Extensions over the life of a cluster of a class: Available with them, through an upgrade, held and released.

use std::{sync::Mutex, time::Duration};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::{Extensions, is_ready},
    wait::{eventually, eventually_within},
};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

use crate::hooks::{Hooks, condition};

const UPGRADE_LIMIT: Duration = Duration::from_mins(4);

/// What a moment of an upgrade looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    control_plane: String,
    workers: Vec<String>,
    /// Extensions and their versions, with whether they are ready.
    extensions: Vec<(String, String, bool)>,
}

impl Moment {
    fn version(&self, name: &str) -> &str {
        self.extensions.iter().find(|(known, ..)| known == name).map_or("", |(_, version, _)| version)
    }

    fn is_ready(&self, name: &str, version: &str) -> bool {
        self.extensions.iter().any(|(known, at, ready)| known == name && at == version && *ready)
    }
}

async fn versions(test: &Extensions, kind: &str, group: &str, path: &str) -> Vec<String> {
    let version = if group == "cluster.x-k8s.io" { "v1beta2" } else { "v1alpha1" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> =
        Api::namespaced_with(test.world.client.clone(), &test.world.namespace, &resource);
    let of_alpha = ListParams::default().labels("cluster.x-k8s.io/cluster-name=alpha");
    let all = api.list(&of_alpha).await.unwrap();
    let version = |object: &DynamicObject| Some(object.data.pointer(path)?.as_str()?.to_owned());
    all.items.iter().filter_map(version).collect()
}

/// Reads what comes last first, so that what one part has waited for has been reached when it is read.
async fn moment(test: &Extensions) -> Moment {
    let mut extensions = vec![extension(test, "app").await];
    let workers = versions(test, "Machine", "cluster.x-k8s.io", "/spec/version").await;
    extensions.extend([extension(test, "cloud").await, extension(test, "net").await]);
    let control_planes =
        versions(test, "SandboxControlPlane", "controlplane.cluster.x-k8s.io", "/status/version").await;
    let [control_plane] = control_planes.as_slice() else { panic!("{control_planes:?}") };
    Moment { control_plane: control_plane.clone(), workers, extensions }
}

/// An extension of the cluster, its version and whether it is ready.
async fn extension(test: &Extensions, name: &str) -> (String, String, bool) {
    let release = test.release(name, "alpha").await.unwrap();
    let ready = is_ready(&release);
    (name.to_owned(), release.spec.version.unwrap(), ready)
}

/// What is seen until everything has arrived.
async fn upgrade_moments(test: &Extensions) -> Vec<Moment> {
    let moments = Mutex::new(Vec::new());
    eventually_within(UPGRADE_LIMIT, "everything has arrived", || async {
        let now = moment(test).await;
        let mut moments = moments.lock().unwrap();
        if moments.last() != Some(&now) {
            moments.push(now.clone());
        }
        let all = [("net", "1.1.0"), ("cloud", "1.1.0"), ("app", "2.0.0")];
        let there = all.iter().all(|(name, version)| now.is_ready(name, version));
        (there && now.workers == ["v1.35.4"]).then_some(())
    })
    .await;
    moments.into_inner().unwrap()
}

async fn apply_cluster(test: &Extensions, name: &str, further: Value) {
    let mut topology = json!({
        "classRef": {"name": "sandbox", "namespace": "default"}, "version": "v1.34.4",
        "variables": [{"name": "nodes", "value": 1}],
    });
    topology.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
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

fn default_of(cluster: &str, when: &str) -> Value {
    let selector = json!({"matchLabels": {"fleet": cluster}});
    json!({
        "install": {"default": selector, "namespace": "default"}, "kubernetesUpgrade": {"when": when},
    })
}

#[tokio::test]
async fn a_cluster_of_a_class_lives_with_its_extensions() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = Extensions::new("life").await;
    let hooks = Hooks::of(&test.world);
    let manager = hooks.manager();
    hooks.discovered(&Value::Null).await;
    let net = json!({"version": "1.0.0", "kubernetes": "<1.35"});
    test.extension("net", json!([net]), default_of("alpha", "AfterControlPlane")).await;
    let per_minor = json!([
        {"version": "1.0.0", "kubernetes": "~1.34.0"}, {"version": "1.1.0", "kubernetes": "~1.35.0"},
    ]);
    test.extension("cloud", per_minor, default_of("alpha", "AfterControlPlane")).await;
    let app = json!([
        {"version": "1.0.0", "kubernetes": "<1.35", "dependencies": [{"extension": "net"}]},
        {"version": "2.0.0", "kubernetes": ">=1.35", "dependencies": [{"extension": "net"}]},
    ]);
    test.extension("app", app, default_of("alpha", "AfterCluster")).await;

    let workers = json!({"machineDeployments": [{"class": "workers", "name": "md", "replicas": 1}]});
    apply_cluster(&test, "alpha", json!({"workers": workers})).await;
    let alpha = test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();
    for name in ["net", "cloud", "app"] {
        let release = test.release(name, "alpha").await.unwrap();
        assert!(is_ready(&release), "Available only with {name}");
        assert_eq!(release.spec.version.as_deref(), Some("1.0.0"));
    }

    // The next Kubernetes is blocked by net until it has a version for it; then nothing stands in its way.
    let blocked = test.cluster_condition("alpha", "AddonsUpgradable", "False").await;
    assert!(blocked.contains("net 1.0.0 blocks"), "{blocked}");
    let both = json!([net, {"version": "1.1.0", "kubernetes": ">=1.34"}]);
    test.extension("net", both, default_of("alpha", "AfterControlPlane")).await;
    let plan = test.cluster_condition("alpha", "AddonsUpgradable", "True").await;
    for words in [
        "net 1.0.0 moves to 1.1.0 before the control plane",
        "cloud 1.0.0 moves to 1.1.0 after the control plane",
        "app 1.0.0 moves to 2.0.0 after the cluster",
    ] {
        assert!(plan.contains(words), "{plan}");
    }
    assert_eq!(moment(&test).await.version("net"), "1.0.0", "nothing moves without need");

    hooks.change("alpha", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let moments = upgrade_moments(&test).await;
    let (old, new) = ("v1.34.4", "v1.35.4");
    assert!(
        moments.iter().any(|now| now.control_plane == old && now.is_ready("net", "1.1.0")),
        "net is ready before the control plane moves: {moments:#?}"
    );
    assert!(
        moments.iter().any(|now| now.is_ready("cloud", "1.1.0") && now.workers == [old]),
        "cloud is ready before the workers move: {moments:#?}"
    );
    for now in &moments {
        if now.control_plane == new {
            assert_eq!(now.version("net"), "1.1.0", "net moves before: {moments:#?}");
        }
        if now.version("cloud") == "1.1.0" {
            assert_eq!(now.control_plane, new, "cloud moves with the control plane: {moments:#?}");
        }
        if now.workers.iter().any(|version| version == new) {
            assert_eq!(now.version("cloud"), "1.1.0", "and before the workers: {moments:#?}");
        }
        if now.version("app") == "2.0.0" {
            assert!(
                now.control_plane == new && !now.workers.iter().any(|version| version == old),
                "{moments:#?}"
            );
        }
    }
    test.cluster_condition("alpha", "AddonsReady", "True").await;
    for name in ["net", "cloud", "app"] {
        let revisions = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
        assert_eq!(test.world.history(&alpha, name), revisions, "{name}");
    }
    assert_eq!((manager.ended(OperationKind::INSTALL), manager.started(OperationKind::REMOVE)), (3, 0));
}

#[tokio::test]
async fn an_upgrade_that_an_extension_does_not_fit_is_refused_and_can_be_forced() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = Extensions::new("refused").await;
    let hooks = Hooks::of(&test.world);
    let manager = hooks.manager();
    hooks.discovered(&Value::Null).await;
    let old = json!([{"version": "1.0.0", "kubernetes": "<1.35"}]);
    test.extension("old", old, default_of("bravo", "AfterControlPlane")).await;
    apply_cluster(&test, "bravo", json!({})).await;
    let bravo = test.world.sandbox.wait_cluster(&test.world.namespace, "bravo").await.unwrap();
    hooks.change("bravo", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    hooks.topology_says("bravo", "old 1.0.0 blocks").await;
    hooks.topology_says("bravo", "chandler.dev/proceed=BeforeClusterUpgrade").await;
    let workload = bravo.client().await.unwrap();
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");

    let word = "BeforeClusterUpgrade,BeforeControlPlaneUpgrade";
    hooks.change("bravo", json!({"metadata": {"annotations": {"chandler.dev/proceed": word}}})).await;
    eventually_within(UPGRADE_LIMIT, "the upgrade goes on", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;
    // What runs stays, and it is told that it does not fit.
    eventually("it is told", || async {
        let cluster = hooks.clusters().get("bravo").await.unwrap();
        let told = condition(&cluster, "AddonsReady")?;
        (told["status"] == "False" && told["message"].as_str()?.contains("1.35")).then_some(())
    })
    .await;
    assert_eq!(test.world.history(&bravo, "old"), [(1, "deployed".to_owned())]);
    assert_eq!((manager.ended(OperationKind::INSTALL), manager.started(OperationKind::REMOVE)), (1, 0));
}

#[tokio::test]
async fn what_holds_something_elsewhere_is_removed_before_its_cluster_goes() {
    let test = Extensions::new("last").await;
    let hooks = Hooks::of(&test.world);
    let manager = hooks.manager();
    hooks.discovered(&Value::Null).await;
    let versions = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    test.extension("plain", versions.clone(), json!({})).await;
    test.extension("holding", versions, json!({"onClusterDelete": "Uninstall"})).await;
    let alpha = test.world.cluster("alpha").await;
    for name in ["plain", "holding"] {
        test.instance(name, name, json!({})).await;
        test.ready(name, "alpha", "1.0.0").await;
    }
    drop(alpha);
    hooks.clusters().delete("alpha", &kube::api::DeleteParams::default()).await.unwrap();
    eventually_within(UPGRADE_LIMIT, "the cluster is gone", || async {
        hooks.clusters().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
    let removals: Vec<_> = manager
        .operations()
        .into_iter()
        .filter(|operation| operation.kind == OperationKind::REMOVE)
        .collect();
    assert!(
        removals.iter().all(|removal| removal.release == "default/holding"),
        "the one that holds something, and no other: {removals:?}"
    );
    assert_eq!(manager.succeeded(OperationKind::REMOVE), 1, "it was removed: {removals:?}");
    eventually("the release objects are gone", || async {
        test.releases().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}
