//! A Kubernetes upgrade over two minor versions: Cluster API upgrades the control plane step by step, and add-ons move with each
//! step.

use std::time::Duration;

use chandler_e2e::extension_world::ExtensionWorld;
use chandler_sandbox::{assets::KubernetesVersion, testing};
use serde_json::{Value, json};

use crate::{
    hooks::Hooks,
    upgrade_snapshots::{Addons, Snapshot, apply_chart, apply_cluster, default_on, record},
};

const LIMIT: Duration = Duration::from_mins(8);

/// Each version of an add-on is for one Kubernetes version.
const STEPS: [(&str, &str); 3] = [("v1.34.4", "1.0.0"), ("v1.35.4", "1.1.0"), ("v1.36.3", "2.0.0")];

const ADDONS: Addons = Addons { last: &["app"], extensions: &["agent", "cloud"], charts: &["cpi"] };

/// Returns how many steps precede a Kubernetes version or a version of an add-on.
fn step(version: &str) -> usize {
    let is_it = |(kubernetes, addon): &(&str, &str)| *kubernetes == version || *addon == version;
    STEPS.iter().position(is_it).unwrap_or_else(|| panic!("unexpected version {version}"))
}

/// Asserts that the add-ons move with each step, and that a step begins only when those of the step before it are ready.
fn assert_steps(snapshots: &[Snapshot]) {
    for now in snapshots {
        let at = step(&now.control_plane);
        let agent = step(now.version("agent"));
        assert!(agent == at || agent == at + 1, "agent moves before each step: {now:#?}");
        for name in ["cloud", "cpi"] {
            let own = step(now.version(name));
            assert!(own == at || own + 1 == at, "{name} moves after each step: {now:#?}");
        }
        if now.version("app") == STEPS[2].1 {
            assert!(at == 2 && now.workers_are_at(STEPS[2].0), "app moves after the cluster: {now:#?}");
        }
    }
    for pair in STEPS.windows(2) {
        let [(before, old), (after, new)] = pair else { panic!("{pair:?}") };
        assert!(
            snapshots.iter().any(|now| now.control_plane == *before && now.is_ready("agent", new)),
            "agent {new} is ready before the control plane leaves {before}: {snapshots:#?}"
        );
        for name in ["cloud", "cpi"] {
            assert!(
                snapshots.iter().any(|now| now.control_plane == *before && now.is_ready(name, old)),
                "{name} {old} is ready before the control plane leaves {before}: {snapshots:#?}"
            );
            assert!(
                snapshots.iter().any(|now| now.control_plane == *after && now.is_ready(name, new)),
                "{name} {new} is ready with {after}: {snapshots:#?}"
            );
        }
    }
}

#[tokio::test]
#[ignore = "builds kube-apiserver v1.36.3"]
async fn an_upgrade_over_two_minor_versions_moves_add_ons_step_by_step() {
    for version in [KubernetesVersion::V1_35, KubernetesVersion::V1_36] {
        testing::prepare(version).await.unwrap();
    }
    let test = ExtensionWorld::new("chained").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let per_minor = json!([
        {"version": "1.0.0", "kubernetes": "~1.34.0"}, {"version": "1.1.0", "kubernetes": "~1.35.0"},
        {"version": "2.0.0", "kubernetes": "~1.36.0"},
    ]);
    for (name, when) in
        [("agent", "BeforeControlPlane"), ("cloud", "AfterControlPlane"), ("app", "AfterCluster")]
    {
        test.apply_extension(name, per_minor.clone(), default_on("alpha", when)).await;
    }
    apply_chart(&test, "cpi", &json!({"1.34": "1.0.0", "1.35": "1.1.0", "1.36": "2.0.0"})).await;
    let workers = json!({"machineDeployments": [{"class": "workers", "name": "md", "replicas": 1}]});
    apply_cluster(&test, "alpha", json!({"workers": workers})).await;
    let alpha = test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();

    let (newest, last) = STEPS[2];
    hooks.patch_cluster("alpha", json!({"spec": {"topology": {"version": newest}}})).await;
    let snapshots = record(&test, ADDONS, LIMIT, |now| {
        let all = ["agent", "cloud", "cpi", "app"];
        all.iter().all(|name| now.is_ready(name, last)) && now.workers_are_at(newest)
    })
    .await;
    assert_steps(&snapshots);
    test.wait_cluster_condition("alpha", "AddonsReady", "True").await;
    test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();
    for name in ["agent", "cloud", "cpi"] {
        let revisions = [(1, "superseded"), (2, "superseded"), (3, "deployed")];
        let revisions = revisions.map(|(revision, status)| (revision, status.to_owned()));
        assert_eq!(test.world.history(&alpha, name), revisions, "{name} moves once with each step");
    }
    manager.stop().await;
}
