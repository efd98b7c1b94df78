//! Sources: fetching, pushes, failures, credentials, suspension, and what a restart and a deletion keep.

use std::time::Duration;

use chandler_api::extensions::{Source, SourceStatus};
use chandler_e2e::{wait::eventually, world::World};
use chandler_sandbox::{
    git_server::{GitServer, WorkTree},
    repository::Authentication,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

pub fn sources(world: &World) -> Api<Source> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

async fn apply_source(world: &World, name: &str, url: &str, fields: Value) {
    let mut spec = json!({
        "git": {"url": url}, "interval": "1s", "certificateAuthority": {"name": "ca", "key": "ca.crt"},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
        }))
        .await;
}

pub async fn patch(world: &World, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    sources(world).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until the status of a Source is up to date and `check` accepts it.
pub async fn wait_status(
    world: &World,
    name: &str,
    what: &str,
    check: impl Fn(&SourceStatus) -> bool,
) -> SourceStatus {
    eventually(&format!("Source {name}: {what}"), || async {
        let source = sources(world).get(name).await.unwrap();
        let status =
            source.status.filter(|status| status.observed_generation == source.metadata.generation)?;
        check(&status).then_some(status)
    })
    .await
}

pub async fn wait_revision(world: &World, name: &str, revision: &str) -> SourceStatus {
    wait_status(world, name, revision, |status| {
        status.revision.as_deref() == Some(revision) && reason(status) == Some("Ready")
    })
    .await
}

/// Waits until the condition `Ready` has this reason. Returns the status and the message.
pub async fn wait_reason(world: &World, name: &str, expected: &str) -> (SourceStatus, String) {
    let status = wait_status(world, name, expected, |status| reason(status) == Some(expected)).await;
    let message = ready(&status).unwrap().message.clone();
    (status, message)
}

pub fn ready(status: &SourceStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == "Ready")
}

fn reason(status: &SourceStatus) -> Option<&str> {
    ready(status).map(|ready| ready.reason.as_str())
}

async fn start(world: &World, guard: Authentication) -> (GitServer, WorkTree) {
    let folder = world.dir.join("served");
    let authority = world.sandbox.authority();
    let server = GitServer::start_with_authentication(authority, &folder, guard).await.unwrap();
    let tree = server.create("fleet").await.unwrap();
    (server, tree)
}

#[tokio::test]
async fn a_push_is_a_new_revision_and_a_failure_keeps_the_last_one() {
    let world = World::new("git-push").await;
    let manager = world.start_manager();
    let (server, tree) = start(&world, Authentication::Anonymous).await;
    let first = tree.commit("first commit", &[("a.yaml", "a: 1\n")]).await.unwrap();
    apply_source(&world, "fleet", &server.url("fleet"), json!({})).await;
    let status = wait_revision(&world, "fleet", &first).await;
    let commit = status.commit.unwrap();
    assert_eq!((&*commit.author, &*commit.subject), ("Anna <anna@example.com>", "first commit"));
    assert!(commit.id == first && commit.time.is_some() && status.verified_by.is_none());

    let second = tree.commit("second commit", &[("a.yaml", "a: 2\n")]).await.unwrap();
    let status = wait_revision(&world, "fleet", &second).await;
    let history: Vec<_> = status.history.iter().map(|one| one.revision.as_str()).collect();
    assert_eq!(history, [&*second, &*first]);

    // A missing branch, and a revision that cannot be used, keep the last good one.
    tree.commit("large file", &[("b", "version https://git-lfs.github.com/spec/v1\n")]).await.unwrap();
    let (status, message) = wait_reason(&world, "fleet", "InvalidPackage").await;
    assert_eq!(status.revision.as_deref(), Some(&*second));
    assert!(message.contains("b is stored in Git LFS") && message.contains("is still used"), "{message}");
    tree.git(&["reset", "--quiet", "--hard", &second]).await.unwrap();
    tree.push().await.unwrap();
    wait_revision(&world, "fleet", &second).await;
    patch(&world, "fleet", json!({"git": {"ref": {"branch": "missing"}}})).await;
    let (_, message) = wait_reason(&world, "fleet", "PackageNotFound").await;
    assert!(message.contains("has no branch missing; it has main"), "{message}");
    patch(&world, "fleet", json!({"git": {"ref": null}})).await;
    wait_revision(&world, "fleet", &second).await;

    // A new process needs no fetch.
    manager.stop().await;
    let fetches = server.requests()["fetch"];
    let lists = server.requests()["ls-refs"];
    let _manager = world.start_manager();
    eventually("the repository is polled twice again", || async {
        (server.requests()["ls-refs"] > lists + 1).then_some(())
    })
    .await;
    assert_eq!(server.requests()["fetch"], fetches);

    drop(server);
    let (status, message) = wait_reason(&world, "fleet", "SourceUnavailable").await;
    assert_eq!(status.revision.as_deref(), Some(&*second));
    assert!(message.contains("nothing is changed or removed"), "{message}");
}

