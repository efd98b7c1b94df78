//! Sources of buckets, with a real S3 server: packages, changed objects, failures and limits.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    buckets::{self, Bucket},
    extension_world::ExtensionWorld,
    git_repository::{CHART, TEMPLATE, apply_folder, map, wait_pinned},
    wait::{eventually, until},
    world::{World, config_value},
};
use chandler_sandbox::bucket_server::{BucketRequest, BucketServer, CREDENTIALS, REGION};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::git_sources::{patch, sources, wait_reason, wait_revision};

/// Starts an S3 server with the bucket `fleet`, whose keys are in the Secret `keys`.
async fn start(world: &World) -> (BucketServer, Bucket) {
    let server = buckets::start_server(world).await;
    let bucket = Bucket::create(&server, "fleet").await;
    apply_keys(world, CREDENTIALS).await;
    (server, bucket)
}

async fn apply_keys(world: &World, (access_key, secret_key): (&str, &str)) {
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "keys", "namespace": world.namespace},
            "stringData": {"accessKey": access_key, "secretKey": secret_key},
        }))
        .await;
}

/// Returns the spec of a Source of a folder of the bucket.
fn spec(server: &BucketServer, prefix: &str) -> Value {
    json!({
        "bucket": {
            "provider": "S3", "endpoint": server.url(), "region": REGION, "name": "fleet", "prefix": prefix,
        },
        "interval": "1s", "certificateAuthority": {"name": "ca", "key": "ca.crt"},
        "credentials": {"name": "keys"},
    })
}

async fn apply_source(world: &World, name: &str, spec: &Value) {
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
        }))
        .await;
}

async fn wait_other_revision(world: &World, name: &str, old: &str) -> String {
    eventually(&format!("Source {name} has another revision than {old}"), || async {
        sources(world).get(name).await.unwrap().status?.revision.filter(|revision| revision != old)
    })
    .await
}

async fn wait_polls(server: &BucketServer) {
    let lists = server.requests(BucketRequest::List);
    until("the bucket is listed twice again", async || server.requests(BucketRequest::List) > lists + 1)
        .await;
}

#[tokio::test]
#[ignore = "builds versitygw"]
async fn a_changed_object_is_a_new_revision_that_reaches_clusters() {
    let test = ExtensionWorld::new("bucket").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let (server, bucket) = start(world).await;
    let files =
        [("Chart.yaml", CHART), ("values.yaml", "greeting: Hello\n"), ("templates/map.yaml", TEMPLATE)];
    for (path, content) in files {
        bucket.put(&format!("production/greeter/{path}"), content.as_bytes()).await;
    }
    let mut spec = spec(&server, "production");
    spec["ignore"] = json!(["*.md"]);
    apply_source(world, "apps", &spec).await;
    let (status, _) = wait_reason(world, "apps", "Ready").await;
    let (first, commit) = (status.revision.unwrap(), status.commit.unwrap());
    assert!(first.starts_with("sha256:") && commit.id == first && commit.time.is_some(), "{commit:?}");
    assert_eq!(commit.subject, "3 objects");
    apply_folder(&test, "greeter", "greeter", json!({})).await;
    wait_pinned(&test, "greeter", "alpha", &first).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Hello"));

    // Objects outside of the prefix and ignored ones change nothing, and nothing is read again.
    let reads = server.requests(BucketRequest::Read);
    bucket.put("staging/greeter/values.yaml", b"greeting: Hi\n").await;
    bucket.put("production/README.md", b"text").await;
    wait_polls(&server).await;
    wait_revision(world, "apps", &first).await;
    assert_eq!(server.requests(BucketRequest::Read), reads);

    // The new content has the same size: only the tag of the object tells that it has changed.
    bucket.put("production/greeter/values.yaml", b"greeting: Howdy\n").await;
    let second = wait_other_revision(world, "apps", &first).await;
    wait_pinned(&test, "greeter", "alpha", &second).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Howdy"));
    let status = wait_revision(world, "apps", &second).await;
    let history: Vec<_> = status.history.iter().map(|one| one.revision.as_str()).collect();
    assert_eq!(history, [&*second, &*first]);

    // A new process reads no object again.
    manager.stop().await;
    let reads = server.requests(BucketRequest::Read);
    let manager = world.start_manager();
    wait_polls(&server).await;
    assert_eq!(server.requests(BucketRequest::Read), reads);

    // All objects disappear at once. The release is left unchanged, and the same content is the same revision.
    let (folder, hidden) = (server.folder("fleet").join("production"), server.folder("fleet").join("hidden"));
    std::fs::rename(&folder, &hidden).unwrap();
    let (status, message) = wait_reason(world, "apps", "InvalidPackage").await;
    assert_eq!(status.revision.as_deref(), Some(&*second));
    assert!(message.contains("it has no objects") && message.contains("is still used"), "{message}");
    std::fs::rename(&hidden, &folder).unwrap();
    wait_revision(world, "apps", &second).await;
    manager.wait_idle().await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Howdy"));
    assert_eq!((manager.started(OperationKind::REMOVE), world.history(&alpha, "greeter").len()), (0, 2));
}

