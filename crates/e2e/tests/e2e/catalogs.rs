//! ExtensionCatalogs: reading, caching, their status, and `chandler catalog`.

use chandler_api::extensions::{CatalogStatus, ExtensionCatalog};
use chandler_e2e::{
    programs,
    wait::eventually,
    world::{World, hello},
};
use chandler_sandbox::{
    chart::{self, Package},
    registry::Registry,
    repository::{Authentication, ChartRepository},
};
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Arguments for a manager that polls every second.
const POLL_OFTEN: [&str; 2] = ["--poll-seconds", "1"];

async fn apply_catalog(world: &World, name: &str, url: &str, fields: Value) {
    let mut spec =
        json!({"url": url, "interval": "1s", "certificateAuthority": {"name": "ca", "key": "ca.crt"}});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
        }))
        .await;
}

pub fn catalogs(world: &World) -> Api<ExtensionCatalog> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

fn ready(status: &CatalogStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Waits until the Ready condition of a catalog is up to date and has this reason.
pub async fn wait_reason(world: &World, name: &str, reason: &str) -> CatalogStatus {
    eventually(&format!("catalog {name} has reason {reason}"), || async {
        let catalog = catalogs(world).get(name).await.unwrap();
        let status =
            catalog.status.filter(|status| status.observed_generation == catalog.metadata.generation)?;
        (ready(&status)?.reason == reason).then_some(status)
    })
    .await
}

#[tokio::test]
async fn a_catalog_is_filtered_and_stays_usable_when_its_repository_is_unavailable() {
    let world = World::new("catalogs").await;
    let manager = world.start_manager_with(&POLL_OFTEN);
    let served = world.dir.join("offered");
    let repository = ChartRepository::start(world.sandbox.authority(), &served).await.unwrap();
    for chart in [hello(), chandler_e2e::world::chart("slow"), chandler_e2e::world::chart("stubborn")] {
        repository.publish(&chart).unwrap();
    }
    let quiet = ChartRepository::start(world.sandbox.authority(), &world.dir.join("quiet")).await.unwrap();
    quiet.publish(&hello()).unwrap();
    apply_catalog(&world, "quiet", quiet.url(), json!({"interval": "1000h"})).await;
    wait_reason(&world, "quiet", "Ready").await;
    apply_catalog(&world, "all", repository.url(), json!({})).await;
    let first = wait_reason(&world, "all", "Ready").await;
    assert_eq!(first.packages, Some(3));
    assert!(first.digest.as_ref().unwrap().starts_with("sha256:") && first.read_at.is_some());

    apply_catalog(&world, "some", repository.url(), json!({"filter": {"exclude": ["s*"]}})).await;
    assert_eq!(wait_reason(&world, "some", "Ready").await.packages, Some(1));
    apply_catalog(&world, "none", repository.url(), json!({"filter": {"versions": ">=7"}})).await;
    let none = wait_reason(&world, "none", "Ready").await;
    assert!(none.packages == Some(0) && ready(&none).unwrap().message.contains("spec.filter"), "{none:?}");

    eventually("an unchanged index is not downloaded again", || async {
        repository.requests().contains_key("304").then_some(())
    })
    .await;
    repository.publish_version(&hello(), "1.1.0").unwrap();
    eventually("a new version is noticed", || async {
        let status = catalogs(&world).get("all").await.unwrap().status?;
        (status.digest != first.digest).then_some(())
    })
    .await;

    drop(repository);
    let lost = wait_reason(&world, "all", "SourceUnavailable").await;
    assert_eq!(lost.packages, Some(3));
    let message = &ready(&lost).unwrap().message;
    assert!(
        message.contains("the 3 packages read at") && message.contains("releases are not affected"),
        "{message}"
    );

    eventually("the change of state is an Event", || async {
        (event_reasons(&world, "all").await.len() == 2).then_some(())
    })
    .await;

    // A new process has only the cache on disk and the status.
    manager.stop().await;
    let manager = world.start_manager_with(&POLL_OFTEN);
    apply_catalog(&world, "late", world.repository.url(), json!({})).await;
    wait_reason(&world, "late", "Ready").await;
    // The five are reconciled at the start, and most of them every second.
    eventually("the catalogs were reconciled several times", || async {
        let reconciled = "chandler_reconcile_duration_seconds_count{kind=\"ExtensionCatalog\"}";
        (manager.metrics().await.get(reconciled).copied().unwrap_or_default() >= 20.0).then_some(())
    })
    .await;
    assert_eq!(wait_reason(&world, "all", "SourceUnavailable").await.packages, Some(3));
    assert_eq!(quiet.requests()["/index.yaml"], 1, "a new process waits for the interval too");

    let reasons = event_reasons(&world, "all").await;
    assert_eq!(reasons, ["Ready", "SourceUnavailable"], "one Event per change of state");
}

/// Returns the sorted reasons of the Events about a catalog.
async fn event_reasons(world: &World, catalog: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let is_about =
        |event: &&Event| event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some(catalog));
    let mut reasons: Vec<_> =
        events.iter().filter(is_about).filter_map(|event| event.reason.clone()).collect();
    reasons.sort();
    reasons
}

