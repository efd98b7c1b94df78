//! The manager takes over objects and releases that an earlier build left: no release that is Ready changes.
//! `recorded_objects/README.md` describes what was recorded and how.

mod fingerprints;
mod recording;

use std::sync::{Arc, Mutex};

use chandler_e2e::{
    wait::eventually,
    world::{World, config_value},
};
use chandler_sandbox::{dynamic_api, plane::Plane};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::task::JoinHandle;

use self::{
    fingerprints::{Fingerprints, changes, fingerprints},
    recording::Recording,
};

const CHANDLER: &str = "chandler.dev/v1alpha1";
const PROXIES: &str = "addons.cluster.x-k8s.io/v1alpha1";
const RELEASES: [(&str, &str); 2] = [(PROXIES, "HelmReleaseProxy"), (CHANDLER, "AddonRelease")];
/// The kinds that have the condition `Ready`.
const KINDS: [(&str, &str); 6] = [
    RELEASES[0],
    RELEASES[1],
    (PROXIES, "HelmChartProxy"),
    (CHANDLER, "ExtensionInstance"),
    (CHANDLER, "Extension"),
    (CHANDLER, "ExtensionCatalog"),
];

/// The Helm releases that the test changes at last.
const CHANGED: [&str; 2] = ["note-338fc61f", "kept"];

const NOTHING: [&str; 0] = [];

/// Returns whether a condition of the object is True at its current generation.
fn is_true(object: &DynamicObject, type_: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    found.is_some_and(|condition| {
        condition["status"] == "True"
            && condition["observedGeneration"].as_i64() == object.metadata.generation
    })
}

/// Returns the objects of a kind with these labels in all namespaces, or in one.
async fn list(
    client: &Client,
    namespace: Option<&str>,
    (version, kind): (&str, &str),
    labels: &str,
) -> Vec<DynamicObject> {
    let resource = dynamic_api::resource(version, kind);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.list(&ListParams::default().labels(labels)).await.unwrap().items
}

/// Returns the objects of the management cluster: specs, and the content of Secrets.
async fn management(world: &World) -> Fingerprints {
    let mut all = Fingerprints::new();
    for kind in KINDS {
        let objects = list(&world.client, Some(&world.namespace), kind, "").await;
        all.extend(fingerprints(kind.1, &objects, |object| format!("{:?}", object.metadata.generation)));
    }
    let secrets = list(&world.client, Some(&world.namespace), ("v1", "Secret"), "").await;
    all.extend(fingerprints("Secret", &secrets, |secret| secret.resource_version().unwrap()));
    all
}

/// Returns Helm's records and the objects that the releases have installed.
async fn workload(alpha: &Plane) -> Fingerprints {
    let client = alpha.client().await.unwrap();
    let installed = "app.kubernetes.io/managed-by=Helm";
    let mut all = Fingerprints::new();
    for (version, kind, labels) in [
        ("v1", "Secret", "owner=helm"),
        ("v1", "ServiceAccount", installed),
        ("v1", "ConfigMap", installed),
        ("apps/v1", "Deployment", installed),
    ] {
        let objects = list(&client, None, (version, kind), labels).await;
        assert!(!objects.is_empty(), "no {kind} was recorded");
        all.extend(fingerprints(kind, &objects, |object| object.resource_version().unwrap()));
    }
    all
}

/// Waits until the cluster's own controllers have nothing left to write about the restored Deployments.
async fn wait_available(alpha: &Plane) {
    let client = alpha.client().await.unwrap();
    eventually("all Deployments are available", || async {
        let all = list(&client, None, ("apps/v1", "Deployment"), "").await;
        let is_complete = |deployment: &DynamicObject| {
            let status = &deployment.data["status"];
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            status["availableReplicas"] == 1
                && status["observedGeneration"].as_i64() == deployment.metadata.generation
                && conditions.any(|condition| condition["reason"] == "NewReplicaSetAvailable")
        };
        all.iter().all(is_complete).then_some(())
    })
    .await;
}

/// Watches objects from the moment of its creation, and notes what must not happen to them.
struct Guard {
    violations: Arc<Mutex<Vec<String>>>,
    watches: Vec<JoinHandle<()>>,
}

impl Guard {
    async fn start(world: &World) -> Self {
        let violations = Arc::<Mutex<Vec<String>>>::default();
        let mut watches = Vec::new();
        for (version, kind) in KINDS {
            let api = dynamic_api::namespaced(&world.client, &world.namespace, version, kind);
            let list = api.list(&ListParams::default()).await.unwrap();
            let unready: Vec<_> = list.items.iter().filter(|object| !is_true(object, "Ready")).collect();
            assert!(unready.is_empty() && !list.items.is_empty(), "recorded {kind}: {unready:?}");
            let (start, noted) = (list.metadata.resource_version.unwrap(), violations.clone());
            watches.push(tokio::spawn(async move {
                let events = api.watch(&WatchParams::default(), &start).await.unwrap();
                let mut events = events.map_ok(|event| violation(&event)).boxed();
                while let Ok(event) = events.try_next().await {
                    // The watch must not end before the test does.
                    let Some(event) = event else { break };
                    noted.lock().unwrap().extend(event);
                }
                noted.lock().unwrap().push(format!("the watch of {kind} has ended"));
            }));
        }
        Self { violations, watches }
    }

