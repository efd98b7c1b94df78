//! Records `objects.json` and `charts` with the manager, the Helm driver and the sandbox of commit 3f1a354.
//!
//! This file is a module of the end-to-end tests of that commit, not of these ones: see README.md.

use std::{fs, path::PathBuf};

use chandler_sandbox::{
    chart,
    plane::Plane,
    repository::{ChartRepository, Guard},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::world::{World, eventually};

const NAMESPACE: &str = "team";
const PASSWORD: &str = "canary-of-a-repository";

const CHANDLER: &str = "chandler.dev/v1alpha1";
const PROXIES: &str = "addons.cluster.x-k8s.io/v1alpha1";
/// Owners precede what they own.
const KINDS: [(&str, &str); 7] = [
    (CHANDLER, "ExtensionCatalog"),
    (CHANDLER, "Extension"),
    (PROXIES, "HelmChartProxy"),
    (PROXIES, "HelmReleaseProxy"),
    (CHANDLER, "ExtensionInstance"),
    (CHANDLER, "AddonRelease"),
    ("v1", "Secret"),
];
const RELEASES: [(&str, &str, usize); 2] = [(PROXIES, "HelmReleaseProxy", 4), (CHANDLER, "AddonRelease", 6)];

const NOTE: [(&str, &str); 6] = [
    ("Chart.yaml", "apiVersion: v2\nname: note\nversion: 1.0.0\n"),
    ("values.yaml", "greeting: Hello\ncluster: somewhere\n"),
    (
        "templates/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
         data: {greeting: {{ printf \"%s from %s\" .Values.greeting .Values.cluster | quote }}}\n",
    ),
    (
        "templates/account.yaml",
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: {{ .Release.Name }}}\n",
    ),
    (
        "templates/deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}}\nspec:\n\
         \x20 selector: {matchLabels: {app: {{ .Release.Name }}}}\n\
         \x20 template:\n    metadata: {labels: {app: {{ .Release.Name }}}}\n\
         \x20   spec:\n      serviceAccountName: {{ .Release.Name }}\n\
         \x20     containers: [{name: note, image: registry.example/note}]\n",
    ),
    (
        "templates/hook.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook\n\
         \x20 labels: {app.kubernetes.io/managed-by: Helm}\n\
         \x20 annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}\n",
    ),
];
const CAPABLE: [(&str, &str); 2] = [
    ("Chart.yaml", "apiVersion: v2\nname: capable\nversion: 1.0.0\n"),
    (
        "templates/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
         data: {kubernetes: {{ .Capabilities.KubeVersion.Version | quote }}}\n",
    ),
];

#[tokio::test]
async fn record() {
    let folder = PathBuf::from(std::env::var_os("RECORD_TO").expect("RECORD_TO is the folder to write to"));
    let mut world = World::new("record").await;
    world.namespace = NAMESPACE.to_owned();
    world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await;
    let (open, guarded) = repositories(&world).await;
    let alpha = world.cluster("alpha").await;
    secrets(&world, &open).await;
    let manager = world.manager();
    chart_proxies(&world, &open, &guarded).await;
    extensions(&world, &open).await;
    instances(&world).await;
    world.ready("plain", "alpha", 1).await;
    world.change("plain", json!({"valuesTemplate": "greeting: Again"})).await;
    world.ready("plain", "alpha", 2).await;
    all_ready(&world).await;
    manager.settled().await;
    all_ready(&world).await;
    manager.stop().await;
    write(&folder, &world, &alpha, [open.url(), guarded.url()]).await;
}

/// One repository for everybody, and one that needs a login.
async fn repositories(world: &World) -> (ChartRepository, ChartRepository) {
    let note = chart::write(&world.dir.join("note"), &NOTE).unwrap();
    let capable = chart::write(&world.dir.join("capable"), &CAPABLE).unwrap();
    let authority = world.sandbox.authority();
    let login = Guard::Basic { user: "user".to_owned(), password: PASSWORD.to_owned() };
    let open = ChartRepository::start(authority, &world.dir.join("open")).await.unwrap();
    let guarded =
        ChartRepository::start_guarded(authority, &world.dir.join("guarded"), login).await.unwrap();
    for repository in [&open, &guarded] {
        repository.publish(&note).unwrap();
        repository.publish_version(&note, "1.1.0").unwrap();
        repository.publish(&capable).unwrap();
    }
    (open, guarded)
}

async fn secrets(world: &World, open: &ChartRepository) {
    for (name, data) in [
        ("ca", json!({"ca.crt": open.ca_pem()})),
        ("login", json!({"username": "user", "password": PASSWORD})),
        ("settings", json!({"greeting": "canary-of-settings"})),
    ] {
        apply(world, "v1", "Secret", name, json!({"stringData": data})).await;
    }
}

async fn apply(world: &World, version: &str, kind: &str, name: &str, fields: Value) {
    let mut object = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": world.namespace},
    });
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world.apply(&object).await;
}

async fn chart_proxies(world: &World, open: &ChartRepository, guarded: &ChartRepository) {
    let open = open.url();
    world.place("plain", "note", json!({"repoURL": open, "valuesTemplate": "greeting: Hello"})).await;
    let template = "greeting: Hello\ncluster: {{ .Cluster.metadata.name }}";
    world
        .place(
            "templated",
            "note",
            json!({
                "repoURL": open, "namespace": "templated", "valuesTemplate": template,
                "options": {"wait": true, "timeout": "5m", "upgrade": {"maxHistory": 3}},
            }),
        )
        .await;
    // The newest version, a generated name, a login, and any certificate.
    world
        .place(
            "private",
            "note",
            json!({
                "repoURL": guarded.url(), "version": "", "releaseName": "",
                "credentials": {"secret": {"name": "login"}, "key": ""},
                "tlsConfig": {"insecureSkipTLSVerify": true}, "options": {"atomic": true},
            }),
        )
        .await;
    world.place("once", "capable", json!({"repoURL": open, "reconcileStrategy": "InstallOnce"})).await;
}

async fn extensions(world: &World, open: &ChartRepository) {
    let catalog = json!({"url": open.url(), "certificateAuthority": {"name": "ca", "key": "ca.crt"}});
    apply(world, CHANDLER, "ExtensionCatalog", "charts", json!({"spec": catalog})).await;
    let source = |chart: &str| json!({"catalog": {"name": "charts"}, "chart": chart});
    let note = |version: &str| json!({"version": version, "kubernetes": "*", "source": source("note")});
    let mut app = note("1.1.0");
    app["dependencies"] = json!([{"extension": "base"}]);
    app["parameters"] = json!({
        "schema": {"type": "object", "properties": {"greeting": {"type": "string"}}},
        "defaults": {"greeting": "Good morning"},
    });
    let capable = json!({"version": "1.0.0", "source": source("capable")});
    for (name, spec) in [
        ("base", json!({"versions": [note("1.0.0")]})),
        ("app", json!({"versions": [note("1.0.0"), app]})),
        ("default-on", json!({"versions": [note("1.1.0")], "install": {"default": {}}})),
        ("enforced", json!({"versions": [capable], "install": {"default": {}, "enforced": true}})),
    ] {
        apply(world, CHANDLER, "Extension", name, json!({"spec": spec})).await;
    }
}

async fn instances(world: &World) {
    let clusters = json!({"selector": {"matchLabels": {"fleet": "test"}}});
    let from = json!([{"secret": {"name": "settings", "key": "greeting"}, "parameter": "greeting"}]);
    for (name, spec) in [
        (
            "app",
            json!({
                "extension": {"name": "app"}, "clusters": clusters, "release": {"namespace": "default"},
                "parameters": {"greeting": "Hello"}, "parametersTemplate": "cluster: {{ .Cluster.metadata.name }}",
            }),
        ),
        (
            "kept",
            json!({
                "source": {"catalog": {"name": "charts"}, "chart": "note"}, "clusters": {"name": "alpha"},
                "release": {"name": "kept", "namespace": "default"}, "parametersFrom": from,
            }),
        ),
        (
            "shelf",
            json!({
                "extension": {"name": "note", "catalog": "charts"}, "version": "^1.0.0", "clusters": clusters,
                "release": {"name": "shelf"},
            }),
        ),
    ] {
        apply(world, CHANDLER, "ExtensionInstance", name, json!({"spec": spec})).await;
    }
}

fn resource(version: &str, kind: &str) -> ApiResource {
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The objects of a kind, in one namespace or in all.
async fn list(client: &Client, namespace: Option<&str>, kind: (&str, &str), labels: &str) -> Vec<Value> {
    let resource = resource(kind.0, kind.1);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let all = api.list(&ListParams::default().labels(labels)).await.unwrap().items;
    let typed = |object: DynamicObject| {
        let mut object = serde_json::to_value(object).unwrap();
        (object["apiVersion"], object["kind"]) = (kind.0.into(), kind.1.into());
        object
    };
    all.into_iter().map(typed).collect()
}

fn is_ready(object: &Value) -> bool {
    let status = &object["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        && status["observedGeneration"] == object["metadata"]["generation"]
}

async fn all_ready(world: &World) {
    eventually("everything is Ready", || async {
        for (version, kind, count) in RELEASES {
            let all = list(&world.client, Some(NAMESPACE), (version, kind), "").await;
            (all.len() == count).then_some(())?;
        }
        for kind in &KINDS[..6] {
            let all = list(&world.client, Some(NAMESPACE), *kind, "").await;
            all.iter().all(is_ready).then_some(())?;
        }
        Some(())
    })
    .await;
}

/// Without what an API server gives an object on its own, except its uid, which others refer to.
fn stripped(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    object
}

/// Also without what other controllers of the workload cluster have written.
fn of_workload(object: Value) -> Value {
    let mut object = stripped(object);
    object.as_object_mut().unwrap().remove("status");
    if object["kind"] == "Namespace" {
        object.as_object_mut().unwrap().remove("spec");
    }
    let managers = object["metadata"]["managedFields"].as_array_mut().unwrap();
    managers.retain(|manager| manager["manager"] != "kube-controller-manager");
    object
}

async fn management(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in KINDS {
        all.extend(list(&world.client, Some(NAMESPACE), kind, "").await);
    }
    let is_recorded = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        object["kind"] != "Secret" || ["login", "settings"].contains(&name) || name.ends_with("-values")
    };
    all.into_iter().filter(is_recorded).map(stripped).collect()
}

async fn workload(alpha: &Plane) -> Vec<Value> {
    let client = alpha.client().await.unwrap();
    let mut all = list(&client, None, ("v1", "Namespace"), "").await;
    all.retain(|namespace| {
        let name = namespace["metadata"]["name"].as_str().unwrap();
        name != "default" && !name.starts_with("kube-")
    });
    let managed = "app.kubernetes.io/managed-by=Helm";
    for kind in [("v1", "ServiceAccount"), ("v1", "ConfigMap"), ("apps/v1", "Deployment")] {
        all.extend(list(&client, None, kind, managed).await);
    }
    all.extend(list(&client, None, ("v1", "Secret"), "owner=helm").await);
    all.into_iter().map(of_workload).collect()
}

async fn write(folder: &PathBuf, world: &World, alpha: &Plane, [open, guarded]: [&str; 2]) {
    let clusters: Api<DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        NAMESPACE,
        &resource("cluster.x-k8s.io/v1beta2", "Cluster"),
    );
    let cluster = clusters.get("alpha").await.unwrap();
    let annotations = cluster.annotations().clone().into_iter();
    let annotations: Value = annotations.filter(|(name, _)| name.starts_with("chandler.dev/")).collect();
    let cluster = json!({"uid": cluster.uid(), "annotations": annotations});
    let lines =
        |objects: Vec<Value>| objects.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n    ");
    let text = format!(
        "{{\n  \"cluster\": {cluster},\n  \"management\": [\n    {}\n  ],\n  \"workload\": [\n    {}\n  ]\n}}\n",
        lines(management(world).await),
        lines(workload(alpha).await)
    );
    let text = text.replace(open, "@repository@").replace(guarded, "@private@");
    for private in ["127.0.0.1", world.dir.to_str().unwrap()] {
        assert!(!text.contains(private), "{private} is in the recording");
    }
    fs::create_dir_all(folder.join("charts")).unwrap();
    fs::write(folder.join("objects.json"), text).unwrap();
    for entry in fs::read_dir(world.dir.join("open")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "tgz") {
            fs::copy(&path, folder.join("charts").join(path.file_name().unwrap())).unwrap();
        }
    }
}
