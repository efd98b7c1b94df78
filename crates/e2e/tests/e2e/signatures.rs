//! Charts that have to be signed.

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
    cosign::{Cosign, Form},
    registry::Registry,
};
use chandler_source::{Signers, SignersSpec, WantedIdentity};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

struct Signed {
    world: World,
    registry: Registry,
    ours: Cosign,
    theirs: Cosign,
}

impl Signed {
    async fn new(name: &str) -> Self {
        let world = World::new(name).await;
        let (assets, authority) = (world.sandbox.assets(), world.sandbox.authority());
        let registry = Registry::start_guarded(assets, authority, &world.dir.join("registry")).await.unwrap();
        let ours = Cosign::new(assets, &world.dir.join("ours")).await.unwrap();
        let theirs = Cosign::new(assets, &world.dir.join("theirs")).await.unwrap();
        let (username, password) = chandler_sandbox::registry::LOGIN;
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

    /// A policy that demands our signature of all that is in the registry.
    async fn demand(&self, key: &str) {
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

    async fn refused(&self, placement: &str, why: &str) -> ReleaseStatus {
        self.world
            .status(placement, "alpha", &format!("refused: {why}"), |status| {
                condition(status, "Ready")
                    .is_some_and(|ready| ready.reason == "VerificationFailed" && ready.message.contains(why))
            })
            .await
    }
}

/// How often the manager has handed a package to the driver.
async fn applies(manager: &Manager) -> String {
    manager.metrics().await["chandler_tool_calls_total{verb=\"apply\"}"].to_string()
}

#[tokio::test]
async fn only_signed_charts_are_rolled_out() {
    let signed = Signed::new("signed-charts").await;
    let world = &signed.world;
    world.cluster("alpha").await;
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        signed.push(version).await;
    }
    signed.ours.sign(&signed.registry, "hello", "1.0.0", Form::Bundle).await.unwrap();
    signed.theirs.sign(&signed.registry, "hello", "1.1.0", Form::Bundle).await.unwrap();
    signed.demand(signed.ours.public_key()).await;
    let policy = format!("{}/signatures:policy.yaml", world.namespace);
    let manager = world.manager_with(&["--verify-policy", &policy, "--parameters-seconds", "1"]);

    world.place("hello", "hello", signed.registry_spec("1.0.0")).await;
    world.ready("hello", "alpha", 1).await;

    world.change("hello", json!({"version": "1.1.0"})).await;
    let status = signed.refused("hello", "none of the given keys made its signature").await;
    assert_eq!(status.revision, Some(1), "what runs stays");

    world.change("hello", json!({"version": "1.2.0"})).await;
    let status = signed.refused("hello", "it is not signed; sign it with `cosign sign`").await;
    assert_eq!(status.revision, Some(1), "what runs stays");
    assert_eq!(manager.started(OperationKind::UPGRADE), 0, "nothing was handed to the driver");

    signed.ours.sign(&signed.registry, "hello", "1.2.0", Form::Tag).await.unwrap();
    world.ready("hello", "alpha", 2).await;
    assert_eq!(manager.succeeded(OperationKind::UPGRADE), 1);
    let handed_over = applies(&manager).await;
    assert_eq!(handed_over, "2", "the install and the upgrade");

    // Another key: what runs stays, and is not rolled out again with other values.
    signed.demand(signed.theirs.public_key()).await;
    eventually("the manager has read the new policy", || async {
        let read = manager.logs().lines().filter(|line| line.contains("signature policy read")).count();
        (read == 2).then_some(())
    })
    .await;
    world.change("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    let status = signed.refused("hello", "none of the given keys").await;
    assert_eq!(status.revision, Some(2));
    assert_eq!(applies(&manager).await, handed_over, "nothing was handed to the driver");
    signed.theirs.sign(&signed.registry, "hello", "1.2.0", Form::Bundle).await.unwrap();
    world.ready("hello", "alpha", 3).await;

    // What the policy does not speak of is as it was.
    world.place("free", "hello", json!({})).await;
    world.ready("free", "alpha", 1).await;
}

#[tokio::test]
async fn without_its_policy_a_manager_installs_nothing() {
    let signed = Signed::new("lost-policy").await;
    let world = &signed.world;
    world.cluster("alpha").await;
    let policy = format!("{}/signatures:policy.yaml", world.namespace);
    let _manager = world.manager_with(&["--verify-policy", &policy, "--parameters-seconds", "1"]);
    world.place("hello", "hello", json!({})).await;
    signed.refused("hello", "the ConfigMap does not exist").await;
    signed.demand(signed.ours.public_key()).await;
    world.ready("hello", "alpha", 1).await;
}

#[tokio::test]
async fn a_catalog_demands_signatures_of_its_own() {
    let signed = Signed::new("signed-catalog").await;
    let world = &signed.world;
    world.cluster("alpha").await;
    signed.push("1.0.0").await;
    let _manager = world.manager();
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": world.namespace},
            "spec": {
                "url": signed.registry.url(), "filter": {"include": ["hello"]},
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
            "stringData": {"ours": signed.ours.public_key(), "old": signed.theirs.public_key()},
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
    eventually("it is refused", || async {
        let ready = ready().await?;
        (ready.reason == "VerificationFailed" && ready.message.contains("it is not signed")).then_some(())
    })
    .await;
    signed.ours.sign(&signed.registry, "hello", "1.0.0", Form::Bundle).await.unwrap();
    eventually("it is rolled out", || async { (ready().await?.status == "True").then_some(()) }).await;
}

const GUIDE: &str = include_str!("../../../../docs/guides/signed-charts.md");

/// The policy of the guide, for a registry and a key that there are.
fn policy_of_guide(host: &str, key: &str) -> String {
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
    let signed = Signed::new("signed-guide").await;
    let (world, home) = (&signed.world, signed.world.dir.join("ours"));
    world.cluster("alpha").await;
    signed.push("1.0.0").await;
    let host = signed.registry.host();
    let authority = signed.registry.ca_file().to_string_lossy().into_owned();
    let (user, password) = chandler_sandbox::registry::LOGIN;
    let login =
        ["--registry-cacert", &authority, "--registry-username", user, "--registry-password", password];
    for name in ["cosign.key", "cosign.pub"] {
        std::fs::remove_file(home.join(name)).unwrap();
    }
    let lines: Vec<_> = GUIDE.lines().filter_map(|line| line.strip_prefix("cosign ")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        let line = line.replace("registry.example", host);
        let further = if line.starts_with("sign ") { &login[..] } else { &[] };
        let arguments: Vec<_> = line.split_whitespace().chain(further.iter().copied()).collect();
        signed.ours.run(&arguments).await.unwrap();
        if line.starts_with("generate-key-pair") {
            std::fs::copy(home.join("cosign.pub"), home.join("rekor.pub")).unwrap();
            std::fs::copy(&authority, home.join("fulcio.pem")).unwrap();
        }
    }
    let root = std::fs::read_to_string(home.join("trusted_root.json")).unwrap();
    let anyone = WantedIdentity {
        issuer_reg_exp: Some(".*".to_owned()),
        subject_reg_exp: Some(".*".to_owned()),
        ..WantedIdentity::default()
    };
    let keyless =
        SignersSpec { identities: vec![anyone], trusted_root: Some(root), ..SignersSpec::default() };
    Signers::new(&keyless).expect("the trusted root that the guide makes can be used");

    let key = std::fs::read_to_string(home.join("cosign.pub")).unwrap();
    std::fs::write(home.join("policy.yaml"), policy_of_guide(host, &key)).unwrap();
    let line = GUIDE.lines().find(|line| line.starts_with("kubectl ")).unwrap();
    let line = line.replace("chandler-system", &world.namespace);
    let mut kubectl = std::process::Command::new(world.sandbox.assets().path(Binary::Kubectl));
    kubectl.args(line.split_whitespace().skip(1)).current_dir(&home);
    kubectl.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
    assert!(kubectl.status().unwrap().success());
    let policy = format!("{}/signatures:policy.yaml", world.namespace);
    let _manager = world.manager_with(&["--verify-policy", &policy]);
    world.place("hello", "hello", signed.registry_spec("1.0.0")).await;
    world.ready("hello", "alpha", 1).await;
}
