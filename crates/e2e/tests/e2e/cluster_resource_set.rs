//! The objects of a ClusterResourceSet become a bundle without a restart, by the commands of the guide.

use std::collections::BTreeSet;

use chandler_api::extensions::{ExtensionInstance, Source};
use chandler_e2e::{
    git_guide::GitGuide,
    programs,
    wait::eventually,
    world::{World, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cni
  namespace: default
  labels: {app: cni, old: label}
spec:
  replicas: 2
  selector:
    matchLabels: {app: cni}
  template:
    metadata:
      labels: {app: cni}
    spec:
      containers:
        - {name: cni, image: 'pause:3.10'}
";
const MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cni, namespace: default}\ndata: {mtu: '1500'}\n";

/// Creates a ClusterResourceSet for the clusters of the test, with a ConfigMap and a Secret that contain manifests.
async fn apply_set(world: &World, name: &str, manifests: &str, secret: &str) {
    let metadata = json!({"name": name, "namespace": world.namespace});
    let objects = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"cni.yaml": manifests}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "type": "addons.cluster.x-k8s.io/resource-set", "stringData": {"map": secret},
        }),
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet", "metadata": metadata,
            "spec": {
                "clusterSelector": {"matchLabels": {"fleet": "test"}},
                "resources": [{"kind": "ConfigMap", "name": name}, {"kind": "Secret", "name": name}],
            },
        }),
    ];
    for object in &objects {
        world.apply(object).await;
    }
}

fn sets(world: &World) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("addons.cluster.x-k8s.io", "v1beta2", "ClusterResourceSet");
    Api::namespaced_with(world.client.clone(), &world.namespace, &ApiResource::from_gvk(&kind))
}

/// Returns what a restart or a new object would change: the uids of the Deployment and of its Pods.
async fn identity(plane: &Plane) -> (Option<String>, BTreeSet<String>) {
    let client = plane.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pods = pods.list(&ListParams::default().labels("app=cni")).await.unwrap().items;
    (deployments.get("cni").await.unwrap().uid(), pods.iter().filter_map(ResourceExt::uid).collect())
}

/// Returns the clients that own fields of the objects by an update, as the Cluster API does.
async fn updaters(plane: &Plane) -> BTreeSet<String> {
    let client = plane.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let deployment = deployments.get("cni").await.unwrap().metadata.managed_fields.unwrap();
    let map = maps.get("cni").await.unwrap().metadata.managed_fields.unwrap();
    let is_update = |entry: &ManagedFieldsEntry| {
        entry.operation.as_deref() == Some("Update") && entry.subresource.as_deref().is_none_or(str::is_empty)
    };
    let updates = deployment.into_iter().chain(map).filter(is_update);
    // It writes an annotation of the Deployment.
    updates.filter_map(|entry| entry.manager).filter(|name| name != "kube-controller-manager").collect()
}

/// Runs the command for a set. Returns whether it succeeded, and its output.
async fn migrate(world: &World, name: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new(programs::chandler());
    command.args(["bundle", "migrate-clusterresourceset", name, "--source", "repository"]).args(arguments);
    command.args(["--namespace", &world.namespace, "--kubeconfig"]);
    command.arg(world.sandbox.management().kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Applies the Source of the guide's repository.
async fn apply_source(world: &World, guide: &GitGuide) {
    let source = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
        "metadata": {"name": "repository", "namespace": world.namespace},
        "spec": {
            "git": {"url": guide.localize("https://git.example/fleet.git")}, "interval": "1s",
            "certificateAuthority": {"name": "ca", "key": "ca.crt"},
        },
    });
    world.apply(&source).await;
}

async fn wait_source(world: &World) {
    let sources: Api<Source> = Api::namespaced(world.client.clone(), &world.namespace);
    eventually("the Source has a revision", || async {
        sources.get("repository").await.unwrap().status?.revision
    })
    .await;
}

