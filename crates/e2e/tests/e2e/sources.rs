//! Chart sources.

use std::collections::BTreeMap;

use chandler_e2e::{
    wait::eventually,
    world::{World, condition, config_value, hello},
};
use chandler_sandbox::repository::{Authentication, ChartRepository};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;

#[tokio::test]
async fn a_private_repository_is_read_with_credentials_from_a_secret() {
    let world = World::new("private-repository").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let guard = Authentication::Basic { user: "user".to_owned(), password: "canary".to_owned() };
    let served = world.dir.join("private");
    let repository =
        ChartRepository::start_with_authentication(world.sandbox.authority(), &served, guard).await.unwrap();
    repository.publish(&hello()).unwrap();
    let private =
        json!({"repoURL": repository.url(), "credentials": {"secret": {"name": "login"}, "key": ""}});
    let secret = |data: BTreeMap<&str, &str>| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": "login", "namespace": world.namespace},
        })
    };

    world.apply(&secret([("username", "user")].into())).await;
    world.apply_placement("hello", "hello", private).await;
    let status = world
        .wait_status("hello", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.message.contains("not password"))
        })
        .await;
    assert!(status.revision.is_none());

    world.apply(&secret([("username", "user"), ("password", "canary")].into())).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Aye from somewhere"));
}

/// `openssl req -x509` creates such certificates, and Go clients such as CAAPH accept them.
#[tokio::test]
async fn a_repository_whose_certificate_is_its_own_authority_is_trusted_with_a_ca_secret() {
    let world = World::new("self-signed").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let repository = ChartRepository::start_self_signed(&world.dir.join("self-signed")).await.unwrap();
    repository.publish(&hello()).unwrap();
    let fields = json!({"repoURL": repository.url(), "tlsConfig": {"caSecret": {"name": "self-signed"}}});
    let authority = |pem: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"ca.crt": pem},
            "metadata": {"name": "self-signed", "namespace": world.namespace},
        })
    };

    world.apply(&authority(world.repository.ca_pem())).await;
    world.apply_placement("hello", "hello", fields).await;
    world
        .wait_status("hello", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.message.contains("certificate"))
        })
        .await;
    let logs = manager.logs();
    let errors: Vec<_> = logs.lines().filter(|line| line.contains("\"ERROR\"")).collect();
    assert_eq!(errors, [] as [&str; 0], "the condition reports it");

    world.apply(&authority(repository.ca_pem())).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Aye from somewhere"));
}

#[tokio::test]
async fn a_republished_version_is_reported_and_not_installed() {
    let world = World::new("republished").await;
    world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"version": ""})).await;
    let before = world.wait_ready("hello", "alpha", 1).await.package.unwrap();
    manager.stop().await;

    let altered = world.dir.join("altered");
    chandler_sandbox::chart::write(&altered, &[("NOTES.md", "something else")]).unwrap();
    for name in ["Chart.yaml", "values.yaml"] {
        std::fs::copy(hello().join(name), altered.join(name)).unwrap();
    }
    world.repository.publish(&altered).unwrap();

    // A new process knows only the status. Changed values make it read the chart again.
    let manager = world.start_manager();
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    let after = world.wait_ready("hello", "alpha", 2).await.package.unwrap();
    assert_eq!((&after.version, &after.digest), (&before.version, &before.digest));
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let event = eventually("an Event reports it", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("PackageChanged"))
    })
    .await;
    assert!(event.note.unwrap().contains("publish a new version instead"));
    manager.stop().await;
}
