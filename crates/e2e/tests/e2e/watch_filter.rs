//! Managers that share a management cluster and are separated by a label.

use chandler_e2e::world::World;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

const LABEL: &str = "cluster.x-k8s.io/watch-filter";

#[tokio::test]
async fn a_manager_with_a_watch_filter_ignores_other_objects() {
    let world = World::new("filter").await;
    world.create_cluster("alpha").await;
    let manager = world.start_manager_with(&["--watch-filter", "blue"]);
    world.apply_placement("other", "hello", json!({})).await;
    world.apply_placement("mine", "hello", json!({})).await;
    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {LABEL: value}}}));
    let parameters = PatchParams::default();
    world.placements().patch("other", &parameters, &label("green")).await.unwrap();
    world.placements().patch("mine", &parameters, &label("blue")).await.unwrap();
    world.wait_ready("mine", "alpha", 1).await;
    let release = world.release("mine", "alpha").await.unwrap();
    assert_eq!(release.labels().get(LABEL).map(String::as_str), Some("blue"));

    manager.wait_idle().await;
    let other = world.placements().get("other").await.unwrap();
    assert!(other.finalizers().is_empty() && other.status.is_none(), "{other:?}");
    assert!(world.release("other", "alpha").await.is_none());

    // A release object of its own placement is reconciled even without the label, which CAAPH does not set.
    let unlabeled =
        Patch::Merge(json!({"metadata": {"labels": {LABEL: null}}, "spec": {"version": "9.9.9"}}));
    world.releases().patch(&release.name_any(), &parameters, &unlabeled).await.unwrap();
    world.patch_placement("mine", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("mine", "alpha", 2).await;
}
