//! Default and enforced extensions of the platform, for the clusters of several tenants, with a manager that watches all
//! namespaces.

use chandler_api::extensions::ExtensionInstance;
use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, wait::eventually, world::config_value};
use chandler_sandbox::testing;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::security::tenants::{PLATFORM, Tenant, apply, apply_catalog, publish_settings};

/// Deletes the instance of an Extension, and returns it.
async fn delete_instance(tenant: &Tenant<'_>, extension: &str) -> ExtensionInstance {
    let instance = tenant.instance_of(extension).await.unwrap();
    tenant.instances().delete(&instance.name_any(), &DeleteParams::default()).await.unwrap();
    instance
}

async fn apply_extension(test: &SelfHosted, name: &str, install: Value) {
    let source = json!({"catalog": {"name": "charts"}, "chart": "settings"});
    let mut spec =
        json!({"versions": [{"version": "1.0.0", "kubernetes": "*", "source": source}], "install": install});
    spec["install"]["namespace"] = json!("default");
    apply(test, "Extension", PLATFORM, name, spec).await;
}

#[tokio::test]
async fn extensions_of_the_platform_reach_the_clusters_of_all_tenants() {
    let test = SelfHosted::new("platform-defaults").await;
    let other = testing::bare_plane().await.unwrap();
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let team = "team: {{ .Cluster.metadata.namespace }}";
    apply_extension(&test, "guard", json!({"default": {}, "enforced": true, "parametersTemplate": team}))
        .await;
    apply_extension(&test, "standard", json!({"default": {}, "parameters": {"team": "all"}})).await;
    let production = json!({"matchLabels": {"tier": "production"}});
    apply_extension(&test, "audit", json!({"default": production})).await;
    let red = Tenant::with_labels(&test, "red", &test.management.plane, &json!({"tier": "test"})).await;
    let _manager = Manager::from_process(test.management.start_manager());
    // This tenant comes later.
    let blue = Tenant::with_labels(&test, "blue", &other, &json!({"tier": "production"})).await;
    for (tenant, plane) in [(&red, &test.management.plane), (&blue, &other)] {
        for extension in ["guard", "standard"] {
            tenant.wait_platform_ready(extension).await;
        }
        assert_eq!(config_value(plane, "guard", "team").await.as_deref(), Some(tenant.namespace));
        assert_eq!(config_value(plane, "standard", "team").await.as_deref(), Some("all"));
    }
    blue.wait_platform_ready("audit").await;
    assert!(red.instance_of("audit").await.is_none(), "its cluster is not selected");

    // A tenant may remove what is a default, but not what is enforced; others are not affected.
    delete_instance(&red, "standard").await;
    let guard = delete_instance(&red, "guard").await;
    let again = eventually("the enforced instance is created again", || async {
        red.instance_of("guard").await.filter(|again| again.uid() != guard.uid())
    })
    .await;
    let changed = Patch::Merge(json!({"spec": {"parameters": {"team": "mine"}}}));
    red.instances().patch(&again.name_any(), &PatchParams::default(), &changed).await.unwrap();
    eventually("the change is reverted", || async {
        red.instance_of("guard").await.filter(|instance| instance.spec.parameters.is_none())
    })
    .await;
    red.wait_platform_ready("guard").await;
    eventually("the default is removed", || async {
        // The instance is deleted after its release.
        let release = red.platform_release("standard").await;
        (release.is_none() && red.instance_of("standard").await.is_none()).then_some(())
    })
    .await;
    blue.wait_platform_ready("standard").await;
    let events = |namespace: &'static str| {
        let events: Api<Event> = Api::namespaced(test.management.client.clone(), namespace);
        async move {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            all.into_iter().filter(|event| event.reason.as_deref() == Some("Restored")).count()
        }
    };
    assert!(events("red").await > 0, "an Event says why");
    assert_eq!(events("blue").await, 0);

    // What the platform changes reaches all of them, also what a tenant has not opted out of.
    apply_extension(
        &test,
        "guard",
        json!({"default": {}, "enforced": true, "parameters": {"team": "platform"}}),
    )
    .await;
    for plane in [&test.management.plane, &other] {
        eventually("the new parameters are applied", || async {
            (config_value(plane, "guard", "team").await.as_deref() == Some("platform")).then_some(())
        })
        .await;
    }
    assert_eq!(events("blue").await, 0, "a change of the platform restores nothing");
    assert!(red.instance_of("standard").await.is_none(), "it is not created again");
}
