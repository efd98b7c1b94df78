//! An Extension whose repository does not answer: it blocks no others, and nothing is removed because of it.

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, wait::eventually};
use chandler_sandbox::{repository::ChartRepository, testing};
use kube::{ResourceExt as _, api::DeleteParams};
use serde_json::{Value, json};

use super::tenants::{PLATFORM, Tenant, apply, apply_catalog, publish_settings, wait_not_ready};

/// An address at which nothing listens.
const NOTHING: &str = "https://127.0.0.1:1/charts";

/// Applies an enforced Extension of the platform. `version` are fields of its version.
async fn apply_enforced(test: &SelfHosted, name: &str, catalog: &str, version: Value) {
    let mut listed = json!({
        "version": "1.0.0", "source": {"catalog": {"name": catalog}, "chart": "settings"},
    });
    listed.as_object_mut().unwrap().extend(version.as_object().unwrap().clone());
    let install = json!({"default": {}, "enforced": true, "namespace": "default"});
    apply(test, "Extension", PLATFORM, name, json!({"versions": [listed], "install": install})).await;
}

#[tokio::test]
async fn a_dead_repository_switches_no_extension_off() {
    let test = SelfHosted::new("dead-repositories").await;
    let other = testing::bare_plane().await.unwrap();
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let folder = testing::fresh_dir("dead-repositories-vanishing").await.unwrap();
    let vanishing = ChartRepository::start_self_signed(&folder).await.unwrap();
    publish_settings(&vanishing, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "vanishing", &vanishing, json!({})).await;
    // The index of its repository has to be read for `guard`, because its version states no range.
    apply_enforced(&test, "guard", "vanishing", json!({"dependencies": [{"extension": "base"}]})).await;
    apply_enforced(&test, "audit", "charts", json!({"kubernetes": "*"})).await;
    let source = json!({"catalog": {"name": "charts"}, "chart": "settings"});
    let base = json!({"versions": [{"version": "1.0.0", "kubernetes": "*", "source": source}]});
    apply(&test, "Extension", PLATFORM, "base", base).await;

    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let manager = Manager::from_process(test.management.start_manager());
    for extension in ["guard", "base", "audit"] {
        red.wait_platform_ready(extension).await;
    }
    let before = [red.instance_of("guard").await.unwrap(), red.instance_of("base").await.unwrap()];
    let revisions = [test.revisions("guard").await, test.revisions("base").await];

    // The manager starts again without what it has read, and a tenant adds an Extension of his own.
    manager.stop().await;
    drop(vanishing);
    std::fs::remove_dir_all(test.management.store()).unwrap();
    let source = json!({"repository": NOTHING, "chart": "dead"});
    red.apply("Extension", "dead", json!({"versions": [{"version": "1.0.0", "source": source}]})).await;
    red.apply_instance("dead", json!({"extension": {"name": "dead"}})).await;
    let manager = Manager::from_process(test.management.start_manager());

    // Another tenant gets what the platform enforces, and a tenant cannot remove it.
    let blue = Tenant::new(&test, "blue", &other).await;
    blue.wait_platform_ready("audit").await;
    let audit = red.instance_of("audit").await.unwrap();
    red.instances().delete(&audit.name_any(), &DeleteParams::default()).await.unwrap();
    eventually("the enforced instance is created again", || async {
        red.instance_of("audit").await.filter(|again| again.uid() != audit.uid())
    })
    .await;
    red.wait_platform_ready("audit").await;

    // The failures are reported where they are.
    let (reason, message) = wait_not_ready(&test, "red", "dead").await;
    assert_eq!(reason, "SourceUnavailable", "{message}");
    let message = red.wait_refused("dead", "the versions of dead cannot be read").await;
    assert!(message.contains("condition Ready of its Extension"), "{message}");
    let (reason, message) = wait_not_ready(&test, PLATFORM, "guard").await;
    assert_eq!(reason, "SourceUnavailable", "{message}");
    let enforced = eventually("a new cluster gets the instance anyway", || blue.instance_of("guard")).await;
    let message =
        blue.wait_refused(&enforced.name_any(), "the versions of platform/guard cannot be read").await;
    assert!(!message.contains("is not published"), "{message}");

    // What it owns is kept: instance, release and dependency.
    manager.wait_idle().await;
    for (instance, name) in before.iter().zip(["guard", "base"]) {
        let now = red.instance_of(name).await.unwrap();
        assert_eq!(now.uid(), instance.uid(), "the instance of {name} is kept");
        assert!(now.metadata.deletion_timestamp.is_none());
        red.wait_platform_ready(name).await;
    }
    assert_eq!([test.revisions("guard").await, test.revisions("base").await], revisions);
}
