//! Sources of OCI artifacts: tags, ranges and digests, pushes, failures, credentials and signatures.

use chandler_e2e::{oci, world::World};
use chandler_sandbox::{
    cosign::{Cosign, SignatureFormat},
    registry::{CREDENTIALS, Registry},
};
use serde_json::{Value, json};

use crate::git_sources::{patch, sources, wait_reason, wait_revision};

const FLUX: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

async fn apply(world: &World, name: &str, oci: Value, fields: Value) {
    let mut spec = json!({
        "oci": oci, "interval": "1s", "certificateAuthority": {"name": "ca", "key": "ca.crt"},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
        }))
        .await;
}

/// Pushes an artifact with one file. Returns its digest.
async fn push(world: &World, registry: &Registry, tag: &str, text: &str) -> String {
    let folder = world.dir.join("pushed");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.yaml"), text).unwrap();
    let packed =
        std::process::Command::new("tar").arg("-cz").arg("-C").arg(&folder).arg(".").output().unwrap();
    assert!(packed.status.success());
    oci::push(registry, "fleet", tag, FLUX, &packed.stdout).await.to_string()
}

fn url(registry: &Registry) -> String {
    format!("{}/fleet", registry.url())
}

#[tokio::test]
async fn a_pushed_artifact_is_a_new_revision_and_a_failure_keeps_the_last_one() {
    let world = World::new("oci-push").await;
    let _manager = world.start_manager();
    let (assets, authority) = (world.sandbox.assets(), world.sandbox.authority());
    let registry = Registry::start(assets, authority, &world.dir.join("registry")).await.unwrap();
    let first = push(&world, &registry, "v1.0.0", "a: 1\n").await;
    let url = url(&registry);
    apply(&world, "newest", json!({"url": url, "ref": {"semver": "1.x"}}), json!({})).await;
    apply(&world, "pinned", json!({"url": url, "ref": {"digest": first}}), json!({})).await;
    apply(&world, "latest", json!({"url": url}), json!({})).await;
    let status = wait_revision(&world, "newest", &first).await;
    assert_eq!(status.commit.unwrap().id, first);
    wait_revision(&world, "pinned", &first).await;
    let (_, message) = wait_reason(&world, "latest", "PackageNotFound").await;
    assert!(message.contains("has no artifact latest; check spec.oci"), "{message}");

    let second = push(&world, &registry, "v1.1.0", "a: 2\n").await;
    let status = wait_revision(&world, "newest", &second).await;
    let history: Vec<_> = status.history.iter().map(|one| one.revision.as_str()).collect();
    assert_eq!(history, [&*second, &*first]);
    wait_revision(&world, "pinned", &first).await;

    // An artifact that is no archive keeps the last good one, and another push is enough to go on.
    oci::push(&registry, "fleet", "v1.2.0", "text/plain", b"text").await;
    let (status, message) = wait_reason(&world, "newest", "InvalidPackage").await;
    assert_eq!(status.revision.as_deref(), Some(&*second));
    assert!(
        message.contains("no layer of a type tar+gzip") && message.contains("is still used"),
        "{message}"
    );
    let third = push(&world, &registry, "v1.3.0", "a: 3\n").await;
    wait_revision(&world, "newest", &third).await;
    patch(&world, "newest", json!({"suspend": true})).await;
    wait_reason(&world, "newest", "Suspended").await;

    registry.stop().await;
    let (status, _) = wait_reason(&world, "latest", "SourceUnavailable").await;
    assert!(status.revision.is_none());
    let pinned = sources(&world).get("pinned").await.unwrap().status.unwrap();
    assert_eq!(pinned.revision, Some(first), "what a digest names needs no registry");
}

#[tokio::test]
async fn only_signed_artifacts_are_used() {
    let world = World::new("oci-signatures").await;
    let _manager = world.start_manager();
    let (assets, authority) = (world.sandbox.assets(), world.sandbox.authority());
    let home = world.dir.join("registry");
    let registry = Registry::start_with_authentication(assets, authority, &home).await.unwrap();
    let cosign = Cosign::new(assets, &world.dir.join("cosign")).await.unwrap();
    let secret = |name: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": world.namespace}, "stringData": data,
        })
    };
    world.apply(&secret("login", json!({"username": CREDENTIALS.0, "password": CREDENTIALS.1}))).await;
    world.apply(&secret("keys", json!({"cosign.pub": cosign.public_key()}))).await;
    registry
        .push(&chandler_sandbox::chart::Package::pack(&chandler_e2e::world::hello(), Some("1.0.0")).unwrap())
        .await
        .unwrap();
    let artifact = json!({
        "url": format!("{}/hello", registry.url()), "ref": {"tag": "1.0.0"},
        "verify": {"verifier": "Cosign", "keys": {"name": "keys"}},
    });
    apply(&world, "hello", artifact, json!({"credentials": {"name": "login", "key": "config.json"}})).await;
    let (status, message) = wait_reason(&world, "hello", "VerificationFailed").await;
    assert!(status.revision.is_none() && !message.contains("canary"), "{message}");
    cosign.sign(&registry, "hello", "1.0.0", SignatureFormat::Tag).await.unwrap();
    let (status, _) = wait_reason(&world, "hello", "Ready").await;
    assert_eq!(status.verified_by.as_deref(), Some("spec.oci.verify"));
    assert!(status.revision.is_some_and(|revision| revision.starts_with("sha256:")));
}
