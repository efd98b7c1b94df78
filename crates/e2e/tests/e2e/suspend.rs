//! `chandler suspend`, `resume` and `retry`: what they print, and the annotations that they write. What a manager does with
//! these is tested elsewhere.

use chandler_api::extensions::{ExtensionInstance, RETRY_ANNOTATION, SUSPEND_ANNOTATION};
use chandler_e2e::{
    chandler_command::{run_err, run_ok},
    world::World,
};
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const FAILED_AT: &str = "2026-01-01T00:04:00Z";

/// Creates a HelmChartProxy with a release on `blue` that has failed and one on `green` that is ready, and an
/// ExtensionInstance. No manager runs.
async fn create_objects(world: &World) {
    world.apply_placement_with_policy("hello", "hello", "careful", json!({})).await;
    let uid = world.placements().get("hello").await.unwrap().uid();
    let failure = json!({
        "category": "NotReady", "message": "not ready", "input": "1-a", "count": 4, "attempts": 4, "at": FAILED_AT,
    });
    for (cluster, status, reason, failure) in
        [("blue", "False", "RetriesExhausted", failure), ("green", "True", "Ready", Value::Null)]
    {
        let name = format!("hello-{cluster}");
        let owner = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "hello",
            "uid": uid, "controller": true,
        });
        let spec = json!({
            "clusterRef": {"name": cluster}, "repoURL": world.repository.url(), "chartName": "hello",
            "releaseName": "hello",
        });
        world
            .apply(&json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
                "metadata": {"name": name, "namespace": world.namespace, "ownerReferences": [owner]}, "spec": spec,
            }))
            .await;
        let ready = json!({
            "type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": FAILED_AT,
        });
        let status = json!({"observedGeneration": 1, "conditions": [ready], "lastFailure": failure});
        let patch = Patch::Merge(json!({"status": status}));
        world.releases().patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": "base", "namespace": world.namespace},
            "spec": {"extension": {"name": "base"}, "clusters": {"selector": {}}},
        }))
        .await;
}

async fn annotation<K>(api: &Api<K>, object: &str, name: &str) -> Option<String>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    api.get(object).await.unwrap().annotations().get(name).cloned()
}

#[tokio::test]
async fn suspend_resume_and_retry_write_annotations() {
    let world = World::new("suspend-command").await;
    create_objects(&world).await;
    let namespace = &world.namespace;
    let lines = [
        (
            "suspend hcp/hello",
            format!(
                "HelmChartProxy {namespace}/hello is suspended; to continue: chandler resume hcp/hello \
                 --namespace {namespace}\n"
            ),
        ),
        ("suspend hello", format!("HelmChartProxy {namespace}/hello is suspended already.\n")),
        (
            "suspend hcp/hello --cluster blue",
            format!(
                "HelmReleaseProxy {namespace}/hello-blue on cluster blue is suspended; to continue: chandler resume \
                 hrp/hello-blue --namespace {namespace}\n"
            ),
        ),
    ];
    for (line, expected) in lines {
        assert_eq!(run_ok(&world, &line.split(' ').collect::<Vec<_>>()).await, expected, "{line}");
    }
    let (placements, releases) = (world.placements(), world.releases());
    assert_eq!(annotation(&placements, "hello", SUSPEND_ANNOTATION).await.as_deref(), Some("true"));
    assert_eq!(annotation(&releases, "hello-blue", SUSPEND_ANNOTATION).await.as_deref(), Some("true"));
    assert_eq!(annotation(&releases, "hello-green", SUSPEND_ANNOTATION).await, None);

    let resumed = run_ok(&world, &["resume", "hcp/hello"]).await;
    for expected in [
        format!("HelmChartProxy {namespace}/hello is resumed.\n"),
        "Its release on cluster blue is still suspended: add --cluster blue.\n".to_owned(),
        "AddonPolicy careful has `suspend: true`".to_owned(),
    ] {
        assert!(resumed.contains(&expected), "{expected}: {resumed}");
    }
    run_ok(&world, &["resume", "release/hello-blue"]).await;
    assert_eq!(annotation(&placements, "hello", SUSPEND_ANNOTATION).await, None);
    assert_eq!(annotation(&releases, "hello-blue", SUSPEND_ANNOTATION).await, None);
    let again = run_ok(&world, &["resume", "hcp/hello", "--output", "json"]).await;
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(
        again,
        json!([{"kind": "HelmChartProxy", "namespace": namespace, "name": "hello", "changed": false}])
    );

    let instances: Api<ExtensionInstance> = Api::namespaced(world.client.clone(), namespace);
    run_ok(&world, &["suspend", "exti/base"]).await;
    assert_eq!(annotation(&instances, "base", SUSPEND_ANNOTATION).await.as_deref(), Some("true"));
    let refused = run_err(&world, &["suspend", "hcp/hello", "--cluster", "red"]).await;
    assert!(refused.contains("has no release on cluster `red`; it has releases on blue, green"), "{refused}");

    let retried = run_ok(&world, &["retry", "hcp/hello"]).await;
    let expected = format!("HelmReleaseProxy {namespace}/hello-blue on cluster blue is tried again.\n");
    assert_eq!(retried, expected, "the release that is ready is left out");
    let at: Timestamp = annotation(&releases, "hello-blue", RETRY_ANNOTATION).await.unwrap().parse().unwrap();
    assert!(at > FAILED_AT.parse().unwrap(), "{at}");
    assert_eq!(annotation(&releases, "hello-green", RETRY_ANNOTATION).await, None);
    let ready = run_ok(&world, &["retry", "hcp/hello", "--cluster", "green"]).await;
    assert!(ready.contains("hello-green on cluster green has not failed"), "{ready}");
}
