//! `chandler upgrade-check`: whether the extensions of clusters support a newer Kubernetes version.

use std::process::Command;

use chandler_api::extensions::ExtensionCatalog;
use chandler_e2e::{extension_world::ExtensionWorld, programs, wait::until, world::hello};
use chandler_sandbox::{chart, service_account};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const GUIDE: &str = include_str!("../../../../docs/guides/kubernetes-upgrades.md");

/// Creates a cluster with three extensions. `base` supports any Kubernetes version, `net` has one version per Kubernetes
/// version, and the chart of `app` does not support a newer one.
async fn cluster_with_extensions() -> ExtensionWorld {
    let test = ExtensionWorld::new("upgrade-check").await;
    test.world.create_cluster("alpha").await;
    for version in ["1.34.0", "1.35.0"] {
        test.world.repository.publish_version(&hello(), version).unwrap();
    }
    let metadata = "apiVersion: v2\nname: app\nversion: 1.0.0\nkubeVersion: '<1.35.0-0'\n";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n";
    let files = [("Chart.yaml", metadata), ("templates/map.yaml", map)];
    test.world.repository.publish(&chart::write(&test.world.dir.join("app"), &files).unwrap()).unwrap();
    test.apply_extension("base", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let follow = json!({"catalog": {"name": "charts"}, "chart": "hello"});
    test.apply_extension("net", json!([]), json!({"followKubernetes": follow})).await;
    let app = json!({"versions": [app_version("1.0.0")]});
    test.apply_extension("app", json!([]), app).await;
    for name in ["base", "net", "app"] {
        test.apply_instance(name, name, json!({})).await;
    }
    test
}

fn app_version(version: &str) -> Value {
    json!({"version": version, "source": {"catalog": {"name": "charts"}, "chart": "app"}})
}

/// A user with read-only permissions.
struct User<'a> {
    test: &'a ExtensionWorld,
    kubeconfig: std::path::PathBuf,
}

impl<'a> User<'a> {
    async fn new(test: &'a ExtensionWorld) -> Self {
        let (world, name) = (&test.world, "upgrade-checker");
        let read = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let account = json!({"name": name, "namespace": world.namespace});
        world.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})).await;
        world
            .apply(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                "rules": [
                    read(&["chandler.dev"], &["*"], &["list"]),
                    read(&["addons.cluster.x-k8s.io"], &["*"], &["list"]),
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
        let kubeconfig = world.dir.join("user-kubeconfig");
        std::fs::write(&kubeconfig, config.unwrap()).unwrap();
        // New permissions take effect with a delay.
        let user = format!("--as=system:serviceaccount:{}:{name}", world.namespace);
        let question =
            ["auth", "can-i", "list", "clusters.cluster.x-k8s.io", &user, "--namespace", &world.namespace];
        until("the user may list Clusters", async || {
            world.kubectl_command(&question).output().unwrap().status.success()
        })
        .await;
        Self { test, kubeconfig }
    }

    /// Runs a command. Returns its exit code, stdout and stderr.
    async fn run(&self, line: &str) -> (i32, String, String) {
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
async fn upgrade_check_agrees_with_the_addons_upgradable_condition() {
    let test = cluster_with_extensions().await;
    let manager = test.world.start_manager();
    for (name, version) in [("base", "1.0.0"), ("net", "1.34.0"), ("app", "1.0.0")] {
        test.wait_ready(name, "alpha", version).await;
    }
    let condition = test.wait_cluster_condition("alpha", "AddonsUpgradable", "False").await;
    manager.stop().await;
    let user = User::new(&test).await;
    assert_same_as_condition(&user, &condition).await;
    assert_exit_codes(&user).await;
    assert_guide_commands_work(&user).await;
    assert_compatible_version_unblocks(&user).await;
}

async fn assert_same_as_condition(user: &User<'_>, condition: &str) {
    let (code, table, stderr) = user.run("chandler upgrade-check alpha --namespace fleet").await;
    assert_eq!(code, 1, "{table}{stderr}");
    assert!(table.starts_with("alpha: Kubernetes 1.34.4 → 1.35: blocked\n"), "{table}");
    let line = |name: &str| {
        let found = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(line("app").starts_with("app 1.0.0 blocks - - app 1.0.0 needs Kubernetes <1.35.0-0"), "{table}");
    assert_eq!(line("base"), "base 1.0.0 stays - - -");
    assert!(line("net").starts_with("net 1.34.0 moves 1.35.0 after the control plane 1.34.0"), "{table}");

    let (code, json, _) = user.run("chandler upgrade-check alpha --namespace fleet -o json").await;
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&json).unwrap();
    let cluster = &report["clusters"][0];
    assert_eq!((&cluster["outcome"], &report["summary"]["blocked"]), (&json!("Blocked"), &json!(1)));
    let messages = cluster["extensions"].as_array().unwrap().iter();
    let messages: Vec<_> = messages.map(|extension| extension["message"].as_str().unwrap()).collect();
    assert_eq!(format!("Kubernetes 1.35: {}", messages.join("; ")), condition);
}

async fn assert_exit_codes(user: &User<'_>) {
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
    for (arguments, expected, text) in rows {
        let (code, stdout, stderr) =
            user.run(&format!("chandler upgrade-check {arguments} --namespace fleet")).await;
        assert_eq!(code, expected, "{arguments}: {stdout}{stderr}");
        assert!(format!("{stdout}{stderr}").contains(text), "{arguments}: {stdout}{stderr}");
    }
    let (code, _, stderr) = user.run("chandler upgrade-check x --namespace kube-system").await;
    assert_eq!(code, 2, "{stderr}");
}

async fn assert_guide_commands_work(user: &User<'_>) {
    let labels = Patch::Merge(json!({"metadata": {"labels": {"stage": "production"}}}));
    user.test.clusters().patch("alpha", &PatchParams::default(), &labels).await.unwrap();
    let commands: Vec<_> = GUIDE.lines().filter(|line| line.starts_with("chandler ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for line in commands {
        let (code, stdout, stderr) = user.run(line).await;
        assert_eq!(code, 1, "`{line}`: {stdout}{stderr}");
        assert!(stderr.is_empty(), "`{line}`: {stderr}");
    }
}

async fn assert_compatible_version_unblocks(user: &User<'_>) {
    let test = user.test;
    let metadata = "apiVersion: v2\nname: app\nversion: 1.1.0\n";
    let files = [("Chart.yaml", metadata), ("templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\n")];
    let folder = chart::write(&test.world.dir.join("app-1.1.0"), &files).unwrap();
    test.world.repository.publish(&folder).unwrap();
    let versions = json!({"versions": [app_version("1.0.0"), app_version("1.1.0")]});
    test.apply_extension("app", json!([]), versions).await;
    let line = "chandler upgrade-check alpha --to 1.35 --namespace fleet";
    let (code, stdout, stderr) = user.run(line).await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("alpha: Kubernetes 1.34.4 → 1.35: upgradable\n"), "{stdout}");
    assert!(stdout.contains("before the control plane"), "{stdout}");

    let catalogs: Api<ExtensionCatalog> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    catalogs.delete("charts", &DeleteParams::default()).await.unwrap();
    let (code, stdout, _) = user.run(line).await;
    assert_eq!(code, 2, "{stdout}");
    assert!(stdout.contains("unknown") && stdout.contains("charts does not exist"), "{stdout}");
}
