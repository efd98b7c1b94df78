//! `chandler history`: what it prints of the status of release objects. No manager runs.

use chandler_e2e::{
    chandler_command::{run_err, run_ok},
    world::World,
};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// Creates a HelmChartProxy with a release on `blue` that has two revisions and one on `green` that has none.
async fn create_objects(world: &World, revisions: &Value) {
    world.apply_placement("hello", "hello", json!({})).await;
    let owner = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "hello",
        "uid": world.placements().get("hello").await.unwrap().uid(), "controller": true,
    });
    for (cluster, history) in [("blue", revisions), ("green", &json!([]))] {
        let name = format!("hello-{cluster}");
        world
            .apply(&json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
                "metadata": {"name": name, "namespace": world.namespace, "ownerReferences": [owner]},
                "spec": {
                    "clusterRef": {"name": cluster}, "repoURL": world.repository.url(), "chartName": "hello",
                    "releaseName": "hello",
                },
            }))
            .await;
        let patch = Patch::Merge(json!({"status": {"history": history}}));
        world.releases().patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
}

#[tokio::test]
async fn the_last_revisions_are_shown_as_text_json_and_yaml() {
    let world = World::new("history-command").await;
    let revisions = json!([
        {"revision": 2, "status": "deployed", "version": "1.1.0", "at": "2026-01-02T00:00:00Z"},
        {"revision": 1, "status": "superseded", "at": "2026-01-01T00:00:00Z"},
    ]);
    create_objects(&world, &revisions).await;
    assert_eq!(
        run_ok(&world, &["history", "hcp/hello"]).await,
        "CLUSTER   RELEASE         REVISION   STATUS       VERSION   CREATED\n\
         blue      default/hello   2          deployed     1.1.0     2026-01-02T00:00:00Z\n\
         blue      default/hello   1          superseded   -         2026-01-01T00:00:00Z\n\
         green     default/hello   -          -            -         -\n"
    );
    let expected = json!([{
        "object": {"kind": "HelmReleaseProxy", "namespace": world.namespace, "name": "hello-blue"},
        "cluster": "blue", "release": "default/hello", "revisions": revisions,
    }]);
    for arguments in [["hcp/hello", "--cluster", "blue"].as_slice(), &["release/hello-blue"]] {
        let json = run_ok(&world, &[&["history", "--output", "json"][..], arguments].concat()).await;
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), expected, "{arguments:?}");
        let yaml = run_ok(&world, &[&["history", "--output", "yaml"][..], arguments].concat()).await;
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), expected, "{arguments:?}");
    }
    let refused = run_err(&world, &["history", "hello", "--cluster", "red"]).await;
    assert!(refused.contains("has no release on cluster `red`; it has releases on blue, green"), "{refused}");
    world.apply_placement("unused", "hello", json!({})).await;
    let none = run_ok(&world, &["history", "unused"]).await;
    assert!(none.contains("chandler describe hcp/unused --namespace"), "{none}");
}