#[tokio::test]
async fn catalog_conditions_say_how_to_fix_the_problem() {
    let world = World::new("catalog-refusals").await;
    let _manager = world.start_manager_with(&POLL_OFTEN);
    let url = world.repository.url();
    let signed = json!({"verify": {"verifier": "Provenance", "keys": {"name": "keys"}}});
    apply_catalog(&world, "signed", url, signed).await;
    let status = wait_reason(&world, "signed", "VerificationUnavailable").await;
    assert!(status.packages.is_none() && ready(&status).unwrap().message.contains("remove spec.verify"));

    let guard = Authentication::Basic { user: "user".to_owned(), password: "canary".to_owned() };
    let served = world.dir.join("private");
    let private =
        ChartRepository::start_with_authentication(world.sandbox.authority(), &served, guard).await.unwrap();
    private.publish(&hello()).unwrap();
    let login = json!({"credentials": {"name": "login", "key": "config.json"}});
    apply_catalog(&world, "private", private.url(), login).await;
    let status = wait_reason(&world, "private", "GetCredentialsFailed").await;
    assert!(ready(&status).unwrap().message.contains("login does not exist"), "{status:?}");
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "login", "namespace": world.namespace},
            "stringData": {"username": "user", "password": "canary"},
        }))
        .await;
    assert_eq!(wait_reason(&world, "private", "Ready").await.packages, Some(1));

    let patch = Patch::Merge(json!({"spec": {"verify": null}}));
    catalogs(&world).patch("signed", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(wait_reason(&world, "signed", "Ready").await.packages, Some(3));
}

#[tokio::test]
async fn a_registry_is_a_catalog_of_the_charts_that_match_its_filter() {
    let world = World::new("catalog-registry").await;
    let home = world.dir.join("registry");
    let registry = Registry::start(world.sandbox.assets(), world.sandbox.authority(), &home).await.unwrap();
    registry.push(&Package::pack(&hello(), None).unwrap()).await.unwrap();
    let _manager = world.start_manager_with(&POLL_OFTEN);
    apply_catalog(&world, "registry", &registry.url(), json!({"filter": {"include": ["hello"]}})).await;
    assert_eq!(wait_reason(&world, "registry", "Ready").await.packages, Some(1));
    registry.push(&Package::pack(&chandler_e2e::world::chart("slow"), None).unwrap()).await.unwrap();
    apply_catalog(&world, "listed", &registry.url(), json!({})).await;
    assert_eq!(wait_reason(&world, "listed", "Ready").await.packages, Some(2));
    apply_catalog(&world, "some", &registry.url(), json!({"filter": {"include": ["s*"]}})).await;
    assert_eq!(wait_reason(&world, "some", "Ready").await.packages, Some(1));
    registry.stop().await;
    assert_eq!(wait_reason(&world, "registry", "SourceUnavailable").await.packages, Some(1));
}

const GUIDE: &str = include_str!("../../../../docs/guides/catalogs.md");

fn guide_commands() -> Vec<&'static str> {
    GUIDE.lines().filter(|line| line.starts_with("chandler ")).collect()
}

/// Runs a `chandler` command as a user. Returns whether it succeeded, its stdout and its stderr.
pub async fn chandler(world: &World, line: &str) -> (bool, String, String) {
    let mut command = std::process::Command::new(programs::chandler());
    command.args(line.split_whitespace().skip(1));
    command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
    command.env("XDG_CACHE_HOME", world.dir.join("cache"));
    command.env("CHANDLER_ALLOW_SOURCE_ADDRESS", "127.0.0.1");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Writes a chart with all optional metadata.
fn documented_chart(world: &World) -> std::path::PathBuf {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: documented\nversion: 2.0.0\nkubeVersion: '>=1.30.0-0'\n"),
        ("values.yaml", "size: 3\n"),
        ("values.schema.json", r#"{"properties": {"size": {"type": "integer", "maximum": 7}}}"#),
        ("README.md", "# Documented chart\n"),
        ("templates/x.yaml", "kind: ConfigMap\n"),
    ];
    chart::write(&world.dir.join("documented"), &files).unwrap()
}

#[tokio::test]
async fn catalog_show_prints_versions_kubernetes_range_parameters_and_readme() {
    let world = World::new("catalog-show").await;
    for version in ["1.0.0", "2.0.0"] {
        world.repository.publish_version(&documented_chart(&world), version).unwrap();
    }
    apply_catalog(&world, "charts", world.repository.url(), json!({})).await;
    let show = format!("chandler catalog show charts/documented --namespace {}", world.namespace);
    let (success, text, stderr) = chandler(&world, &show).await;
    assert!(success, "{stderr}");
    for part in
        ["charts/documented 2.0.0", "1.0.0", ">=1.30.0-0", "size: 3", "\"maximum\": 7", "# Documented chart"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let (_, json, _) = chandler(&world, &format!("{show} --version 1.x -o json")).await;
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&shown["version"], &shown["versions"][0]["version"]), (&json!("1.0.0"), &json!("2.0.0")));
    assert_eq!(shown["versions"][1]["kubeVersion"], ">=1.30.0-0");
    assert_eq!(shown["package"]["schema"]["properties"]["size"]["maximum"], 7);
    assert_eq!(shown["package"]["readme"], "# Documented chart\n");
}

