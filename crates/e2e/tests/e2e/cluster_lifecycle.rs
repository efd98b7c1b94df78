//! Extensions during the lifecycle of a cluster with a topology: creation, Kubernetes upgrade, and deletion.

use std::time::Duration;

use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::ExtensionWorld,
    wait::{eventually, eventually_within, until},
    world::World,
};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::{
    health::set_schedulable,
    hooks::{Hooks, condition},
    upgrade_snapshots::{Addons, Snapshot, apply_chart, apply_cluster, default_on, record, snapshot},
};

const UPGRADE_LIMIT: Duration = Duration::from_mins(4);

const ADDONS: Addons =
    Addons { last: &["app"], extensions: &["cloud", "legacy", "agent", "net"], charts: &["cpi"] };

/// The version of each add-on before and after the upgrade of `alpha`. That of `legacy` for the new Kubernetes version is the
/// older one.
const MOVES: [(&str, &str, &str); 6] = [
    ("net", "1.0.0", "1.1.0"),
    ("agent", "1.0.0", "1.1.0"),
    ("cloud", "1.0.0", "1.1.0"),
    ("legacy", "2.0.0", "1.1.0"),
    ("cpi", "1.0.0", "1.1.0"),
    ("app", "1.0.0", "2.0.0"),
];

/// Applies the add-ons of `alpha`, each of which moves at another time. `net` has no version for the new Kubernetes version yet.
async fn apply_addons(test: &ExtensionWorld, net: &Value) {
    test.apply_extension("net", json!([net]), default_on("alpha", "AfterControlPlane")).await;
    let per_minor = json!([
        {"version": "1.0.0", "kubernetes": "~1.34.0"}, {"version": "1.1.0", "kubernetes": "~1.35.0"},
    ]);
    test.apply_extension("agent", per_minor.clone(), default_on("alpha", "BeforeControlPlane")).await;
    test.apply_extension("cloud", per_minor, default_on("alpha", "AfterControlPlane")).await;
    let legacy = json!([
        {"version": "1.1.0", "kubernetes": ">=1.35"}, {"version": "2.0.0", "kubernetes": "<1.35"},
    ]);
    test.apply_extension("legacy", legacy, default_on("alpha", "AfterControlPlane")).await;
    let app = json!([
        {"version": "1.0.0", "kubernetes": "<1.35", "dependencies": [{"extension": "net"}]},
        {"version": "2.0.0", "kubernetes": ">=1.35", "dependencies": [{"extension": "net"}]},
    ]);
    test.apply_extension("app", app, default_on("alpha", "AfterCluster")).await;
    apply_chart(test, "cpi", &json!({"1.34": "1.0.0", "1.35": "1.1.0"})).await;
}

