//! Extensions whose dependencies take the solver exponential time.

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted};
use serde_json::{Value, json};

use super::tenants::{Tenant, apply_catalog, platform_source, publish_settings};

const PIGEONS: usize = 14;

fn version(number: usize, dependencies: &Value) -> Value {
    json!({
        "version": format!("{number}.0.0"), "kubernetes": "*", "dependencies": dependencies,
        "source": platform_source("charts", "settings", Some("1.0.0")),
    })
}

/// Applies Extension `bad`, which needs pigeons that need a slot each, of which there is one too few. The proof that there is no
/// solution is exponentially long.
async fn apply_pigeons(tenant: &Tenant<'_>) {
    let needs: Vec<_> =
        (1..=PIGEONS).map(|pigeon| json!({"extension": format!("pigeon-{pigeon}")})).collect();
    tenant.apply("Extension", "bad", json!({"versions": [version(1, &json!(needs))]})).await;
    for pigeon in 1..=PIGEONS {
        let in_slot = |slot: usize| {
            let slot_of_it = json!({"extension": format!("slot-{slot}"), "range": format!("={pigeon}.0.0")});
            version(slot, &json!([slot_of_it]))
        };
        let versions: Vec<_> = (1..PIGEONS).map(in_slot).collect();
        tenant.apply("Extension", &format!("pigeon-{pigeon}"), json!({"versions": versions})).await;
    }
    for slot in 1..PIGEONS {
        let versions: Vec<_> = (1..=PIGEONS).map(|pigeon| version(pigeon, &json!([]))).collect();
        tenant.apply("Extension", &format!("slot-{slot}"), json!({"versions": versions})).await;
    }
}

#[tokio::test]
async fn dependencies_that_are_too_complex_are_given_up() {
    let test = SelfHosted::new("complex-dependencies").await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    apply_pigeons(&red).await;
    for tenant in [&red, &blue] {
        tenant.apply("Extension", "web", json!({"versions": [version(1, &json!([]))]})).await;
    }
    red.apply_instance("bad", json!({"extension": {"name": "bad"}})).await;
    let manager = Manager::from_process(test.management.start_manager());
    for tenant in [&blue, &red] {
        tenant.apply_instance("web", json!({"extension": {"name": "web"}})).await;
        tenant.wait_ready("web").await;
    }
    let message = red.wait_refused("bad", "the dependencies of bad are too complex").await;
    assert!(message.contains("narrower ranges"), "{message}");
    assert!(red.release_of("bad").await.is_none() && red.instance_of("pigeon-1").await.is_none());
    manager.wait_idle().await;
}
