//! `chandler get`, `describe`, `history`, `logs`, `support-bundle` and `doctor` on a fleet with one failing release.

use std::process::{Command, Output};

use chandler_e2e::{
    manager::Manager,
    programs,
    wait::eventually,
    world::{World, condition},
};
use chandler_sandbox::apply;
use serde_json::{Value, json};

use crate::secrets::unpack;

/// Creates two clusters. `hello` is Ready on both; `faulty` cannot be installed on alpha, where its ConfigMap already
/// exists.
async fn create_fleet(name: &str) -> (World, Manager) {
    let world = World::new(name).await;
    let (alpha, _) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let conflicting = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "faulty", "namespace": "default"},
    });
    apply::apply(&alpha.client().await.unwrap(), &conflicting).await.unwrap();
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.apply_placement("faulty", "hello", json!({"releaseName": "faulty"})).await;
    for (placement, cluster) in [("hello", "alpha"), ("hello", "bravo"), ("faulty", "bravo")] {
        world.wait_ready(placement, cluster, 1).await;
    }
    world
        .wait_status("faulty", "alpha", "refused", |status| {
            let ready = condition(status, "Ready");
            ready.is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed") && status.last_failure.is_some()
        })
        .await;
    (world, manager)
}

fn run(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(programs::chandler());
    command.args(arguments).args(["--namespace", &world.namespace]);
    command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
    command.output().unwrap()
}