/// Asserts that each add-on moved at its time: `net` and `agent` before the control plane, `cloud`, `legacy` and `cpi` between
/// control plane and workers, and `app` after the last MachineDeployment.
fn assert_order(snapshots: &[Snapshot]) {
    let (old, new) = ("v1.34.4", "v1.35.4");
    for name in ["net", "agent"] {
        assert!(
            snapshots.iter().any(|now| now.control_plane == old && now.is_ready(name, "1.1.0")),
            "{name} is ready before the control plane is upgraded: {snapshots:#?}"
        );
    }
    for name in ["cloud", "legacy", "cpi"] {
        assert!(
            snapshots.iter().any(|now| now.is_ready(name, "1.1.0") && now.workers_are_at(old)),
            "{name} is ready before the workers are upgraded: {snapshots:#?}"
        );
    }
    for now in snapshots {
        for name in ["net", "agent"] {
            let is_early = now.control_plane == old || now.version(name) == "1.1.0";
            assert!(is_early, "{name} is upgraded before the control plane: {snapshots:#?}");
        }
        for name in ["cloud", "legacy", "cpi"] {
            let has_moved = now.version(name) == "1.1.0";
            assert!(
                !has_moved || now.control_plane == new,
                "{name} moves after the control plane: {snapshots:#?}"
            );
            assert!(has_moved || !now.has_worker_at(new), "{name} moves before the workers: {snapshots:#?}");
        }
        if now.version("app") == "2.0.0" {
            assert!(
                now.control_plane == new && !now.has_worker_at(old),
                "app moves after the cluster: {snapshots:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_kubernetes_upgrade_upgrades_each_extension_at_its_configured_time() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("life").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let net = json!({"version": "1.0.0", "kubernetes": "<1.35"});
    apply_addons(&test, &net).await;
    let worker = |name: &str| json!({"class": "workers", "name": name, "replicas": 1});
    let workers = json!({"machineDeployments": [worker("first"), worker("second")]});
    apply_cluster(&test, "alpha", json!({"workers": workers})).await;
    let alpha = test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();
    let first = snapshot(&test, ADDONS).await;
    for (name, version, _) in MOVES {
        assert!(first.is_ready(name, version), "Available only with {name} {version}: {first:#?}");
    }

    // The next Kubernetes version is blocked by net until net has a version that supports it.
    let blocked = test.wait_cluster_condition("alpha", "AddonsUpgradable", "False").await;
    assert!(blocked.contains("net 1.0.0 blocks"), "{blocked}");
    let both = json!([net, {"version": "1.1.0", "kubernetes": ">=1.34"}]);
    test.apply_extension("net", both, default_on("alpha", "AfterControlPlane")).await;
    let plan = test.wait_cluster_condition("alpha", "AddonsUpgradable", "True").await;
    for expected in [
        "net 1.0.0 moves to 1.1.0 before the control plane",
        "agent 1.0.0 moves to 1.1.0 before the control plane",
        "cloud 1.0.0 moves to 1.1.0 after the control plane",
        "legacy 2.0.0 moves to the older version 1.1.0 after the control plane: 2.0.0 needs Kubernetes <1.35",
        "app 1.0.0 moves to 2.0.0 after the cluster",
        "cpi 1.0.0 moves to 1.1.0 after the control plane",
    ] {
        assert!(plan.contains(expected), "{plan}");
    }
    let now = snapshot(&test, ADDONS).await;
    assert_eq!(now.version("net"), "1.0.0", "nothing is upgraded before it is needed");

    hooks.patch_cluster("alpha", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let snapshots = record(&test, ADDONS, UPGRADE_LIMIT, |now| {
        MOVES.iter().all(|(name, _, version)| now.is_ready(name, version)) && now.workers_are_at("v1.35.4")
    })
    .await;
    assert_order(&snapshots);
    test.wait_cluster_condition("alpha", "AddonsReady", "True").await;
    for (name, ..) in MOVES {
        let revisions = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
        assert_eq!(test.world.history(&alpha, name), revisions, "{name}");
    }
    until("an Event says that legacy has an older version", async || {
        let notes = test.event_notes("Downgraded").await;
        notes.iter().any(|note| {
            note.contains("default/legacy of hello 1.1.0") && note.contains("newer version 2.0.0")
        })
    })
    .await;
    assert_eq!((manager.ended(OperationKind::INSTALL), manager.started(OperationKind::REMOVE)), (6, 0));
}

#[tokio::test]
async fn a_kubernetes_upgrade_that_an_extension_does_not_support_is_blocked_and_can_be_forced() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("refused").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let old = json!([{"version": "1.0.0", "kubernetes": "<1.35"}]);
    test.apply_extension("old", old, default_on("bravo", "AfterControlPlane")).await;
    apply_cluster(&test, "bravo", json!({})).await;
    let bravo = test.world.sandbox.wait_cluster(&test.world.namespace, "bravo").await.unwrap();
    hooks.patch_cluster("bravo", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    hooks.wait_topology_message("bravo", "old 1.0.0 blocks").await;
    hooks.wait_topology_message("bravo", "chandler.dev/proceed=BeforeClusterUpgrade").await;
    let workload = bravo.client().await.unwrap();
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");

    let hooks_to_skip = "BeforeClusterUpgrade,BeforeControlPlaneUpgrade";
    hooks
        .patch_cluster("bravo", json!({"metadata": {"annotations": {"chandler.dev/proceed": hooks_to_skip}}}))
        .await;
    eventually_within(UPGRADE_LIMIT, "the upgrade proceeds", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;
    // The release is left unchanged, and the Cluster reports that it does not support the version.
    eventually("AddonsReady reports the version", || async {
        let cluster = hooks.clusters().get("bravo").await.unwrap();
        let ready = condition(&cluster, "AddonsReady")?;
        (ready["status"] == "False" && ready["message"].as_str()?.contains("1.35")).then_some(())
    })
    .await;
    assert_eq!(test.world.history(&bravo, "old"), [(1, "deployed".to_owned())]);
    assert_eq!((manager.ended(OperationKind::INSTALL), manager.started(OperationKind::REMOVE)), (1, 0));
}

#[tokio::test]
async fn an_unhealthy_extension_that_need_not_move_does_not_block_a_kubernetes_upgrade() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("unhealthy-upgrade").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let any = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    test.apply_extension("broken", any, default_on("charlie", "AfterControlPlane")).await;
    // The hooks have to wait for this one, so that they look at both.
    let moves = json!([
        {"version": "1.0.0", "kubernetes": "<1.35"}, {"version": "1.1.0", "kubernetes": ">=1.34"},
    ]);
    let pinned = json!([{"version": "1.0.0", "kubernetes": "<1.35"}]);
    test.apply_extension("moving", pinned, default_on("charlie", "AfterControlPlane")).await;
    apply_cluster(&test, "charlie", json!({})).await;
    let charlie = test.world.sandbox.wait_cluster(&test.world.namespace, "charlie").await.unwrap();
    test.wait_ready("broken", "charlie", "1.0.0").await;
    test.wait_ready("moving", "charlie", "1.0.0").await;
    test.apply_extension("moving", moves, default_on("charlie", "AfterControlPlane")).await;
    test.wait_cluster_condition("charlie", "AddonsUpgradable", "True").await;

    set_schedulable(&charlie, "broken", false).await;
    let message = test.wait_release_reason("broken", "charlie", "Unhealthy").await;
    assert!(message.contains("Deployment default/broken"), "{message}");
    let not_ready = test.wait_cluster_condition("charlie", "AddonsReady", "False").await;
    assert!(not_ready.contains("Deployment default/broken is unhealthy"), "{not_ready}");
    let upgradable = test.wait_cluster_condition("charlie", "AddonsUpgradable", "True").await;
    assert!(upgradable.contains("moving 1.0.0 moves to 1.1.0 before the control plane"), "{upgradable}");

    hooks.patch_cluster("charlie", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let workload = charlie.client().await.unwrap();
    eventually_within(UPGRADE_LIMIT, "the Kubernetes upgrade proceeds", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;
    test.wait_ready("moving", "charlie", "1.1.0").await;
    test.wait_release_reason("broken", "charlie", "Unhealthy").await;
    assert_eq!(test.world.history(&charlie, "broken"), [(1, "deployed".to_owned())]);
    manager.stop().await;
}

#[tokio::test]
async fn extensions_with_external_resources_are_uninstalled_before_their_cluster_is_deleted() {
    let test = ExtensionWorld::new("cluster-deletion").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let versions = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    test.apply_extension("plain", versions.clone(), json!({})).await;
    test.apply_extension("external", versions, json!({"onClusterDelete": "Uninstall"})).await;
    let alpha = test.world.create_topology_cluster("alpha").await;
    for name in ["plain", "external"] {
        test.apply_instance(name, name, json!({})).await;
        test.wait_ready(name, "alpha", "1.0.0").await;
    }
    drop(alpha);
    hooks.clusters().delete("alpha", &DeleteParams::default()).await.unwrap();
    eventually_within(UPGRADE_LIMIT, "the Cluster is deleted", || async {
        hooks.clusters().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
    let removals: Vec<_> = manager
        .operations()
        .into_iter()
        .filter(|operation| operation.kind == OperationKind::REMOVE)
        .collect();
    assert!(
        removals.iter().all(|removal| removal.release == "default/external"),
        "only the release with external resources is uninstalled: {removals:?}"
    );
    assert_eq!(manager.succeeded(OperationKind::REMOVE), 1, "it was uninstalled: {removals:?}");
    eventually("the release objects are deleted", || async {
        test.releases().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}

/// Returns when a manager has logged that it lets the deletion of a Cluster proceed.
fn proceeded_at(logs: &str, cluster: &str) -> Option<Timestamp> {
    let mut lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| {
        line["message"].as_str().is_some_and(|message| message.starts_with("hook response: proceed"))
            && line["hook"] == "BeforeClusterDelete"
            && line["cluster"] == cluster
    })?;
    line["timestamp"].as_str()?.parse().ok()
}

/// Suspended releases are not uninstalled, so that deletions have to wait for them.
#[tokio::test]
async fn a_deletion_waits_for_uninstalls_until_its_deadline_or_until_a_user_lets_it_proceed() {
    const DEADLINE: Duration = Duration::from_secs(40);
    let world = World::new("deletion-deadline").await;
    let hooks = Hooks::new(&world);
    let seconds = DEADLINE.as_secs().to_string();
    let manager = hooks.start_manager_with(&["--cluster-deletion-timeout-seconds", &seconds]);
    hooks.wait_discovered(&Value::Null).await;
    let planes = tokio::join!(world.create_topology_cluster("alpha"), world.create_topology_cluster("bravo"));
    world.apply_policy("external", json!({"onClusterDelete": "Uninstall"})).await;
    world.apply_placement_with_policy("external", "hello", "external", json!({})).await;
    for cluster in ["alpha", "bravo"] {
        world.wait_ready("external", cluster, 1).await;
    }
    world.apply_policy("external", json!({"onClusterDelete": "Uninstall", "suspend": true})).await;
    manager.wait_idle().await;
    drop(planes);

    for cluster in ["bravo", "alpha"] {
        hooks.clusters().delete(cluster, &DeleteParams::default()).await.unwrap();
    }
    let bravo = hooks.clusters().get("bravo").await.unwrap();
    let deadline = bravo.metadata.deletion_timestamp.unwrap().0 + DEADLINE;
    let waiting = deadline.strftime("BeforeClusterDelete: waiting until %H:%M:%SZ for external").to_string();
    hooks.wait_topology_message("bravo", &waiting).await;
    for text in [
        "external to be uninstalled (Suspended)",
        "to delete anyway, set annotation chandler.dev/proceed: BeforeClusterDelete",
    ] {
        hooks.wait_topology_message("alpha", text).await;
    }
    let proceed = json!({"metadata": {"annotations": {"chandler.dev/proceed": "BeforeClusterDelete"}}});
    hooks.patch_cluster("alpha", proceed).await;
    for cluster in ["alpha", "bravo"] {
        eventually_within(UPGRADE_LIMIT, "the Cluster is deleted", || async {
            hooks.clusters().get_opt(cluster).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    let logs = manager.logs();
    let at = |cluster: &str| proceeded_at(&logs, &format!("{}/{cluster}", world.namespace)).unwrap();
    assert!(at("bravo") >= deadline, "{} is before the deadline {deadline}", at("bravo"));
    assert!(at("alpha") < at("bravo"), "the annotation does not wait for the deadline");
    assert_eq!(manager.started(OperationKind::REMOVE), 0);
    until("Events say that the releases are not uninstalled", async || {
        let notes = world.event_notes("NotUninstalled").await;
        ["alpha", "bravo"].iter().all(|cluster| notes.iter().any(|note| note.contains(cluster)))
    })
    .await;
    until("the release objects are deleted", async || {
        world.releases().list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    manager.stop().await;
}