    /// Ends the watches. Fails if a release was not Ready for a moment, or if an object was created or deleted.
    fn assert_unchanged(self) {
        self.watches.iter().for_each(JoinHandle::abort);
        assert_eq!(*self.violations.lock().unwrap(), NOTHING);
    }
}

fn violation(event: &WatchEvent<DynamicObject>) -> Option<String> {
    let (what, object) = match event {
        WatchEvent::Modified(object) if object.metadata.deletion_timestamp.is_some() => ("deleting", object),
        WatchEvent::Modified(object) if is_true(object, "Ready") => return None,
        WatchEvent::Modified(object) => ("not Ready", object),
        WatchEvent::Added(object) => ("created", object),
        WatchEvent::Deleted(object) => ("deleted", object),
        WatchEvent::Bookmark(_) => return None,
        WatchEvent::Error(error) => return Some(format!("{error:?}")),
    };
    Some(format!("{} is {what}: {}", object.name_any(), object.data["status"]))
}

#[test]
fn a_release_that_is_not_ready_for_a_moment_is_noticed() {
    let release = |ready: &str| -> DynamicObject {
        let condition = json!({"type": "Ready", "status": ready, "observedGeneration": 1});
        serde_json::from_value(json!({
            "apiVersion": CHANDLER, "kind": "AddonRelease", "metadata": {"name": "kept", "generation": 1},
            "status": {"conditions": [condition]},
        }))
        .unwrap()
    };
    assert_eq!(violation(&WatchEvent::Modified(release("True"))), None);
    for event in [
        WatchEvent::Modified(release("False")),
        WatchEvent::Added(release("True")),
        WatchEvent::Deleted(release("True")),
    ] {
        assert!(violation(&event).is_some(), "{event:?}");
    }
}

/// Waits until the manager has reported the health of every release, which the earlier build did not.
async fn wait_reconciled(world: &World) {
    eventually("every release is reconciled", || async {
        for kind in RELEASES {
            let all = list(&world.client, Some(&world.namespace), kind, "").await;
            all.iter().all(|release| is_true(release, "Healthy")).then_some(())?;
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn no_ready_release_of_an_earlier_build_changes() {
    let recording = Recording::start().await;
    let world = &recording.world;
    let alpha = world.create_cluster("alpha").await;
    recording.restore(&alpha).await;
    wait_available(&alpha).await;
    let before = (management(world).await, workload(&alpha).await);
    let guard = Guard::start(world).await;

    let manager = world.start_manager();
    wait_reconciled(world).await;
    manager.wait_idle().await;
    manager.wait_idle().await;
    assert_eq!(manager.operations(), [], "no release is installed, upgraded or removed");
    guard.assert_unchanged();
    assert_eq!(changes(&before.0, &management(world).await), NOTHING);
    assert_eq!(changes(&before.1, &workload(&alpha).await), NOTHING);
    let annotations = world.clusters().get("alpha").await.unwrap().metadata.annotations.unwrap();
    for (name, value) in recording.annotations() {
        assert_eq!(Some(value), annotations.get(name), "no default is applied twice");
    }

    assert_that_changes_are_applied(&recording, &alpha).await;
    manager.wait_idle().await;
    let changed = changes(&before.1, &workload(&alpha).await);
    let others = changed.iter().filter(|name| !CHANGED.iter().any(|release| name.contains(release)));
    assert_eq!(others.collect::<Vec<_>>(), NOTHING, "no other release changes");
    for release in CHANGED {
        let revision = format!("{release}.v2");
        assert!(changed.iter().any(|name| name.ends_with(&revision)), "{revision} is noticed: {changed:?}");
    }
    manager.stop().await;
}

/// The manager acts on the recorded objects: it still uses a private address, a login, any certificate, and the Secret with
/// the values of a release.
async fn assert_that_changes_are_applied(recording: &Recording, alpha: &Plane) {
    let world = &recording.world;
    world.patch_placement("private", json!({"valuesTemplate": "greeting: Again"})).await;
    world.wait_ready("private", "alpha", 2).await;
    assert_eq!(world.release("private", "alpha").await.unwrap().spec.release_name, CHANGED[0]);
    assert!(recording.private.requests().contains_key("/note-1.1.0.tgz"));

    let api = |kind| dynamic_api::namespaced(&world.client, &world.namespace, CHANDLER, kind);
    let patch = Patch::Merge(json!({"spec": {"parameters": {"cluster": "alpha"}}}));
    api("ExtensionInstance").patch("kept", &PatchParams::default(), &patch).await.unwrap();
    let kept = eventually("the values of `kept` are applied", || async {
        let release = api("AddonRelease").get("kept").await.unwrap();
        (is_true(&release, "Ready") && release.data["status"]["revision"] == 2).then_some(release)
    })
    .await;
    assert_eq!(kept.data["spec"]["valuesSecret"]["name"], "kept-values");
    let greeting = config_value(alpha, "kept", "greeting").await;
    assert_eq!(greeting.as_deref(), Some("canary-of-settings from alpha"));
}