#[tokio::test]
async fn credentials_of_the_namespace_are_used() {
    let world = World::new("git-credentials").await;
    let _manager = world.start_manager();
    let guard = Authentication::Basic { user: "git".to_owned(), password: "canary-of-git".to_owned() };
    let (server, tree) = start(&world, guard).await;
    let first = tree.commit("first", &[("a.yaml", "a: 1\n")]).await.unwrap();
    let login = json!({"credentials": {"name": "login"}});
    apply_source(&world, "fleet", &server.url("fleet"), login).await;
    let (_, message) = wait_reason(&world, "fleet", "GetCredentialsFailed").await;
    assert!(message.contains("login does not exist"), "{message}");
    let secret = |password: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "login", "namespace": world.namespace},
            "stringData": {"username": "git", "password": password},
        })
    };
    world.apply(&secret("canary-of-somebody")).await;
    let (_, message) = wait_reason(&world, "fleet", "SourceUnavailable").await;
    assert!(message.contains("HTTP 401") && !message.contains("canary"), "{message}");
    world.apply(&secret("canary-of-git")).await;
    wait_revision(&world, "fleet", &first).await;
}

#[tokio::test]
async fn a_source_is_pinned_suspended_resumed_and_deleted() {
    let world = World::new("git-suspend").await;
    let _manager = world.start_manager();
    let (server, tree) = start(&world, Authentication::Anonymous).await;
    let url = server.url("fleet");
    let first = tree.commit("first", &[("a.yaml", "a: 1\n")]).await.unwrap();
    apply_source(&world, "fleet", &url, json!({})).await;
    apply_source(&world, "pinned", &url, json!({"git": {"url": url, "ref": {"commit": first}}})).await;
    wait_revision(&world, "fleet", &first).await;
    wait_revision(&world, "pinned", &first).await;

    patch(&world, "fleet", json!({"suspend": true})).await;
    let (status, message) = wait_reason(&world, "fleet", "Suspended").await;
    assert_eq!(status.revision.as_deref(), Some(&*first));
    assert!(message.contains("spec.suspend is set"), "{message}");
    let second = tree.commit("second", &[("a.yaml", "a: 2\n")]).await.unwrap();
    apply_source(&world, "other", &url, json!({})).await;
    wait_revision(&world, "other", &second).await;
    let (status, _) = wait_reason(&world, "fleet", "Suspended").await;
    assert_eq!(status.revision.as_deref(), Some(&*first), "a suspended Source does not move");
    wait_revision(&world, "pinned", &first).await;
    patch(&world, "fleet", json!({"suspend": false})).await;
    wait_revision(&world, "fleet", &second).await;

    // It has no finalizer: nothing has to be cleaned up.
    sources(&world).delete("other", &DeleteParams::default()).await.unwrap();
    assert!(sources(&world).get_opt("other").await.unwrap().is_none());
    wait_revision(&world, "fleet", &second).await;
}

#[tokio::test]
async fn sources_of_one_repository_share_a_poll() {
    let world = World::new("git-sharing").await;
    let _manager = world.start_manager();
    let (server, tree) = start(&world, Authentication::Anonymous).await;
    let first = tree.commit("first", &[("a.yaml", "a: 1\n")]).await.unwrap();
    for number in 0..20 {
        let fields = json!({"interval": "5s"});
        apply_source(&world, &format!("fleet-{number}"), &server.url("fleet"), fields).await;
    }
    for number in 0..20 {
        wait_revision(&world, &format!("fleet-{number}"), &first).await;
    }
    let (lists, fetches) = (server.requests()["ls-refs"], server.requests()["fetch"]);
    tokio::time::sleep(Duration::from_secs(12)).await;
    let requests = server.requests();
    // Two or three intervals have passed.
    assert!((1..=6).contains(&(requests["ls-refs"] - lists)), "{requests:?}, before: {lists}");
    assert_eq!(requests["fetch"], fetches, "nothing is fetched without a push");
}

#[tokio::test]
async fn only_signed_revisions_are_used() {
    let world = World::new("git-signatures").await;
    let _manager = world.start_manager();
    let (server, tree) = start(&world, Authentication::Anonymous).await;
    let key = world.dir.join("signer").to_string_lossy().into_owned();
    let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", "anna", "-f", &key];
    assert!(std::process::Command::new("ssh-keygen").args(arguments).status().unwrap().success());
    for (name, value) in [("gpg.format", "ssh"), ("user.signingKey", &*key), ("commit.gpgSign", "true")] {
        tree.git(&["config", name, value]).await.unwrap();
    }
    let signed = tree.commit("signed", &[("a.yaml", "a: 1\n")]).await.unwrap();
    let url = server.url("fleet");
    let verify = json!({"keys": {"name": "signers"}});
    apply_source(&world, "fleet", &url, json!({"git": {"url": url, "verify": verify}})).await;
    let (status, message) = wait_reason(&world, "fleet", "VerificationFailed").await;
    assert!(status.revision.is_none() && message.contains("signers does not exist"), "{message}");
    let public = std::fs::read_to_string(format!("{key}.pub")).unwrap();
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "signers", "namespace": world.namespace}, "stringData": {"anna.pub": public},
        }))
        .await;
    let status = wait_revision(&world, "fleet", &signed).await;
    let key = status.verified_by.unwrap();
    assert!(key.starts_with("anna (SHA256:"), "{key}");

    tree.git(&["config", "commit.gpgSign", "false"]).await.unwrap();
    tree.commit("unsigned", &[("a.yaml", "a: 2\n")]).await.unwrap();
    let (status, message) = wait_reason(&world, "fleet", "VerificationFailed").await;
    assert_eq!(status.revision.as_deref(), Some(&*signed));
    assert!(message.contains("its commit has no signature"), "{message}");
}
