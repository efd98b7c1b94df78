//! Kyverno with its CustomResourceDefinitions: its record takes half of the Secret in which Helm stores a revision. A version whose
//! record is too large is refused before anything is written.

use std::path::PathBuf;

use chandler_api::status::ReleaseStatus;
use chandler_core::digest::Digest;
use chandler_e2e::{
    third_party,
    world::{World, condition},
};
use chandler_sandbox::{plane::Plane, requests::AuditEntry};
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::json;

/// The version of a chart that is too large.
const TOO_LARGE: &str = "3.99.0";

/// A CRD in the `crds/` folder of that chart.
const EXTRA: &str = r#"{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "extras.e2e.example"},
    "spec": {
        "group": "e2e.example", "scope": "Namespaced",
        "names": {"kind": "Extra", "plural": "extras", "singular": "extra"},
        "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}
        }]
    }
}"#;

/// Writes the chart with a file that cannot be compressed to less than half of its size, and with a folder `crds/`.
fn with_noise(world: &World, chart: &std::path::Path) -> PathBuf {
    let folder = world.dir.join("too-large");
    third_party::copy(chart, &folder).unwrap();
    let noise: String =
        (0..24_000).map(|number: u32| Digest::of(number.to_string()).hex().to_owned()).collect();
    std::fs::write(folder.join("noise.txt"), noise).unwrap();
    std::fs::create_dir(folder.join("crds")).unwrap();
    std::fs::write(folder.join("crds/extra.yaml"), EXTRA).unwrap();
    folder
}

/// Returns name and chart of the CRDs of Kyverno, and of those of other charts.
async fn crds(plane: &Plane) -> Vec<(String, Option<String>)> {
    let all: Api<CustomResourceDefinition> = Api::all(plane.client().await.unwrap());
    let all = all.list(&ListParams::default()).await.unwrap();
    all.into_iter().map(|crd| (crd.name_any(), crd.labels().get("helm.sh/chart").cloned())).collect()
}

/// Returns how many CRDs belong to a version of the chart.
async fn count_crds(plane: &Plane, version: &str) -> usize {
    let chart = Some(format!("crds-{version}"));
    crds(plane).await.iter().filter(|(_, of)| *of == chart).count()
}

/// Returns the sizes of the records of the release, oldest first, in KiB.
async fn record_sizes(plane: &Plane) -> Vec<usize> {
    let secrets: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), "default");
    let found = secrets.list(&ListParams::default().labels("owner=helm,name=kyverno")).await.unwrap();
    found.into_iter().map(|secret| secret.data.unwrap()["release"].0.len() >> 10).collect()
}

async fn wait_refused(world: &World, placement: &str) -> ReleaseStatus {
    let is_refused = |status: &ReleaseStatus| {
        let failure = status.last_failure.as_ref();
        failure.is_some_and(|failure| failure.category == "InvalidPackage")
    };
    let status = world.wait_status(placement, "alpha", "refused", is_refused).await;
    let ready = condition(&status, "Ready").unwrap();
    assert_eq!(ready.status, "False");
    for expected in ["the record of the release would take ", "more than the 1008 KiB", "such as the CRDs"] {
        assert!(ready.message.contains(expected), "{expected}: {}", ready.message);
    }
    status
}

#[tokio::test]
async fn kyverno_is_upgraded_with_its_crds_and_refused_if_its_record_is_too_large() {
    let world = World::new("kyverno").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager_with_long_lease();
    let [first, second] = third_party::kyverno();
    let second_folder = second.path().await;
    let (before, after) = (
        world.repository.publish(&first.path().await).unwrap().version,
        world.repository.publish(&second_folder).unwrap().version,
    );
    world.repository.publish_version(&with_noise(&world, &second_folder), TOO_LARGE).unwrap();

    let fields = json!({"version": before, "valuesTemplate": first.values});
    world.apply_placement("kyverno", "kyverno", fields).await;
    world.wait_ready("kyverno", "alpha", 1).await;
    assert_eq!(count_crds(&alpha, &before).await, 11);

    world.patch_placement("kyverno", json!({"version": after})).await;
    let upgraded = world.wait_ready("kyverno", "alpha", 2).await;
    assert_eq!((count_crds(&alpha, &before).await, count_crds(&alpha, &after).await), (0, 14));
    let revisions = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
    assert_eq!(world.history(&alpha, "kyverno"), revisions);
    let sizes = record_sizes(&alpha).await;
    assert!(sizes.len() == 2 && sizes.iter().all(|size| (400..700).contains(size)), "{sizes:?}");

    // A version that does not fit is refused, at an upgrade and at an install.
    manager.wait_idle().await;
    let crds_before = crds(&alpha).await;
    let mut audit = alpha.audit_log();
    world.patch_placement("kyverno", json!({"version": TOO_LARGE})).await;
    let new_namespace = json!({
        "version": TOO_LARGE, "valuesTemplate": first.values, "namespace": "elsewhere",
        "options": {"skipCRDs": true, "install": {"createNamespace": true}},
    });
    world.apply_placement("elsewhere", "kyverno", new_namespace).await;
    let refused = wait_refused(&world, "kyverno").await;
    wait_refused(&world, "elsewhere").await;
    assert_eq!((refused.revision, refused.inventory), (Some(2), upgraded.inventory));
    let ours = audit.read().unwrap().into_iter().filter(AuditEntry::is_from_chandler);
    let writes: Vec<_> = ours.filter(AuditEntry::is_write).map(|entry| (entry.verb, entry.uri)).collect();
    assert_eq!(writes, [], "nothing is written on the cluster");
    assert_eq!(crds(&alpha).await, crds_before);
    assert_eq!(world.history(&alpha, "kyverno"), revisions);
    let namespaces: Api<Namespace> = Api::all(alpha.client().await.unwrap());
    assert_eq!(namespaces.get_opt("elsewhere").await.unwrap(), None);

    // The version before is still deployed.
    world.patch_placement("kyverno", json!({"version": after})).await;
    world.wait_ready("kyverno", "alpha", 2).await;
    manager.stop().await;
}
