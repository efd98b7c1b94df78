//! `chandler rollout` and `chandler rollback`: what they print, and the annotations that they write. What a manager does with
//! these is tested elsewhere.

use chandler_e2e::{
    chandler_command::{run_err, run_ok},
    world::World,
};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// Creates a HelmChartProxy with a rollout that has stopped, and its release on `blue`. No manager runs.
async fn create_objects(world: &World) {
    world.apply_placement_with_policy("hello", "hello", "in-waves", json!({})).await;
    let uid = world.placements().get("hello").await.unwrap().uid();
    let owner = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "hello", "uid": uid,
        "controller": true,
    });
    let spec = json!({
        "clusterRef": {"name": "blue"}, "repoURL": world.repository.url(), "chartName": "hello", "releaseName": "hello",
    });
    world
        .apply(&json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {"name": "hello-blue", "namespace": world.namespace, "ownerReferences": [owner]}, "spec": spec,
        }))
        .await;
    let record = |revision: u32, status: &str| json!({"revision": revision, "status": status, "at": "2026-01-01T00:00:00Z"});
    let status = json!({
        "observedGeneration": 1, "revision": 2, "inputDigest": "c".repeat(40),
        "history": [record(2, "deployed"), record(1, "superseded")],
    });
    let patch = Patch::Merge(json!({"status": status}));
    world.releases().patch_status("hello-blue", &PatchParams::default(), &patch).await.unwrap();
    let rollout = json!({
        "state": "Stopped", "wave": "first", "waveIndex": 1, "waves": 2, "total": 3, "updated": 1, "updating": 0,
        "failed": 1, "waiting": 1, "targets": ["a1-b2"], "message": "it has stopped, because 1 release has failed",
    });
    let patch = Patch::Merge(json!({"status": {"observedGeneration": 1, "rollout": rollout}}));
    world.placements().patch_status("hello", &PatchParams::default(), &patch).await.unwrap();
}

async fn annotation(world: &World, name: &str) -> Option<String> {
    world.placements().get("hello").await.unwrap().annotations().get(name).cloned()
}

#[tokio::test]
async fn rollout_and_rollback_show_the_status_and_write_annotations() {
    let world = World::new("rollout-command").await;
    create_objects(&world).await;
    let run = async |line: &str| run_ok(&world, &line.split(' ').collect::<Vec<_>>()).await;
    let text = run("rollout status hcp/hello").await;
    for expected in ["Stopped", "first (1/2)", "it has stopped, because 1 release has failed"] {
        assert!(text.contains(expected), "{text}");
    }
    let status: Value = serde_json::from_str(&run("rollout status hcp/hello --output json").await).unwrap();
    assert_eq!((&status["state"], &status["targets"]), (&json!("Stopped"), &json!(["a1-b2"])));
    let stopped = run_err(&world, &["rollout", "status", "hcp/hello", "--watch"]).await;
    assert!(stopped.contains("has stopped; run `chandler rollout resume`"), "{stopped}");

    let namespace = &world.namespace;
    let paused = run("rollout pause hcp/hello").await;
    assert_eq!(paused, format!("The rollout of HelmChartProxy {namespace}/hello is paused.\n"));
    assert_eq!(annotation(&world, "chandler.dev/rollout-paused").await.as_deref(), Some("true"));
    assert!(run("rollout pause hello").await.contains("is paused already"));
    run("rollout skip hcp/hello --cluster blue").await;
    assert_eq!(annotation(&world, "chandler.dev/rollout-skip").await.as_deref(), Some("blue"));
    let unknown = run_err(&world, &["rollout", "skip", "hcp/hello", "--cluster", "red"]).await;
    assert!(unknown.contains("has no release on cluster `red`"), "{unknown}");
    run("rollout skip hcp/hello --none").await;
    assert_eq!(annotation(&world, "chandler.dev/rollout-skip").await, None);
    run("rollout abort hcp/hello").await;
    assert_eq!(annotation(&world, "chandler.dev/rollout-abort").await.as_deref(), Some("a1-b2"));
    run("rollout resume hcp/hello").await;
    assert!(annotation(&world, "chandler.dev/rollout-resume-at").await.is_some());
    for removed in ["chandler.dev/rollout-paused", "chandler.dev/rollout-abort"] {
        assert_eq!(annotation(&world, removed).await, None, "{removed}");
    }
    let release = run_err(&world, &["rollout", "status", "release/hello-blue"]).await;
    assert!(release.contains("name its placement instead"), "{release}");

    let rolled_back = run("rollback hcp/hello --cluster blue").await;
    assert_eq!(
        rolled_back,
        format!(
            "HelmReleaseProxy {namespace}/hello-blue on cluster blue will be rolled back to revision 1.\n"
        )
    );
    let object = world.releases().get("hello-blue").await.unwrap();
    let generation = object.metadata.generation.unwrap();
    let expected = format!("1.{}.{generation}", "c".repeat(40));
    assert_eq!(object.annotations()["chandler.dev/rollback-to"], expected);
    let missing = run_err(&world, &["rollback", "hcp/hello", "--to-revision", "7"]).await;
    assert!(missing.contains("has no revision 7 that was deployed; choose one of 1"), "{missing}");
}