/// Runs a command that must succeed. Returns its stdout.
fn run_ok(world: &World, arguments: &[&str]) -> String {
    let output = run(world, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn run_json(world: &World, arguments: &[&str]) -> Value {
    serde_json::from_str(&run_ok(world, arguments)).unwrap()
}

#[tokio::test]
async fn the_commands_report_a_failing_release() {
    let (world, _manager) = create_fleet("cli").await;
    get(&world);
    describe(&world);
    history(&world);
    logs(&world).await;
    support_bundle(&world).await;
    doctor(&world).await;
}

fn get(world: &World) {
    let table = run_ok(world, &["get"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[..3],
        [
            vec!["CLUSTER", "FAULTY", "HELLO"],
            vec!["alpha", "Failed", "Ready"],
            vec!["bravo", "Ready", "Ready"]
        ],
        "{table}"
    );
    assert!(table.contains("2 add-ons on 2 clusters: 3 ready, 1 failed"), "{table}");
    assert!(!table.contains('\x1b'), "no colors in a pipe: {table}");

    let wide = run_ok(world, &["get", "--output", "wide", "--not-ready"]);
    let shown: Vec<&str> = wide.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(shown.len(), 1, "{wide}");
    assert!(shown[0].contains("HelmInstallOrUpgradeFailed") && shown[0].contains("1.0.0"), "{wide}");

    let rows = run_json(world, &["get", "--output", "json", "--cluster", "bravo"]);
    assert_eq!(rows["summary"]["states"], json!({"Ready": 2}));
    assert_eq!(rows["releases"][1]["addOn"], "hello");
    assert_eq!(rows["releases"][1]["revision"], 1);
    let everywhere = Command::new(programs::chandler())
        .args(["get", "--all-namespaces", "--output", "yaml"])
        .env("KUBECONFIG", world.sandbox.management().kubeconfig_path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&everywhere.stdout).contains(&world.namespace));
}

fn describe(world: &World) {
    let text = run_ok(world, &["describe", "faulty"]);
    for expected in [
        "HelmChartProxy",
        "├─ alpha: Failed, hello 1.0.0",
        "last failure: Conflict",
        "next retry in ",
        "next step: decide who owns the object",
        "└─ bravo: Ready, hello 1.0.0, revision 1, deployed",
        "ConfigMap default/faulty",
        "1 deployed, 1.0.0",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let one = run_json(world, &["describe", "hcp/hello", "--cluster", "alpha", "--output", "json"]);
    assert_eq!(one["releases"].as_array().unwrap().len(), 1);
    let object = one["releases"][0]["object"]["name"].as_str().unwrap();
    assert!(run_ok(world, &["describe", &format!("release/{object}")]).starts_with("hello: Ready"));
    assert!(
        run_ok(world, &["describe", "--cluster", "alpha"]).starts_with("Cluster alpha\n├─ faulty: Failed")
    );
    let output = run(world, &["describe", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("chandler get --all-namespaces"));
}

fn history(world: &World) {
    let text = run_ok(world, &["history", "hello"]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().take(5).collect()).collect();
    assert_eq!(
        lines,
        [
            vec!["CLUSTER", "RELEASE", "REVISION", "STATUS", "VERSION"],
            vec!["alpha", "default/hello", "1", "deployed", "1.0.0"],
            vec!["bravo", "default/hello", "1", "deployed", "1.0.0"],
        ],
        "{text}"
    );
    let one = run_json(world, &["history", "hcp/faulty", "--cluster", "bravo", "--output", "json"]);
    assert_eq!(one[0]["revisions"][0]["status"], "deployed", "{one}");
}

async fn logs(world: &World) {
    let text = run_ok(world, &["logs", "faulty"]);
    let failed: Vec<&str> = text.lines().filter(|line| line.contains("  alpha ")).collect();
    assert!(failed.iter().any(|line| line.contains("Event Conflict: ")), "{text}");
    assert!(failed.iter().any(|line| line.contains("HelmInstallOrUpgradeFailed: Conflict")), "{text}");
    assert!(text.lines().is_sorted_by_key(|line| &line[..20]), "{text}");
    assert!(!run_ok(world, &["logs", "faulty", "--cluster", "bravo"]).contains("Conflict"));

    let path = world.dir.join("followed");
    let mut following = Command::new(programs::chandler())
        .args(["logs", "--follow", "hello", "--cluster", "alpha", "--namespace", &world.namespace])
        .env("KUBECONFIG", world.sandbox.management().kubeconfig_path())
        .stdout(std::fs::File::create(&path).unwrap())
        .spawn()
        .unwrap();
    let followed = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("the current state is printed", || async {
        followed().contains("Ready at revision 1").then_some(())
    })
    .await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    eventually("the upgrade is printed", || async {
        let text = followed();
        (text.contains("Event Upgraded") && text.contains("Ready at revision 2")).then_some(())
    })
    .await;
    following.kill().unwrap();
    following.wait().unwrap();
    assert!(!followed().contains("  bravo "), "{}", followed());
}

/// The support bundle does not contain fields in which users may have put a secret.
async fn support_bundle(world: &World) {
    const CANARY: &str = "canary-51c7";
    let placement = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "secretive", "namespace": world.namespace, "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": CANARY,
        }},
        "spec": {
            "clusterSelector": {"matchLabels": {"fleet": "test"}}, "repoURL": world.repository.url(),
            "chartName": "hello", "version": "1.0.0", "releaseName": "secretive", "namespace": "default",
            "tlsConfig": {"caSecret": {"name": "ca"}}, "valuesTemplate": format!("greeting: {CANARY}"),
        },
    });
    world.apply(&placement).await;
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "canary", "namespace": world.namespace},
            "stringData": {"canary": CANARY},
        }))
        .await;
    world.wait_ready("secretive", "alpha", 1).await;
    let path = world.dir.join("support.tar.gz");
    run_ok(world, &["support-bundle", "--output-file", path.to_str().unwrap()]);
    let files = unpack(&path);
    for (name, text) in &files {
        assert!(!text.contains(CANARY), "{name}: {text}");
    }
    for (name, expected) in [
        ("objects/helmreleaseproxies.addons.cluster.x-k8s.io.json", "secretive"),
        ("objects/clusters.cluster.x-k8s.io.json", "alpha"),
        ("events.json", "Conflict"),
        ("doctor.json", "caaph"),
        ("fleet.json", "HelmInstallOrUpgradeFailed"),
        ("leases.json", "chandler-leader"),
        ("missing.txt", "logs and metrics: no Pod found in namespace chandler-system"),
    ] {
        assert!(files[name].contains(expected), "{name}: {}", files[name]);
    }
    world.delete_placement("secretive").await;
    world.wait_deleted("secretive").await;
}

async fn doctor(world: &World) {
    let output = run(world, &["doctor", "--output", "json"]);
    assert_eq!(output.status.code(), Some(1), "the exit code reports the problem");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = |severity: &str| {
        let all = report["findings"].as_array().unwrap().iter();
        let matching = all.filter(|finding| finding["severity"] == severity);
        matching.map(|finding| finding["check"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let ok = ["kubernetes", "kinds", "rights", "admission", "admission", "cluster-api", "caaph", "leader"];
    assert_eq!(findings("Ok"), ok, "{report:#}");
    assert!(findings("Warning").contains(&"hooks".to_owned()), "hooks are off: {report:#}");
    assert_eq!((findings("Problem"), &report["problems"]), (vec!["releases".to_owned()], &json!(1)));
    let text = String::from_utf8(run(world, &["doctor"]).stdout).unwrap();
    assert!(
        text.contains("PROBLEM  releases: HelmReleaseProxy") && text.contains("→ decide who owns"),
        "{text}"
    );

    world.delete_placement("faulty").await;
    world.wait_deleted("faulty").await;
    eventually("the doctor reports no problem", || async {
        run(world, &["doctor"]).status.success().then_some(())
    })
    .await;
}