/// `chandler catalog extensions` and `kubectl get -o wide` show what users need to know to choose an Extension.
async fn assert_extensions_are_listed(world: &World) {
    let source = json!({"catalog": {"name": "platform"}, "chart": "hello"});
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": "greeter", "namespace": world.namespace},
            "spec": {
                "displayName": "Friendly greeter", "categories": ["demo", "social"],
                "documentationURL": "https://example.com/greeter",
                "versions": [
                    {"version": "0.9.0", "appVersion": "old", "kubernetes": "*", "source": source},
                    {"version": "1.0.0", "appVersion": "2026-11", "kubernetes": "*", "source": source},
                ],
            },
        }))
        .await;
    let line = format!("chandler catalog extensions SOCIAL friendly --namespace {}", world.namespace);
    let shown = eventually("the Extension is listed with its newest version", || async {
        let (_, stdout, _) = chandler(world, &line).await;
        stdout.contains("2026-11").then_some(stdout)
    })
    .await;
    let wide = world.kubectl(&["get", "extensions", "--namespace", &world.namespace, "--output", "wide"]);
    for output in [shown, wide] {
        for text in ["Friendly greeter", "1.0.0", "2026-11", "demo", "social", "https://example.com/greeter"]
        {
            assert!(output.contains(text), "{text} is missing: {output}");
        }
    }
}

#[tokio::test]
async fn the_commands_of_the_catalog_guide_work() {
    let world = World::new("catalog-guide").await;
    let _manager = world.start_manager_with(&POLL_OFTEN);
    apply_catalog(&world, "platform", world.repository.url(), json!({})).await;
    wait_reason(&world, "platform", "Ready").await;
    let here = |line: &str| line.replace("--namespace fleet", &format!("--namespace {}", world.namespace));
    let commands = guide_commands();
    assert!(commands.len() >= 4, "{commands:?}");
    for line in &commands {
        let (success, stdout, stderr) = chandler(&world, &here(line)).await;
        assert!(success && !stdout.is_empty(), "`{line}` failed: {stdout}{stderr}");
        assert!(stderr.is_empty(), "`{line}`: {stderr}");
    }

    assert_extensions_are_listed(&world).await;
    let (_, listed, _) = chandler(&world, &here("chandler catalog list --namespace fleet")).await;
    let rows: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..5], ["NAMESPACE", "NAME", "READY", "REASON", "PACKAGES"], "{listed}");
    assert_eq!(rows[1][..5], [world.namespace.as_str(), "platform", "True", "Ready", "3"], "{listed}");
    let json = "chandler catalog search hello --namespace fleet -o json";
    let found: Value = serde_json::from_str(&chandler(&world, &here(json)).await.1).unwrap();
    assert_eq!((&found[0]["chart"], &found[0]["version"]), (&json!("hello"), &json!("1.0.0")));
    let show = "chandler catalog show platform/hello --namespace fleet -o json";
    let shown: Value = serde_json::from_str(&chandler(&world, &here(show)).await.1).unwrap();
    assert!(shown["package"]["defaults"].as_str().unwrap().contains("greeting"), "{shown}");

    let rows = [
        ("chandler catalog show platform/absent --namespace fleet", "has no chart absent"),
        ("chandler catalog show absent/hello --namespace fleet", "chandler catalog list"),
        ("chandler catalog show hello --namespace fleet", "CATALOG/CHART"),
        ("chandler catalog show platform/hello --version 9 --namespace fleet", "the newest is 1.0.0"),
        ("chandler catalog search x --namespace nowhere", "no ExtensionCatalog found"),
    ];
    for (line, hint) in rows {
        let (success, _, stderr) = chandler(&world, &here(line)).await;
        assert!(!success && stderr.contains(hint), "`{line}`: {stderr}");
    }
}
