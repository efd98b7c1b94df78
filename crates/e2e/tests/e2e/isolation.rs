//! A failing cluster or object never affects others.

use std::time::{Duration, Instant};

use chandler_e2e::{
    unresponsive_server::{Answers, UnresponsiveServer},
    wait::eventually,
    world::{World, condition, config_value},
};
use kube::api::ListParams;
use serde_json::json;

#[tokio::test]
async fn a_template_that_fails_for_one_cluster_does_not_affect_others() {
    let world = World::new("template").await;
    let (_alpha, bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let _manager = world.start_manager();
    let template =
        "{{ if eq .Cluster.metadata.name \"alpha\" }}{{ fail \"no alpha\" }}{{ end }}greeting: Hi\n";
    world.apply_placement("hello", "hello", json!({"valuesTemplate": template})).await;
    world.wait_ready("hello", "bravo", 1).await;
    assert_eq!(config_value(&bravo, "hello", "greeting").await.as_deref(), Some("Hi from somewhere"));
    let message = eventually("the placement names the cluster", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        let ready =
            status.conditions.into_iter().find(|c| c.type_ == "Ready" && c.reason == "ValueParsingFailed")?;
        Some(ready.message)
    })
    .await;
    assert!(message.contains("alpha") && message.contains("no alpha"), "{message}");
    assert!(!message.contains("bravo"), "{message}");
}

#[tokio::test]
async fn an_unreachable_cluster_is_reported_and_does_not_block_other_clusters() {
    let world = World::new("unreachable").await;
    let (alpha, bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    alpha.kill().await;
    let status = world
        .wait_status("hello", "alpha", "unreachable", |status| {
            condition(status, "ClusterAvailable").is_some_and(|c| c.reason == "ClusterUnreachable")
        })
        .await;
    assert_eq!(condition(&status, "Ready").unwrap().status, "Unknown");
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "bravo", 2).await;
    assert_eq!(config_value(&bravo, "hello", "greeting").await.as_deref(), Some("Hi from somewhere"));
    alpha.restart().await.unwrap();
    world.wait_ready("hello", "alpha", 2).await;
}

#[tokio::test]
async fn an_invalid_chart_reference_is_explained_and_can_be_fixed() {
    let world = World::new("fixed-reference").await;
    let _alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"version": "9.9.9"})).await;
    let status = world
        .wait_status("hello", "alpha", "failed", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
        })
        .await;
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("no version 9.9.9") && message.contains("newest there: 1.0.0"), "{message}");
    world.patch_placement("hello", json!({"version": "1.0.0"})).await;
    world.wait_ready("hello", "alpha", 1).await;
}

/// More releases than are reconciled at the same time need a repository that accepts connections and never answers.
#[tokio::test]
async fn a_repository_that_does_not_answer_delays_no_other_release() {
    let world = World::new("silent-repository").await;
    let _alpha = world.create_cluster("alpha").await;
    let silent = UnresponsiveServer::start(&world.dir, world.client.clone(), Answers::Nothing).await;
    let manager = world.start_manager();
    let started = Instant::now();
    world.apply_placement("before", "hello", json!({"releaseName": "before"})).await;
    world.wait_ready("before", "alpha", 1).await;
    let usual = started.elapsed();
    for number in 0..40 {
        let spec = json!({
            "repoURL": format!("https://127.0.0.1:{}/{number}", silent.port()),
            "tlsConfig": {"insecureSkipTLSVerify": true},
        });
        world.apply_placement(&format!("stuck-{number}"), "hello", spec).await;
    }
    eventually("all releases of the silent repository exist", || async {
        (world.releases().list(&ListParams::default()).await.unwrap().items.len() == 41).then_some(())
    })
    .await;
    world.apply_placement("hello", "hello", json!({})).await;
    // A request to the repository is given up after 30 seconds.
    tokio::time::timeout(usual + Duration::from_secs(15), world.wait_ready("hello", "alpha", 1))
        .await
        .expect("the release is delayed");
    manager.stop().await;
}