/// Waits until the Cluster API has applied the set to a cluster, and its Pods are ready.
async fn wait_applied(plane: &Plane) {
    let client = plane.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    eventually("the Cluster API has applied the set", || async {
        let status = deployments.get_opt("cni").await.unwrap()?.status?;
        (status.available_replicas == Some(2) && maps.get_opt("cni").await.unwrap().is_some()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cluster_resource_set_becomes_a_bundle_without_a_restart() {
    let world = World::new("resource-set").await;
    let alpha = world.create_cluster("alpha").await;
    apply_set(&world, "cni", DEPLOYMENT, MAP).await;
    wait_applied(&alpha).await;
    let before = identity(&alpha).await;
    assert_eq!((before.1.len(), updaters(&alpha).await.len()), (2, 1), "the Cluster API owns all fields");

    let _manager = world.start_manager();
    let guide = GitGuide::new(&world, "migrating-from-clusterresourceset").await;
    apply_source(&world, &guide).await;
    let shown = guide.run_all("Look").await;
    for expected in
        ["01-cni-cni.yaml", "Deployment default/cni", "ConfigMap default/cni", "Nothing was changed"]
    {
        assert!(shown.contains(expected), "{shown}");
    }
    guide.run_all("Write").await;
    wait_source(&world).await;

    // A resource that is not what was applied would change objects.
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    for (manifests, changed) in
        [(DEPLOYMENT.replace("replicas: 2", "replicas: 3"), true), (DEPLOYMENT.to_owned(), false)]
    {
        let patch = Patch::Merge(json!({"data": {"cni.yaml": manifests}}));
        maps.patch("cni", &PatchParams::default(), &patch).await.unwrap();
        let (_, text) = migrate(&world, "cni", &[]).await;
        assert_eq!(text.contains("ConfigMap cni (cluster alpha)"), changed, "{text}");
        if changed {
            let (success, text) = migrate(&world, "cni", &["--apply"]).await;
            assert!(!success && text.contains("--allow-changes"), "{text}");
        }
    }
    let instances: Api<ExtensionInstance> = Api::namespaced(world.client.clone(), &world.namespace);
    assert!(instances.list(&ListParams::default()).await.unwrap().items.is_empty(), "nothing was changed");

    guide.run_all("Take over").await;
    guide.assert_complete();
    assert!(sets(&world).get_opt("cni").await.unwrap().is_none());
    assert_eq!(identity(&alpha).await, before, "no object was replaced and no Pod restarted");
    assert_eq!(updaters(&alpha).await, BTreeSet::new(), "the fields belong to the release");
    let history = world.helm(&alpha, &["history", "cni", "--namespace", "kube-system"]);
    assert_eq!(history.as_array().unwrap().len(), 1);

    // From now on a push changes and removes fields.
    guide.command("sed -i 's/, old: label//' fleet/bundles/cni/01-cni-cni.yaml").await;
    guide.command("sed -i 's/1500/1400/' fleet/bundles/cni/02-cni-map.yaml").await;
    guide.command("git -C fleet commit --quiet --all --message 'A smaller MTU'").await;
    guide.command("git -C fleet push --quiet origin HEAD:main").await;
    let deployments: Api<Deployment> = Api::namespaced(alpha.client().await.unwrap(), "default");
    eventually("the push has reached the cluster", || async {
        let labels = deployments.get("cni").await.unwrap().metadata.labels?;
        let mtu = config_value(&alpha, "cni", "mtu").await?;
        (!labels.contains_key("old") && mtu == "1400").then_some(())
    })
    .await;
    assert_eq!(identity(&alpha).await, before);
}

#[tokio::test]
async fn a_set_that_cannot_be_migrated_is_refused() {
    let world = World::new("resource-set-refused").await;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: default}\n";
    apply_set(&world, "mixed", &format!("{MAP}---\n{secret}"), "kind: [").await;
    let (success, text) = migrate(&world, "mixed", &[]).await;
    for expected in [
        "Secret default/login would become part of a Git repository",
        "key map of Secret mixed contains invalid YAML",
    ] {
        assert!(!success && text.contains(expected), "{text}");
    }
    apply_set(&world, "mixed", &format!("{MAP}---\n{secret}"), "# nothing").await;
    let (success, text) = migrate(&world, "mixed", &["--leave-secrets", "--output", "json"]).await;
    assert!(success, "{text}");
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&plan["left"][0]["name"], plan["files"].as_array().unwrap().len()), (&json!("login"), 1));
    let (success, text) = migrate(&world, "mixed", &["--leave-secrets", "--apply"]).await;
    assert!(!success && text.contains("Source") && text.contains("does not exist"), "{text}");
    let (success, text) = migrate(&world, "absent", &[]).await;
    assert!(!success && text.contains("kubectl get clusterresourcesets"), "{text}");
}
