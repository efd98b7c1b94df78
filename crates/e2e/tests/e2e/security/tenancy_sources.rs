//! Sources that are not allowed are not contacted, and AddonTenancies that are defined after the manager has started are obeyed.

use chandler_api::extensions::AddonTenancy;
use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, wait::eventually};
use chandler_sandbox::{certificates::Authority, crds::wait_served, git_server::GitServer, testing};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::{
    tenancy::{SETTINGS, apply_tenancy, delete_tenancy, reason},
    tenants::{Tenant, apply_catalog, platform_source, publish_settings, wait_not_ready},
};

fn settings() -> Value {
    json!({"source": platform_source("charts", "settings", Some("1.0.0"))})
}

/// Tags are read when an instance or an Extension needs them, also of a Source that is refused and never polled.
#[tokio::test]
async fn sources_that_are_not_allowed_are_not_contacted_through_tags() {
    let test = SelfHosted::new("tenancy-tags").await;
    let dir = testing::fresh_dir("tenancy-tags-git").await.unwrap();
    let authority = Authority::open(&dir, "git").unwrap();
    let git = GitServer::start(&authority, &dir.join("served")).await.unwrap();
    let tree = git.create("apps").await.unwrap();
    let files = [
        ("greeter/Chart.yaml", "apiVersion: v2\nname: greeter\nversion: 0.1.0\n"),
        ("greeter/templates/map.yaml", SETTINGS),
    ];
    tree.commit("change", &files).await.unwrap();
    tree.git(&["tag", "v1.34"]).await.unwrap();
    tree.push().await.unwrap();
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let elsewhere = json!({"sources": {"urlPrefixes": ["https://git.example"]}});
    apply_tenancy(&test, "red", json!({"names": ["red"]}), elsewhere).await;
    red.apply_secret("git-ca", json!({"ca.crt": authority.certificate()})).await;
    let source = json!({
        "git": {"url": git.url("apps")}, "interval": "1s",
        "certificateAuthority": {"name": "git-ca", "key": "ca.crt"},
    });
    red.apply("Source", "evil", source).await;
    let _manager = Manager::from_process(test.management.start_manager());

    let folder = json!({"sourceRef": {"name": "evil"}, "path": "greeter"});
    let mut tagged = folder.clone();
    tagged["version"] = json!("v1.34");
    red.apply("Extension", "followed", json!({"followKubernetes": folder})).await;
    let versions = json!([{"version": "1.0.0", "source": tagged}]);
    red.apply("Extension", "listed", json!({"versions": versions})).await;
    red.apply_instance("tagged", json!({"source": tagged})).await;
    blue.apply_instance("settings", settings()).await;
    let message = red.wait_refused("tagged", "does not allow").await;
    for text in ["AddonTenancy red", "spec.sources.urlPrefixes"] {
        assert!(message.contains(text), "{message}");
    }
    for extension in ["followed", "listed"] {
        let (reason, message) = wait_not_ready(&test, "red", extension).await;
        assert_eq!(reason, "NotAllowed", "{extension}: {message}");
        assert!(message.contains("AddonTenancy red"), "{extension}: {message}");
    }
    blue.wait_ready("settings").await;
    assert!(git.requests().is_empty(), "the server was contacted: {:?}", git.requests());

    // What was refused is installed as soon as it is allowed.
    delete_tenancy(test.management.client.clone(), "red").await;
    red.wait_ready("tagged").await;
    assert!(!git.requests().is_empty());
}

/// An installation whose image was upgraded without its CRDs works on. Nothing is missed when they are applied later.
#[tokio::test]
async fn tenancies_are_obeyed_although_the_manager_was_started_before_they_were_defined() {
    let test = SelfHosted::new("tenancy-crd").await;
    let client = test.management.client.clone();
    let resource = ApiResource::erase::<AddonTenancy>(&());
    let name = format!("{}.{}", resource.plural, resource.group);
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.delete(&name, &DeleteParams::default()).await.unwrap();
    let tenancies: Api<AddonTenancy> = Api::all(client.clone());
    eventually("AddonTenancies are not served", || async {
        match tenancies.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Some(()),
            _ => None,
        }
    })
    .await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let manager = Manager::from_process(test.management.start_manager());
    red.apply_instance("settings", settings()).await;
    red.wait_ready("settings").await;

    let crd = chandler_api::crds().into_iter().find(|crd| crd.name_any() == name).unwrap();
    test.apply(&serde_json::to_value(&crd).unwrap()).await;
    wait_served(&client, &resource).await.unwrap();
    apply_tenancy(&test, "red", json!({"names": ["red"]}), json!({"sources": {}})).await;
    let message = red.wait_refused("settings", "does not allow").await;
    assert!(message.contains("spec.sources.platformCatalogs"), "{message}");
    eventually("the release is not allowed", || async {
        let status = red.release_of("settings").await?.status?;
        (reason(&status.conditions) == Some("NotAllowed")).then_some(())
    })
    .await;
    blue.apply_instance("settings", settings()).await;
    blue.wait_ready("settings").await;
    assert!(manager.is_running());
}
