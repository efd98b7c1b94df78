//! Namespaces share the store of packages, but not their private packages, their logins and their space.

use std::path::PathBuf;

use chandler_api::status::ReleaseStatus;
use chandler_core::digest::Digest;
use chandler_e2e::{
    extension_world::ExtensionWorld,
    world::{World, condition, config_value, hello},
};
use chandler_sandbox::{
    chart,
    repository::{Authentication, ChartRepository},
};
use serde_json::json;

const PASSWORD: &str = "canary-of-the-platform";
/// The platform's add-on, on the cluster of the tenant.
const ADD_ON: &str = "platform/private/hello";

/// The tenant is the namespace of the test. The platform has a private repository, whose charts the tenant may install, but
/// whose login it may use for that repository only.
#[tokio::test]
async fn a_tenant_gets_no_private_package_no_login_and_not_the_whole_store() {
    let test = ExtensionWorld::new("shared-sources").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let platform = world.sandbox.namespace("shared-sources-platform").await.unwrap();
    let repository = private_repository(world).await;
    let private = repository.publish_version(&hello(), "7.0.0").unwrap();
    offer(world, &platform, &repository).await;
    let arguments = ["--platform-namespace", &platform, "--store-quota-per-namespace", "1"];
    let manager = world.start_manager_with(&arguments);
    install(&test, "7.0.0").await;
    test.wait_ready(ADD_ON, "alpha", "7.0.0").await;

    let _evil = steal_package(world, Digest::of(&private.bytes).hex()).await;
    assert_eq!(config_value(&alpha, "thief", "greeting").await, None, "the private package is not installed");
    steal_login(world, &platform, &repository).await;

    fill_store(world).await;
    repository.publish_version(&hello(), "7.1.0").unwrap();
    install(&test, "7.1.0").await;
    test.wait_ready(ADD_ON, "alpha", "7.1.0").await;
    let refusals = manager.metrics().await["chandler_quota_refusals_total{resource=\"store\"}"];
    assert!(refusals >= 1.0, "{refusals}");

    // A restart forgets nothing, and proves nothing.
    manager.stop().await;
    let _manager = world.start_manager_with(&arguments);
    world.patch_placement("thief", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    wait_failed(world, "thief", "returned HTTP 404").await;
    world.wait_ready("allowed", "alpha", 1).await;
}

async fn private_repository(world: &World) -> ChartRepository {
    let login = Authentication::Basic { user: "user".to_owned(), password: PASSWORD.to_owned() };
    let folder = world.dir.join("private");
    ChartRepository::start_with_authentication(world.sandbox.authority(), &folder, login).await.unwrap()
}

/// Returns host and port.
fn host(repository: &ChartRepository) -> &str {
    repository.url().trim_start_matches("https://")
}

/// Creates a catalog of the private repository in the namespace of the platform, and lets the tenant use its login.
async fn offer(world: &World, platform: &str, repository: &ChartRepository) {
    let secret = |name: &str, annotations, data| {
        let metadata = json!({"name": name, "namespace": platform, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    };
    world.apply(&secret("ca", json!({}), json!({"ca.crt": repository.ca_pem()}))).await;
    let hosts = json!({"chandler.dev/hosts": host(repository)});
    world.apply(&secret("login", hosts, json!({"username": "user", "password": PASSWORD}))).await;
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "private", "namespace": platform},
            "spec": {
                "url": repository.url(), "interval": "1s", "certificateAuthority": {"name": "ca", "key": "ca.crt"},
                "credentials": {"name": "login", "key": "config.json"},
            },
        }))
        .await;
    let from = json!([{
        "group": "addons.cluster.x-k8s.io", "kind": "HelmChartProxy", "namespace": world.namespace,
    }]);
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ReferenceGrant",
            "metadata": {"name": "login", "namespace": platform},
            "spec": {"from": from, "to": [{"kind": "Secret", "name": "login"}]},
        }))
        .await;
}

/// Installs a version of the platform's chart, or upgrades to it.
async fn install(test: &ExtensionWorld, version: &str) {
    let extension = json!({"name": "hello", "catalog": "private", "scope": "Platform"});
    test.apply_instance("hello", "", json!({"extension": extension, "version": version})).await;
}

/// Serves an index that names the digest of the private package, without the package.
async fn steal_package(world: &World, digest: &str) -> ChartRepository {
    let folder = world.dir.join("evil");
    let evil = ChartRepository::start(world.sandbox.authority(), &folder).await.unwrap();
    let index = format!(
        "apiVersion: v1\nentries:\n  hello:\n  - {{name: hello, version: 7.0.0, urls: [hello-7.0.0.tgz], digest: {digest}}}\n"
    );
    std::fs::write(folder.join("index.yaml"), index).unwrap();
    world.apply_placement("thief", "hello", json!({"repoURL": evil.url(), "version": "7.0.0"})).await;
    wait_failed(world, "thief", "returned HTTP 404").await;
    evil
}

/// Names a server of the tenant together with the login of the platform.
async fn steal_login(world: &World, platform: &str, private: &ChartRepository) {
    let collector =
        ChartRepository::start(world.sandbox.authority(), &world.dir.join("collector")).await.unwrap();
    collector.publish(&hello()).unwrap();
    let credentials = json!({"secret": {"name": "login", "namespace": platform}, "key": ""});
    let with = |repository: &ChartRepository, version: &str| json!({"repoURL": repository.url(), "version": version, "credentials": credentials});
    world.apply_placement("phishing", "hello", with(&collector, "1.0.0")).await;
    world.apply_placement("allowed", "hello", with(private, "7.0.0")).await;
    world.wait_ready("allowed", "alpha", 1).await;
    let refused = wait_failed(world, "phishing", "chandler.dev/hosts").await;
    let ready = condition(&refused, "Ready").unwrap();
    assert_eq!(ready.reason, "GetCredentialsFailed");
    for named in [format!("Secret {platform}/login"), host(&collector).to_owned()] {
        assert!(ready.message.contains(&named), "{named}: {}", ready.message);
    }
    assert!(
        collector.requests().is_empty(),
        "not even a request without the login: {:?}",
        collector.requests()
    );
}

/// Asks for a package that is larger than the quota of the namespace.
async fn fill_store(world: &World) {
    world.repository.publish(&large_chart(world)).unwrap();
    world.apply_placement("filler", "large", json!({})).await;
    let refused = wait_failed(world, "filler", "--store-quota-per-namespace").await;
    let ready = condition(&refused, "Ready").unwrap();
    assert_eq!(ready.reason, "QuotaExceeded");
    let expected = format!("namespace {} has reached its quota", world.namespace);
    assert!(ready.message.contains(&expected), "{}", ready.message);
}

/// Writes a chart with content that cannot be compressed below 1 MiB.
fn large_chart(world: &World) -> PathBuf {
    let noise: String =
        (0..48_000).map(|number: u32| Digest::of(number.to_string()).hex().to_owned()).collect();
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: large\nversion: 1.0.0\n"),
        ("templates/config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\n"),
        ("files/noise.txt", &*noise),
    ];
    chart::write(&world.dir.join("large"), &files).unwrap()
}

/// Waits until a placement has failed on the cluster, with this text in the message.
async fn wait_failed(world: &World, placement: &str, text: &str) -> ReleaseStatus {
    let is_failed = |status: &ReleaseStatus| {
        condition(status, "Ready")
            .is_some_and(|ready| ready.status == "False" && ready.message.contains(text))
    };
    world.wait_status(placement, "alpha", &format!("refused because of {text}"), is_failed).await
}
