//! Chandler adopts the objects and releases of the Cluster API Add-on Provider for Helm (CAAPH) unchanged.

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

/// A release name as Helm 3 generates it.
const RELEASE: &str = "keys-1735787046";
const RELEASE_SECRET: &str = "sh.helm.release.v1.keys-1735787046.v1";
/// The field manager of CAAPH on workload clusters: Helm's SDK uses the base name of the binary.
const WORKLOAD_FIELD_MANAGER: &str = "manager";
/// The field manager of CAAPH on the management cluster: the first part of its user agent.
const MANAGEMENT_FIELD_MANAGER: &str = "cluster-api-helm-controller-manager";
const VALUES: &str = "data: {a: one, b: two}\nenv: [{name: A, value: one}, {name: B, value: two}]\n";

/// Installs a release as Helm 3 does in CAAPH: by client-side apply, with the field manager of CAAPH.
async fn install_release(world: &World, alpha: &Plane) {
    let archive = world.archive(&chart("keys")).to_string_lossy().into_owned();
    let values = world.dir.join("values.yaml");
    std::fs::write(&values, VALUES).unwrap();
    let values = values.to_string_lossy();
    let install = ["install", RELEASE, &archive, "--server-side=false", "--values", &values];
    let output = world.helm_command(alpha, &install).args(["--namespace", "default"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rename_field_manager(api::<ConfigMap>(alpha).await).await;
    rename_field_manager(api::<Deployment>(alpha).await).await;
    remove_apply_method(&api(alpha).await).await;
}

async fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(alpha: &Plane) -> Api<K> {
    Api::namespaced(alpha.client().await.unwrap(), "default")
}

async fn rename_field_manager<K>(api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let object = api.get(RELEASE).await.unwrap();
    let mut entries = object.managed_fields().to_vec();
    let helm = entries.iter_mut().find(|entry| entry.manager.as_deref() == Some("helm")).unwrap();
    assert_eq!(helm.operation.as_deref(), Some("Update"), "the helm CLI applied client-side");
    helm.manager = Some(WORKLOAD_FIELD_MANAGER.to_owned());
    let patch = Patch::Merge(json!({"metadata": {"managedFields": entries}}));
    api.patch(RELEASE, &PatchParams::default(), &patch).await.unwrap();
}

/// Removes `apply_method` from the release Secret: Helm 3 does not write it.
async fn remove_apply_method(secrets: &Api<Secret>) {
    let mut secret = secrets.get(RELEASE_SECRET).await.unwrap();
    let data = secret.data.as_mut().unwrap();
    let packed = STANDARD.decode(&data["release"].0).unwrap();
    let mut text = String::new();
    GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let mut release: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(release.as_object_mut().unwrap().remove("apply_method"), Some(json!("csa")));
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(release.to_string().as_bytes()).unwrap();
    let packed = STANDARD.encode(packed.finish().unwrap());
    data.insert("release".to_owned(), ByteString(packed.into_bytes()));
    secrets.replace(RELEASE_SECRET, &PostParams::default(), &secret).await.unwrap();
}

/// Returns the options with the defaults that the webhooks of CAAPH set.
fn options() -> Value {
    json!({
        "enableClientCache": false, "timeout": "10m0s",
        "install": {"createNamespace": true}, "upgrade": {"maxHistory": 10},
    })
}

/// Creates the release object with all fields that CAAPH sets.
async fn create_release_object(world: &World) -> HelmReleaseProxy {
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
    let manager = Some(MANAGEMENT_FIELD_MANAGER.to_owned());
    let parameters = PostParams { field_manager: manager.clone(), ..PostParams::default() };
    let created =
        world.releases().create(&parameters, &serde_json::from_value(object).unwrap()).await.unwrap();
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
    world.releases().patch_status(&created.name_any(), &parameters, &Patch::Merge(status)).await.unwrap()
}

async fn keys(alpha: &Plane) -> BTreeMap<String, String> {
    api::<ConfigMap>(alpha).await.get(RELEASE).await.unwrap().data.unwrap_or_default()
}

async fn env(alpha: &Plane) -> Vec<String> {
    let spec = api::<Deployment>(alpha).await.get(RELEASE).await.unwrap().spec.unwrap().template.spec;
    let env = spec.unwrap().containers.remove(0).env.unwrap_or_default();
    env.into_iter().map(|variable| variable.name).collect()
}

#[tokio::test]
async fn objects_and_releases_of_caaph_are_adopted() {
    let world = World::new("takeover").await;
    world.repository.publish(&chart("keys")).unwrap();
    let alpha = world.create_cluster("alpha").await;
    let changes = json!({"releaseName": "", "valuesTemplate": VALUES, "options": options()});
    world.apply_placement("keys", "keys", changes).await;
    install_release(&world, &alpha).await;
    let original = create_release_object(&world).await;
    let secret = api::<Secret>(&alpha).await.get(RELEASE_SECRET).await.unwrap();
    let deployment = api::<Deployment>(&alpha).await.get(RELEASE).await.unwrap();

    let manager = world.start_manager();
    eventually("the release is adopted", || async {
        let now = api::<Secret>(&alpha).await.get(RELEASE_SECRET).await.unwrap();
        assert_eq!((now.uid(), &now.data), (secret.uid(), &secret.data), "the release Secret is unchanged");
        now.labels().contains_key("chandler.dev/input").then_some(())
    })
    .await;
    // CAAPH has already set Ready. The inventory is set only by Chandler.
    eventually("the status lists both objects of the release", || async {
        let status = world.wait_ready("keys", "alpha", 1).await;
        (status.inventory.len() == 2 && condition(&status, "HelmReleaseReady").is_some()).then_some(())
    })
    .await;
    let all = world.releases().list(&ListParams::default()).await.unwrap().items;
    let [adopted] = all.as_slice() else { panic!("expected one release object: {all:?}") };
    assert_eq!((adopted.uid(), &adopted.spec), (original.uid(), &original.spec));
    let current = api::<Deployment>(&alpha).await.get(RELEASE).await.unwrap();
    assert_eq!(current.metadata.generation, deployment.metadata.generation, "nothing is reinstalled");
    assert_eq!(world.history(&alpha, RELEASE), [(1, "deployed".to_owned())], "no revision is added");

    let upgrades = [
        ("data: {a: changed, b: two}\nenv: [{name: A, value: one}, {name: B, value: two}]\n", 2, 2),
        ("data: {a: changed}\nenv: [{name: A, value: one}]\n", 3, 1),
    ];
    for (values, revision, fields) in upgrades {
        world.patch_placement("keys", json!({"valuesTemplate": values})).await;
        world.wait_ready("keys", "alpha", revision).await;
        let (keys, env) = (keys(&alpha).await, env(&alpha).await);
        assert_eq!((keys.len(), env.len()), (fields, fields), "at revision {revision}: {keys:?} {env:?}");
        assert_eq!(keys["a"], "changed");
    }
    assert_eq!(world.history(&alpha, RELEASE).len(), 3, "each change is one revision");

    // Fields can be removed from the release object too.
    world.patch_placement("keys", json!({"valuesTemplate": null, "version": null})).await;
    world.wait_ready("keys", "alpha", 4).await;
    let adopted = world.release("keys", "alpha").await.unwrap();
    assert_eq!(
        (adopted.uid(), adopted.spec.values.as_str(), adopted.spec.version.as_str()),
        (original.uid(), "", "")
    );
    assert!(keys(&alpha).await.is_empty(), "no values are left");
    assert_eq!(manager.logs().matches(r#""level":"ERROR""#).count(), 0, "{}", manager.logs());
}
