//! Where charts come from.

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
async fn a_private_repository_lets_in_who_has_the_secret() {
    let world = World::new("private-repository").await;
    let alpha = world.cluster("alpha").await;
    let _manager = world.manager();
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
    world.place("hello", "hello", private).await;
    let status = world
        .status("hello", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.message.contains("not password"))
        })
        .await;
    assert!(status.revision.is_none());

    world.apply(&secret([("username", "user"), ("password", "canary")].into())).await;
    world.change("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    world.ready("hello", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Aye from somewhere"));
}

#[tokio::test]
async fn a_version_that_is_published_anew_is_told_and_not_rolled_out() {
    let world = World::new("republished").await;
    world.cluster("alpha").await;
    let manager = world.manager();
    world.place("hello", "hello", json!({"version": ""})).await;
    let before = world.ready("hello", "alpha", 1).await.package.unwrap();
    manager.stop().await;

    let altered = world.dir.join("altered");
    chandler_sandbox::chart::write(&altered, &[("NOTES.md", "something else")]).unwrap();
    for name in ["Chart.yaml", "values.yaml"] {
        std::fs::copy(hello().join(name), altered.join(name)).unwrap();
    }
    world.repository.publish(&altered).unwrap();

    // A new process knows nothing but what the status says; changed values make it look again.
    let manager = world.manager();
    world.change("hello", json!({"valuesTemplate": "greeting: Aye"})).await;
    let after = world.ready("hello", "alpha", 2).await.package.unwrap();
    assert_eq!((&after.version, &after.digest), (&before.version, &before.digest));
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = eventually("an Event says so", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("PackageChanged"))
    })
    .await;
    assert!(told.note.unwrap().contains("publish a new version instead"));
    manager.stop().await;
}
