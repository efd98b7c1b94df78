//! Releases without a version follow the newest.

use serde_json::json;

use crate::world::{World, hello};

#[tokio::test]
async fn a_new_version_is_found_and_rolled_out() {
    let world = World::new("newest").await;
    world.cluster("alpha").await;
    let manager = world.manager_with(&["--poll-seconds", "2"]);
    world.place("hello", "hello", json!({"version": ""})).await;
    let status = world.ready("hello", "alpha", 1).await;
    assert_eq!(status.package.unwrap().version, "1.0.0");

    // Looking again and again finds nothing new, and does nothing.
    manager.settled().await;
    let calls = |metrics: std::collections::BTreeMap<String, f64>| -> f64 {
        metrics.iter().filter(|(name, _)| name.starts_with("chandler_tool_calls")).map(|(_, n)| n).sum()
    };
    let before = calls(manager.metrics().await);
    manager.settled().await;
    assert!((calls(manager.metrics().await) - before).abs() < f64::EPSILON, "no tool is called to look");

    world.repository.publish_version(&hello(), "1.1.0").unwrap();
    world.repository.publish_version(&hello(), "2.0.0-rc.1").unwrap();
    let status = world.ready("hello", "alpha", 2).await;
    assert_eq!(status.package.unwrap().version, "1.1.0", "a release candidate is not the newest");
}