#[tokio::test]
#[ignore = "builds versitygw"]
async fn wrong_credentials_and_a_missing_bucket_are_reported_and_change_nothing() {
    let test = ExtensionWorld::new("bucket-failures").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let (server, bucket) = start(world).await;
    bucket.put("production/maps/a.yaml", map("a", "1").as_bytes()).await;
    let spec = spec(&server, "production");
    apply_source(world, "apps", &spec).await;
    let (status, _) = wait_reason(world, "apps", "Ready").await;
    let revision = status.revision.unwrap();
    apply_folder(&test, "maps", "maps", json!({})).await;
    wait_pinned(&test, "maps", "alpha", &revision).await;

    // The files that were read are used as long as the spec is the same.
    for keys in [(CREDENTIALS.0, "canary-wrong-password"), ("canary-unknown-user", CREDENTIALS.1)] {
        apply_keys(world, keys).await;
        let (status, message) = wait_reason(world, "apps", "SourceUnavailable").await;
        assert_eq!(status.revision.as_ref(), Some(&revision));
        assert!(message.contains("HTTP 403: check the credentials"), "{message}");
        assert!(message.contains("nothing is changed or removed"), "{message}");
        apply_keys(world, CREDENTIALS).await;
        wait_revision(world, "apps", &revision).await;
    }
    let (folder, hidden) = (server.folder("fleet"), world.dir.join("hidden"));
    std::fs::rename(&folder, &hidden).unwrap();
    let (status, message) = wait_reason(world, "apps", "SourceUnavailable").await;
    assert_eq!(status.revision.as_ref(), Some(&revision));
    assert!(message.contains("HTTP 404: not found; check spec.bucket"), "{message}");
    std::fs::rename(&hidden, &folder).unwrap();
    wait_revision(world, "apps", &revision).await;

    // Mistakes in the spec. Correcting them is enough.
    for (fields, reason, expected) in [
        (json!({"credentials": null}), "SourceUnavailable", "HTTP 403: check the credentials"),
        (json!({"bucket": {"name": "missing"}}), "SourceUnavailable", "HTTP 404: not found"),
        (json!({"bucket": {"region": "eu-west-1"}}), "SourceUnavailable", "and spec.bucket.region"),
        (json!({"bucket": {"prefix": "missing"}}), "InvalidPackage", "check spec.bucket.prefix"),
    ] {
        patch(world, "apps", fields).await;
        let (_, message) = wait_reason(world, "apps", reason).await;
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("nothing is changed or removed"), "{message}");
        patch(world, "apps", spec.clone()).await;
        wait_revision(world, "apps", &revision).await;
    }

    server.stop().await;
    let (status, _) = wait_reason(world, "apps", "SourceUnavailable").await;
    assert_eq!(status.revision.as_ref(), Some(&revision));
    assert_eq!(config_value(&alpha, "a", "value").await.as_deref(), Some("1"));
    assert_eq!((manager.started(OperationKind::REMOVE), world.history(&alpha, "maps").len()), (0, 1));
}

#[tokio::test]
#[ignore = "builds versitygw"]
async fn lists_of_several_pages_are_read_and_limits_hold() {
    let world = World::new("bucket-limits").await;
    let _manager = world.start_manager();
    let (server, bucket) = start(&world).await;
    // A page has at most 1000 objects.
    let bucket = &bucket;
    stream::iter(0..1_100)
        .for_each_concurrent(16, |number| async move {
            bucket.put(&format!("many/{number}.yaml"), b"a: 1\n").await;
        })
        .await;
    bucket.put("large/app.yaml", b"a: 1\n").await;
    bucket.put("large/image.bin", &vec![0_u8; (64 << 20) + 1]).await;
    bucket.put(&format!("deep/{}a.yaml", "b/".repeat(33)), b"a: 1\n").await;
    for name in ["many", "large", "deep"] {
        apply_source(&world, name, &spec(&server, name)).await;
    }

    let (status, _) = wait_reason(&world, "many", "Ready").await;
    assert_eq!(status.commit.unwrap().subject, "1100 objects");
    let (status, message) = wait_reason(&world, "large", "InvalidPackage").await;
    assert!(status.revision.is_none());
    assert!(message.contains("up to \"image.bin\" have more than 67108864 bytes"), "{message}");
    patch(&world, "large", json!({"ignore": ["*.bin"]})).await;
    let (status, _) = wait_reason(&world, "large", "Ready").await;
    assert_eq!(status.commit.unwrap().subject, "1 objects");
    let (_, message) = wait_reason(&world, "deep", "InvalidPackage").await;
    assert!(message.contains("is nested more than 32 folders deep"), "{message}");
}
