//! What a new Kubernetes would mean, asked by a person or a pipeline.

use std::process::Command;

use chandler_api::extensions::ExtensionCatalog;
use chandler_e2e::{extension_world::Extensions, programs, world::hello};
use chandler_sandbox::{chart, service_account};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const GUIDE: &str = include_str!("../../../../docs/guides/kubernetes-upgrades.md");

/// `base` fits any Kubernetes, `net` has a version for each, and the chart of `app` says that it is for nothing newer.
async fn cluster_with_extensions() -> Extensions {
    let test = Extensions::new("upgrade-check").await;
    test.world.cluster("alpha").await;
    for version in ["1.34.0", "1.35.0"] {
        test.world.repository.publish_version(&hello(), version).unwrap();
    }
    let metadata = "apiVersion: v2\nname: app\nversion: 1.0.0\nkubeVersion: '<1.35.0-0'\n";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n";
    let files = [("Chart.yaml", metadata), ("templates/map.yaml", map)];
    test.world.repository.publish(&chart::write(&test.world.dir.join("app"), &files).unwrap()).unwrap();
    test.extension("base", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let follow = json!({"catalog": {"name": "charts"}, "chart": "hello"});
    test.extension("net", json!([]), json!({"followKubernetes": follow})).await;
    let app = json!({"versions": [version_of_app("1.0.0")]});
    test.extension("app", json!([]), app).await;
    for name in ["base", "net", "app"] {
        test.instance(name, name, json!({})).await;
    }
    test
}

fn version_of_app(version: &str) -> Value {
    json!({"version": version, "source": {"catalog": {"name": "charts"}, "chart": "app"}})
}

/// A person who may only read.
struct Person<'a> {
    test: &'a Extensions,
    kubeconfig: std::path::PathBuf,
}

impl<'a> Person<'a> {
    async fn new(test: &'a Extensions) -> Self {
        let (world, name) = (&test.world, "upgrade-checker");
        let read = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let account = json!({"name": name, "namespace": world.namespace});
        world.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await;
        world
            .apply(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                "rules": [
                    read(&["chandler.dev"], &["*"], &["list"]),
                    read(&["cluster.x-k8s.io"], &["clusters"], &["list"]),
                    read(&["controlplane.cluster.x-k8s.io"], &["*"], &["get"]),
                    read(&[""], &["secrets"], &["get"]),
                ],
            }))
            .await;
        world
            .apply(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": world.namespace}],
            }))
            .await;
        let config = service_account::kubeconfig(world.sandbox.management(), &world.namespace, name).await;
        let kubeconfig = world.dir.join("person-kubeconfig");
        std::fs::write(&kubeconfig, config.unwrap()).unwrap();
        Self { test, kubeconfig }
    }

    /// Exit code, what is printed, and complaints.
    async fn runs(&self, line: &str) -> (i32, String, String) {
        let world = &self.test.world;
        let line = line.replace("--namespace fleet", &format!("--namespace {}", world.namespace));
        let mut command = Command::new(programs::chandler());
        command.args(line.split_whitespace().skip(1));
        command.env("KUBECONFIG", &self.kubeconfig);
        command.env("XDG_CACHE_HOME", world.dir.join("cache"));
        command.env("CHANDLER_ALLOW_SOURCE_ADDRESS", "127.0.0.1");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }
}

#[tokio::test]
async fn a_check_tells_what_the_manager_tells() {
    let test = cluster_with_extensions().await;
    let manager = test.world.manager();
    for (name, version) in [("base", "1.0.0"), ("net", "1.34.0"), ("app", "1.0.0")] {
        test.ready(name, "alpha", version).await;
    }
    let condition = test.cluster_condition("alpha", "AddonsUpgradable", "False").await;
    manager.stop().await;
    let person = Person::new(&test).await;
    tells_what_the_condition_tells(&person, &condition).await;
    exit_codes(&person).await;
    commands_of_the_guide(&person).await;
    a_version_that_fits_lets_it_go(&person).await;
}

