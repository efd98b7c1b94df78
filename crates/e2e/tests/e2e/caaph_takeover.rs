//! What the Cluster API add-on provider for Helm leaves is taken over as it is.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io::{Read as _, Write as _},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    wait::eventually,
    world::{World, chart, condition},
};
use chandler_sandbox::plane::Plane;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Helm 3 generates such names.
const RELEASE: &str = "keys-1735787046";
const RECORD: &str = "sh.helm.release.v1.keys-1735787046.v1";
/// The base name of its binary, which is what Helm's SDK calls itself on a workload cluster.
const ON_WORKLOAD: &str = "manager";
/// The first word of its user agent, which is what it is called on the management cluster.
const ON_MANAGEMENT: &str = "cluster-api-helm-controller-manager";
const VALUES: &str = "data: {a: one, b: two}\nenv: [{name: A, value: one}, {name: B, value: two}]\n";

/// A release that was installed by Helm 3 in a controller: client-side, under the controller's name.
async fn installed(world: &World, alpha: &Plane) {
    let archive = world.archive(&chart("keys")).to_string_lossy().into_owned();
    let values = world.dir.join("values.yaml");
    std::fs::write(&values, VALUES).unwrap();
    let values = values.to_string_lossy();
    let install = ["install", RELEASE, &archive, "--server-side=false", "--values", &values];
    let output = world.helm_command(alpha, &install).args(["--namespace", "default"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rename_writer(on::<ConfigMap>(alpha).await).await;
    rename_writer(on::<Deployment>(alpha).await).await;
    forget_method(&on(alpha).await).await;
}

async fn on<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(alpha: &Plane) -> Api<K> {
    Api::namespaced(alpha.client().await.unwrap(), "default")
}

async fn rename_writer<K>(api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let object = api.get(RELEASE).await.unwrap();
    let mut entries = object.managed_fields().to_vec();
    let helm = entries.iter_mut().find(|entry| entry.manager.as_deref() == Some("helm")).unwrap();
    assert_eq!(helm.operation.as_deref(), Some("Update"), "the helm CLI applied client-side");
    helm.manager = Some(ON_WORKLOAD.to_owned());
    let patch = Patch::Merge(json!({"metadata": {"managedFields": entries}}));
    api.patch(RELEASE, &PatchParams::default(), &patch).await.unwrap();
}

/// Helm 3 does not record how it applies.
async fn forget_method(secrets: &Api<Secret>) {
    let mut record = secrets.get(RECORD).await.unwrap();
    let data = record.data.as_mut().unwrap();
    let packed = STANDARD.decode(&data["release"].0).unwrap();
    let mut text = String::new();
    GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let mut release: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(release.as_object_mut().unwrap().remove("apply_method"), Some(json!("csa")));
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(release.to_string().as_bytes()).unwrap();
    let packed = STANDARD.encode(packed.finish().unwrap());
    data.insert("release".to_owned(), ByteString(packed.into_bytes()));
    secrets.replace(RECORD, &PostParams::default(), &record).await.unwrap();
}

/// With the defaults that its webhooks write.
fn options() -> Value {
    json!({
        "enableClientCache": false, "timeout": "10m0s",
        "install": {"createNamespace": true}, "upgrade": {"maxHistory": 10},
    })
}

/// The release object, with everything that the other provider puts there.
async fn proxied(world: &World) -> HelmReleaseProxy {
    let placement = world.placements().get("keys").await.unwrap();
    let spec = json!({
        "clusterRef": {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "name": "alpha", "namespace": world.namespace,
        },
        "chartName": "keys", "repoURL": world.repository.url(), "version": "1.0.0", "namespace": "default",
        "releaseName": RELEASE, "values": placement.spec.values_template,
        "options": options(),
        "tlsConfig": {"caSecret": {"name": "ca", "namespace": world.namespace}},
    });
    let object = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
        "metadata": {
            "generateName": "keys-alpha-", "namespace": world.namespace,
            "finalizers": ["helmreleaseproxy.addons.cluster.x-k8s.io"],
            "labels": {
                "cluster.x-k8s.io/cluster-name": "alpha",
                "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "keys",
            },
            "annotations": {
                "helmreleaseproxy.addons.cluster.x-k8s.io/is-release-name-generated": "true",
                "helmreleaseproxy.addons.cluster.x-k8s.io/release-successfully-installed": "true",
            },
            "ownerReferences": [placement.controller_owner_ref(&()).unwrap()],
        },
        "spec": spec,
    });
    let manager = Some(ON_MANAGEMENT.to_owned());
    let parameters = PostParams { field_manager: manager.clone(), ..PostParams::default() };
    let made = world.releases().create(&parameters, &serde_json::from_value(object).unwrap()).await.unwrap();
    let ready = |type_: &str, reason: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    };
    let status = json!({"status": {
        "conditions": [ready("Ready", "Ready"), ready("ClusterAvailable", "Available"), ready("HelmReleaseReady", "Ready")],
        "observedGeneration": 1, "revision": 1, "status": "deployed",
    }});
    let parameters = PatchParams { field_manager: manager, ..PatchParams::default() };
    world.releases().patch_status(&made.name_any(), &parameters, &Patch::Merge(status)).await.unwrap()
}

