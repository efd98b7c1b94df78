//! A manager takes over what an earlier build left: objects of the management cluster and Helm releases that were recorded
//! from commit 3f1a354 (`recorded/README.md`). Nothing is installed again and no default is applied twice.

use std::{collections::BTreeMap, path::Path};

use chandler_e2e::{
    extension_world::{ExtensionWorld, is_ready},
    wait::eventually,
    world::condition,
};
use chandler_sandbox::{apply, plane::Plane};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

const HELM: &str = "owner=helm";

fn recorded(file: &str, test: &ExtensionWorld) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/recorded").join(file);
    let objects = std::fs::read_to_string(path).unwrap();
    let objects = objects.replace("@namespace@", &test.world.namespace);
    serde_json::from_str(&objects.replace("@repository@", test.world.repository.url())).unwrap()
}

fn resource(object: &Value) -> ApiResource {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, kind);
    let plural = match kind.kind.as_str() {
        "HelmChartProxy" => "helmchartproxies".to_owned(),
        "HelmReleaseProxy" => "helmreleaseproxies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&kind, &plural)
}

/// Creates recorded objects with their status. Owner references get the uids of this cluster.
async fn restore(client: &Client, objects: Vec<Value>, mut uids: BTreeMap<String, String>) {
    for mut object in objects {
        let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            let name = format!("{}/{}", owner["kind"].as_str().unwrap(), owner["name"].as_str().unwrap());
            owner["uid"] = uids[&name].clone().into();
        }
        let status = object.as_object_mut().unwrap().remove("status");
        let namespace = object["metadata"]["namespace"].as_str().unwrap().to_owned();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource(&object));
        ensure_namespace(client, &namespace).await;
        let kind = object["kind"].as_str().unwrap().to_owned();
        let made =
            api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        uids.insert(format!("{kind}/{}", made.name_any()), made.uid().unwrap());
        if let Some(mut status) = status {
            if status.get("observedGeneration").is_some() {
                status["observedGeneration"] = made.metadata.generation.into();
            }
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&made.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

async fn ensure_namespace(client: &Client, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply::apply(client, &object).await.unwrap();
}

/// The records of all Helm releases.
async fn records(alpha: &Plane) -> Vec<Secret> {
    let api: Api<Secret> = Api::all(alpha.client().await.unwrap());
    api.list(&ListParams::default().labels(HELM)).await.unwrap().items
}

async fn all_ready(test: &ExtensionWorld) {
    eventually("all releases are Ready", || async {
        let own = test.releases().list(&ListParams::default()).await.unwrap().items;
        let proxies = test.world.releases().list(&ListParams::default()).await.unwrap().items;
        let ready = own.iter().all(is_ready)
            && proxies.iter().all(|proxy| {
                let status = proxy.status.clone().unwrap_or_default();
                condition(&status, "Ready").is_some_and(|ready| ready.status == "True")
            });
        (ready && own.len() >= 3 && proxies.len() >= 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn releases_and_objects_of_an_earlier_build_are_taken_over_unchanged() {
    let test = ExtensionWorld::new("recorded").await;
    let alpha = test.world.create_cluster("alpha").await;
    let workload = alpha.client().await.unwrap();
    restore(&workload, recorded("workload.json", &test), BTreeMap::new()).await;
    let cluster = test.clusters().get("alpha").await.unwrap();
    let annotations = json!({"metadata": {"annotations": recorded("cluster-annotations.json", &test)[0]}});
    test.clusters().patch("alpha", &PatchParams::default(), &Patch::Merge(annotations)).await.unwrap();
    let uids = BTreeMap::from([("Cluster/alpha".to_owned(), cluster.uid().unwrap())]);
    restore(&test.world.client, recorded("management.json", &test), uids).await;
    let (before, instances) =
        (records(&alpha).await, test.instances().list(&ListParams::default()).await.unwrap());
    assert!(before.len() >= 5 && instances.items.len() >= 3, "the fixtures contain releases and instances");

    let manager = test.world.start_manager();
    manager.wait_idle().await;
    all_ready(&test).await;
    manager.wait_idle().await;
    assert_eq!(manager.operations(), [], "nothing is installed, upgraded or removed");
    assert_eq!(records(&alpha).await, before, "no record of a release is written");
    let names = |list: &[chandler_api::extensions::ExtensionInstance]| {
        list.iter().map(|instance| (instance.name_any(), instance.uid())).collect::<Vec<_>>()
    };
    let after = test.instances().list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&after.items), names(&instances.items), "no default is applied twice");
    let given = |cluster: &DynamicObject| cluster.annotations().get("chandler.dev/given-extensions").cloned();
    let annotated = given(&test.clusters().get("alpha").await.unwrap());
    assert!(annotated.is_some_and(|given| given.contains("default-on")), "the Cluster keeps the note");
    manager.stop().await;
}