async fn tells_what_the_condition_tells(person: &Person<'_>, condition: &str) {
    let (code, table, complaints) = person.runs("chandler upgrade-check alpha --namespace fleet").await;
    assert_eq!(code, 1, "{table}{complaints}");
    assert!(table.starts_with("alpha: Kubernetes 1.34.4 → 1.35: blocked\n"), "{table}");
    let line = |name: &str| {
        let found = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(line("app").starts_with("app 1.0.0 blocks - - app 1.0.0 needs Kubernetes <1.35.0-0"), "{table}");
    assert_eq!(line("base"), "base 1.0.0 stays - - -");
    assert!(line("net").starts_with("net 1.34.0 moves 1.35.0 after the control plane 1.34.0"), "{table}");

    let (code, json, _) = person.runs("chandler upgrade-check alpha --namespace fleet -o json").await;
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&json).unwrap();
    let cluster = &report["clusters"][0];
    assert_eq!((&cluster["outcome"], &report["summary"]["blocked"]), (&json!("Blocked"), &json!(1)));
    let told = cluster["extensions"].as_array().unwrap().iter();
    let told: Vec<_> = told.map(|extension| extension["message"].as_str().unwrap()).collect();
    assert_eq!(format!("Kubernetes 1.35: {}", told.join("; ")), condition);
}

async fn exit_codes(person: &Person<'_>) {
    let rows = [
        ("alpha --to 1.34", 0, "up to date"),
        ("alpha --to v1.34.4", 0, "up to date"),
        ("alpha --to v1.35.2", 1, "1.34.4 → 1.35.2: blocked"),
        ("--all --to 1.35", 1, "blocked"),
        ("--selector fleet=test -o yaml", 1, "outcome: Blocked"),
        ("--selector fleet=other", 2, "no matching Cluster found"),
        ("bravo", 2, "Cluster bravo not found"),
        ("alpha --to soon", 2, "1.35 or v1.35.2"),
        ("alpha --kubeconfig /nowhere", 2, "/nowhere"),
        ("", 2, "CLUSTER"),
    ];
    for (arguments, expected, words) in rows {
        let (code, printed, complaints) =
            person.runs(&format!("chandler upgrade-check {arguments} --namespace fleet")).await;
        assert_eq!(code, expected, "{arguments}: {printed}{complaints}");
        assert!(format!("{printed}{complaints}").contains(words), "{arguments}: {printed}{complaints}");
    }
    let (code, _, complaints) = person.runs("chandler upgrade-check x --namespace kube-system").await;
    assert_eq!(code, 2, "{complaints}");
}

async fn commands_of_the_guide(person: &Person<'_>) {
    let labels = Patch::Merge(json!({"metadata": {"labels": {"stage": "production"}}}));
    person.test.clusters().patch("alpha", &PatchParams::default(), &labels).await.unwrap();
    let commands: Vec<_> = GUIDE.lines().filter(|line| line.starts_with("chandler ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for line in commands {
        let (code, printed, complaints) = person.runs(line).await;
        assert_eq!(code, 1, "`{line}`: {printed}{complaints}");
        assert!(complaints.is_empty(), "`{line}`: {complaints}");
    }
}

async fn a_version_that_fits_lets_it_go(person: &Person<'_>) {
    let test = person.test;
    let metadata = "apiVersion: v2\nname: app\nversion: 1.1.0\n";
    let files = [("Chart.yaml", metadata), ("templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\n")];
    let folder = chart::write(&test.world.dir.join("app-1.1.0"), &files).unwrap();
    test.world.repository.publish(&folder).unwrap();
    let versions = json!({"versions": [version_of_app("1.0.0"), version_of_app("1.1.0")]});
    test.extension("app", json!([]), versions).await;
    let line = "chandler upgrade-check alpha --to 1.35 --namespace fleet";
    let (code, printed, complaints) = person.runs(line).await;
    assert_eq!(code, 0, "{printed}{complaints}");
    assert!(printed.starts_with("alpha: Kubernetes 1.34.4 → 1.35: upgradable\n"), "{printed}");
    assert!(printed.contains("before the control plane"), "{printed}");

    let catalogs: Api<ExtensionCatalog> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    catalogs.delete("charts", &DeleteParams::default()).await.unwrap();
    let (code, printed, _) = person.runs(line).await;
    assert_eq!(code, 2, "{printed}");
    assert!(printed.contains("unknown") && printed.contains("charts does not exist"), "{printed}");
}