async fn keys(alpha: &Plane) -> BTreeMap<String, String> {
    on::<ConfigMap>(alpha).await.get(RELEASE).await.unwrap().data.unwrap_or_default()
}

async fn env(alpha: &Plane) -> Vec<String> {
    let spec = on::<Deployment>(alpha).await.get(RELEASE).await.unwrap().spec.unwrap().template.spec;
    let env = spec.unwrap().containers.remove(0).env.unwrap_or_default();
    env.into_iter().map(|variable| variable.name).collect()
}

#[tokio::test]
async fn what_the_other_provider_leaves_is_taken_over() {
    let world = World::new("takeover").await;
    world.repository.publish(&chart("keys")).unwrap();
    let alpha = world.cluster("alpha").await;
    let changes = json!({"releaseName": "", "valuesTemplate": VALUES, "options": options()});
    world.place("keys", "keys", changes).await;
    installed(&world, &alpha).await;
    let left = proxied(&world).await;
    let record = on::<Secret>(&alpha).await.get(RECORD).await.unwrap();
    let deployment = on::<Deployment>(&alpha).await.get(RELEASE).await.unwrap();

    let manager = world.manager();
    eventually("the release is adopted", || async {
        let now = on::<Secret>(&alpha).await.get(RECORD).await.unwrap();
        assert_eq!((now.uid(), &now.data), (record.uid(), &record.data), "the record stays as it is");
        now.labels().contains_key("chandler.dev/input").then_some(())
    })
    .await;
    // Ready is already there: the other provider wrote it. The inventory comes with Chandler's own status.
    eventually("the status lists both objects of the release", || async {
        let status = world.ready("keys", "alpha", 1).await;
        (status.inventory.len() == 2 && condition(&status, "HelmReleaseReady").is_some()).then_some(())
    })
    .await;
    let all = world.releases().list(&ListParams::default()).await.unwrap().items;
    let [taken] = all.as_slice() else { panic!("one release object is one release object: {all:?}") };
    assert_eq!((taken.uid(), &taken.spec), (left.uid(), &left.spec));
    let untouched = on::<Deployment>(&alpha).await.get(RELEASE).await.unwrap();
    assert_eq!(untouched.metadata.generation, deployment.metadata.generation, "nothing is reinstalled");
    assert_eq!(world.history(&alpha, RELEASE), [(1, "deployed".to_owned())], "no revision is added");

    let upgrades = [
        ("data: {a: changed, b: two}\nenv: [{name: A, value: one}, {name: B, value: two}]\n", 2, 2),
        ("data: {a: changed}\nenv: [{name: A, value: one}]\n", 3, 1),
    ];
    for (values, revision, fields) in upgrades {
        world.change("keys", json!({"valuesTemplate": values})).await;
        world.ready("keys", "alpha", revision).await;
        let (keys, env) = (keys(&alpha).await, env(&alpha).await);
        assert_eq!((keys.len(), env.len()), (fields, fields), "at revision {revision}: {keys:?} {env:?}");
        assert_eq!(keys["a"], "changed");
    }
    assert_eq!(world.history(&alpha, RELEASE).len(), 3, "each change is one revision");

    // Fields go from the release object too.
    world.change("keys", json!({"valuesTemplate": null, "version": null})).await;
    world.ready("keys", "alpha", 4).await;
    let taken = world.release("keys", "alpha").await.unwrap();
    assert_eq!((taken.uid(), taken.spec.values.as_str(), taken.spec.version.as_str()), (left.uid(), "", ""));
    assert!(keys(&alpha).await.is_empty(), "no values are left");
    assert_eq!(manager.logs().matches(r#""level":"ERROR""#).count(), 0, "{}", manager.logs());
}
