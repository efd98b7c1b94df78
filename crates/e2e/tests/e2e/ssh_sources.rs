//! Sources of Git repositories over ssh: a chart that follows pushes, and servers whose key is not in `known_hosts`.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_e2e::{
    extension_world::ExtensionWorld,
    git_repository::{CHART, TEMPLATE, apply_folder, wait_pinned},
    world::{World, config_value},
};
use chandler_sandbox::git_server::ssh::{SshKey, SshServer, SshSettings};
use serde_json::json;

use crate::git_sources::{ready, wait_revision, wait_status};

async fn create_key(world: &World, name: &str) -> SshKey {
    SshKey::create(&world.dir, name, "ed25519", "").await.unwrap()
}

/// Applies the Secret of the Source. It has no key `known_hosts` if there is no value for it.
async fn apply_secret(world: &World, user: &SshKey, known_hosts: Option<&str>) {
    let values = [("identity", Some(&*user.private)), ("known_hosts", known_hosts)];
    // A key that is no longer in `stringData` would stay in the Secret.
    let data: BTreeMap<_, _> =
        values.into_iter().filter_map(|(key, value)| Some((key, BASE64_STANDARD.encode(value?)))).collect();
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "deploy-key", "namespace": world.namespace}, "data": data,
        }))
        .await;
}

async fn apply_source(world: &World, url: &str) {
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": "apps", "namespace": world.namespace},
            "spec": {"git": {"url": url}, "interval": "1s", "credentials": {"name": "deploy-key"}},
        }))
        .await;
}

/// Waits until the message of the Source has the first of these texts. Checks that it has all of them and this reason, and that
/// the Source still uses this revision.
async fn wait_failure(world: &World, revision: &str, reason: &str, texts: [&str; 3]) {
    let status = wait_status(world, "apps", texts[0], |status| {
        ready(status).is_some_and(|ready| ready.message.contains(texts[0]))
    })
    .await;
    let condition = ready(&status).unwrap();
    let message = &condition.message;
    assert_eq!((&*condition.status, &*condition.reason), ("False", reason), "{message}");
    let kept = format!("revision {revision} is still used; nothing is changed or removed");
    for text in texts.into_iter().chain([&*kept]) {
        assert!(message.contains(text), "{text} is not in: {message}");
    }
    assert_eq!(status.revision.as_deref(), Some(revision));
}

#[tokio::test]
async fn a_push_over_ssh_reaches_clusters_and_a_server_without_a_known_key_changes_nothing() {
    let test = ExtensionWorld::new("git-ssh").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager_with(&["--log-level", "trace"]);
    let (host, other) = (create_key(world, "host").await, create_key(world, "other").await);
    let user = create_key(world, "canary").await;
    let settings = SshSettings::new(&world.dir.join("served"), &host, &user);
    let server = SshServer::start(settings).await.unwrap();
    let tree = server.create("apps").await.unwrap();
    let chart = [
        ("greeter/Chart.yaml", CHART),
        ("greeter/values.yaml", "greeting: Hello\n"),
        ("greeter/templates/map.yaml", TEMPLATE),
    ];
    let first = tree.commit("first", &chart).await.unwrap();
    let known_hosts = server.known_hosts(&host);
    apply_secret(world, &user, Some(&known_hosts)).await;
    apply_source(world, &server.url("apps")).await;
    apply_folder(&test, "greeter", "greeter", json!({})).await;
    wait_pinned(&test, "greeter", "alpha", &first).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Hello"));
    let greeting = "greeting: Good morning\n";
    let second = tree.commit("second", &[("greeter/values.yaml", greeting)]).await.unwrap();
    wait_pinned(&test, "greeter", "alpha", &second).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good morning"));

    // The message states what to do, and the fingerprint if the server has offered a key.
    apply_secret(world, &user, None).await;
    let texts =
        ["has identity but not known_hosts", "the server cannot be verified", "`ssh-keyscan` prints them"];
    wait_failure(world, &second, "GetCredentialsFailed", texts).await;
    let greeting = "greeting: Good night\n";
    let third = tree.commit("third", &[("greeter/values.yaml", greeting)]).await.unwrap();
    let offered = host.fingerprint();
    apply_secret(world, &user, Some("")).await;
    let texts = ["has no key for [127.0.0.1]:", &*offered, "add the key to known_hosts"];
    wait_failure(world, &second, "SourceUnavailable", texts).await;
    let mismatch = format!("known_hosts of the Secret has {} for [127.0.0.1]:", other.fingerprint());
    apply_secret(world, &user, Some(&server.known_hosts(&other))).await;
    let texts = [&*mismatch, &*offered, "change known_hosts only if the operator of the server confirms"];
    wait_failure(world, &second, "SourceUnavailable", texts).await;
    wait_pinned(&test, "greeter", "alpha", &second).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good morning"));

    // The correct Secret is enough to go on.
    apply_secret(world, &user, Some(&known_hosts)).await;
    wait_revision(world, "apps", &third).await;
    wait_pinned(&test, "greeter", "alpha", &third).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good night"));
    assert_eq!(world.history(&alpha, "greeter").len(), 3, "one revision per push");

    // When the test ends, the harness also searches Events, statuses and files for what `secrets` contains.
    let (secrets, log) = (world.secrets(), manager.logs());
    assert!(secrets.find_leak(&user.private).is_some(), "the harness does not search for the private key");
    assert!(log.contains("\"level\":\"TRACE\""), "the manager does not log at level trace");
    assert_eq!(secrets.find_leak(&log), None);
}
