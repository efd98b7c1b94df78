//! Policies and catalogs that require signed charts.

use chandler_api::{extensions::AddonRelease, status::ReleaseStatus};
use chandler_core::release::OperationKind;
use chandler_e2e::{
    manager::Manager,
    wait::eventually,
    world::{World, condition, hello},
};
use chandler_sandbox::{
    assets::Binary,
    chart::Package,
    cosign::{Cosign, SignatureFormat},
    registry::Registry,
};
use chandler_source::{ExpectedIdentity, Signers, SignersSpec};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

/// A test with a registry and two signing keys.
struct SignatureTest {
    world: World,
    registry: Registry,
    ours: Cosign,
    theirs: Cosign,
}

impl SignatureTest {
    async fn new(name: &str) -> Self {
        let world = World::new(name).await;
        let (assets, authority) = (world.sandbox.assets(), world.sandbox.authority());
        let registry = Registry::start_with_authentication(assets, authority, &world.dir.join("registry"))
            .await
            .unwrap();
        let ours = Cosign::new(assets, &world.dir.join("ours")).await.unwrap();
        let theirs = Cosign::new(assets, &world.dir.join("theirs")).await.unwrap();
        let (username, password) = chandler_sandbox::registry::CREDENTIALS;
        let login = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "login", "namespace": world.namespace},
            "stringData": {"username": username, "password": password},
        });
        world.apply(&login).await;
        Self { world, registry, ours, theirs }
    }

    async fn push(&self, version: &str) {
        self.registry.push(&Package::pack(&hello(), Some(version)).unwrap()).await.unwrap();
    }

    /// Applies a policy that requires a signature with this key for all charts of the registry.
    async fn require_key(&self, key: &str) {
        let rules = json!({"rules": [{"sources": [self.registry.url()], "keys": [key]}]});
        self.world
            .apply(&json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "signatures", "namespace": self.world.namespace},
                "data": {"policy.yaml": rules.to_string()},
            }))
            .await;
    }

    fn registry_spec(&self, version: &str) -> Value {
        json!({
            "repoURL": self.registry.url(), "version": version,
            "credentials": {"secret": {"name": "login"}, "key": "config.json"},
        })
    }

    /// Waits until verification has failed with this message.
    async fn wait_refused(&self, placement: &str, message: &str) -> ReleaseStatus {
        self.world
            .wait_status(placement, "alpha", &format!("refused: {message}"), |status| {
                condition(status, "Ready").is_some_and(|ready| {
                    ready.reason == "VerificationFailed" && ready.message.contains(message)
                })
            })
            .await
    }
}

/// Returns how often the manager has called the driver to install or upgrade.
async fn apply_calls(manager: &Manager) -> String {
    manager.metrics().await["chandler_tool_calls_total{verb=\"apply\"}"].to_string()
}

#[tokio::test]
async fn only_signed_charts_are_installed() {
    let test = SignatureTest::new("signed-charts").await;
    let world = &test.world;
    world.create_cluster("alpha").await;
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        test.push(version).await;
    }
    test.ours.sign(&test.registry, "hello", "1.0.0", SignatureFormat::Bundle).await.unwrap();
    test.theirs.sign(&test.registry, "hello", "1.1.0", SignatureFormat::Bundle).await.unwrap();
    test.require_key(test.ours.public_key()).await;
    let policy = format!("{}/signatures:policy.yaml", world.namespace);
    let manager = world.start_manager_with(&["--verify-policy", &policy, "--parameters-seconds", "1"]);

    world.apply_placement("hello", "hello", test.registry_spec("1.0.0")).await;
    world.wait_ready("hello", "alpha", 1).await;

    world.patch_placement("hello", json!({"version": "1.1.0"})).await;
    let status = test.wait_refused("hello", "none of the given keys made its signature").await;
    assert_eq!(status.revision, Some(1), "the running release is left unchanged");

    world.patch_placement("hello", json!({"version": "1.2.0"})).await;
    let status = test.wait_refused("hello", "it is not signed; sign it with `cosign sign`").await;
    assert_eq!(status.revision, Some(1), "the running release is left unchanged");
    assert_eq!(manager.started(OperationKind::UPGRADE), 0, "the driver was not called");

    test.ours.sign(&test.registry, "hello", "1.2.0", SignatureFormat::Tag).await.unwrap();
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(manager.succeeded(OperationKind::UPGRADE), 1);
    let calls = apply_calls(&manager).await;
    assert_eq!(calls, "2", "the install and the upgrade");

    // With another key, the running release is left unchanged, and new values are not applied.
    test.require_key(test.theirs.public_key()).await;
    eventually("the manager has read the new policy", || async {
        let read = manager.logs().lines().filter(|line| line.contains("signature policy read")).count();
        (read == 2).then_some(())
    })
    .await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    let status = test.wait_refused("hello", "none of the given keys").await;
    assert_eq!(status.revision, Some(2));
    assert_eq!(apply_calls(&manager).await, calls, "the driver was not called");
    test.theirs.sign(&test.registry, "hello", "1.2.0", SignatureFormat::Bundle).await.unwrap();
    world.wait_ready("hello", "alpha", 3).await;

    // Sources that the policy does not mention need no signature.
    world.apply_placement("free", "hello", json!({})).await;
    world.wait_ready("free", "alpha", 1).await;
}

#[tokio::test]
async fn nothing_is_installed_without_the_configured_policy() {
    let test = SignatureTest::new("lost-policy").await;
    let world = &test.world;
    world.create_cluster("alpha").await;
    let policy = format!("{}/signatures:policy.yaml", world.namespace);
    let _manager = world.start_manager_with(&["--verify-policy", &policy, "--parameters-seconds", "1"]);
    world.apply_placement("hello", "hello", json!({})).await;
    test.wait_refused("hello", "the ConfigMap does not exist").await;
    test.require_key(test.ours.public_key()).await;
    world.wait_ready("hello", "alpha", 1).await;
}

#[tokio::test]
async fn a_catalog_can_require_signatures() {
    let test = SignatureTest::new("signed-catalog").await;
    let world = &test.world;
    world.create_cluster("alpha").await;
    test.push("1.0.0").await;
    let _manager = world.start_manager();
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": world.namespace},
            "spec": {
                "url": test.registry.url(), "filter": {"include": ["hello"]},
                "certificateAuthority": {"name": "ca", "key": "ca.crt"},
                "credentials": {"name": "login", "key": "config.json"},
                "verify": {"verifier": "Cosign", "keys": {"name": "keys"}},
            },
        }))
        .await;
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "keys", "namespace": world.namespace},
            "stringData": {"ours": test.ours.public_key(), "old": test.theirs.public_key()},
        }))
        .await;
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": "hello", "namespace": world.namespace},
            "spec": {
                "source": {"catalog": {"name": "charts"}, "chart": "hello", "version": "1.0.0"},
                "clusters": {"selector": {"matchLabels": {"fleet": "test"}}},
                "release": {"namespace": "default"},
            },
        }))
        .await;
    let releases: Api<AddonRelease> = Api::namespaced(world.client.clone(), &world.namespace);
    let ready = async || {
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        let status = all.into_iter().next()?.status?;
        condition(&status, "Ready").cloned()
    };
    eventually("verification fails", || async {
        let ready = ready().await?;
        (ready.reason == "VerificationFailed" && ready.message.contains("it is not signed")).then_some(())
    })
    .await;
    test.ours.sign(&test.registry, "hello", "1.0.0", SignatureFormat::Bundle).await.unwrap();
    eventually("the release is ready", || async { (ready().await?.status == "True").then_some(()) }).await;
}

const GUIDE: &str = include_str!("../../../../docs/guides/signed-charts.md");

/// Returns the policy of the guide with another registry and key.
fn guide_policy(host: &str, key: &str) -> String {
    let (_, after) = GUIDE.split_once("# policy.yaml\n").unwrap();
    let (policy, _) = after.split_once("```").unwrap();
    let (before, rest) = policy.split_once("        -----BEGIN").unwrap();
    let (_, after) = rest.split_once("KEY-----\n").unwrap();
    let (_, after) = after.split_once("KEY-----\n").unwrap();
    let key: String = key.lines().flat_map(|line| ["        ", line, "\n"]).collect();
    format!("{before}{key}{after}").replace("registry.example", host)
}

#[tokio::test]
async fn the_commands_of_the_guide_to_signed_charts_work() {
    let test = SignatureTest::new("signed-guide").await;
    let (world, home) = (&test.world, test.world.dir.join("ours"));
    world.create_cluster("alpha").await;
    test.push("1.0.0").await;
    let host = test.registry.host();
    let authority = test.registry.ca_file().to_string_lossy().into_owned();
    let (user, password) = chandler_sandbox::registry::CREDENTIALS;
    let login =
        ["--registry-cacert", &authority, "--registry-username", user, "--registry-password", password];
    for name in ["cosign.key", "cosign.pub"] {
        std::fs::remove_file(home.join(name)).unwrap();
    }
    let lines: Vec<_> = GUIDE.lines().filter_map(|line| line.strip_prefix("cosign ")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        let line = line.replace("registry.example", host);
        let arguments = if line.starts_with("sign ") { &login[..] } else { &[] };
        let arguments: Vec<_> = line.split_whitespace().chain(arguments.iter().copied()).collect();
        test.ours.run(&arguments).await.unwrap();
        if line.starts_with("generate-key-pair") {
            std::fs::copy(home.join("cosign.pub"), home.join("rekor.pub")).unwrap();
            std::fs::copy(&authority, home.join("fulcio.pem")).unwrap();
        }
    }
    let root = std::fs::read_to_string(home.join("trusted_root.json")).unwrap();
    let anyone = ExpectedIdentity {
        issuer_reg_exp: Some(".*".to_owned()),
        subject_reg_exp: Some(".*".to_owned()),
        ..ExpectedIdentity::default()
    };
    let keyless =
        SignersSpec { identities: vec![anyone], trusted_root: Some(root), ..SignersSpec::default() };
    Signers::new(&keyless).expect("the trusted root of the guide is valid");

    let key = std::fs::read_to_string(home.join("cosign.pub")).unwrap();
    std::fs::write(home.join("policy.yaml"), guide_policy(host, &key)).unwrap();
    let line = GUIDE.lines().find(|line| line.starts_with("kubectl ")).unwrap();
    let line = line.replace("chandler-system", &world.namespace);
    let mut kubectl = std::process::Command::new(world.sandbox.assets().path(Binary::Kubectl));
    kubectl.args(line.split_whitespace().skip(1)).current_dir(&home);
    kubectl.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
    assert!(kubectl.status().unwrap().success());
    let policy = format!("{}/signatures:policy.yaml", world.namespace);
    let _manager = world.start_manager_with(&["--verify-policy", &policy]);
    world.apply_placement("hello", "hello", test.registry_spec("1.0.0")).await;
    world.wait_ready("hello", "alpha", 1).await;
}
