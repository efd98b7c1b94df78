//! Secrets with the values of releases: Chandler does not write to a Secret of somebody else.

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, wait::eventually};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::tenants::{Tenant, apply_catalog, platform_source, publish_settings};

const READ_OFTEN: [&str; 2] = ["--parameters-seconds", "1"];

/// Returns the spec of an instance with a value of Secret `login`.
fn with_login() -> Value {
    let login = json!({"secret": {"name": "login", "key": "team"}, "parameter": "team"});
    json!({"source": platform_source("charts", "settings", Some("1.0.0")), "parametersFrom": [login]})
}

fn values(secret: &Secret) -> String {
    let data = secret.data.as_ref().and_then(|data| data.get("values.yaml").cloned());
    String::from_utf8(data.unwrap_or_else(|| ByteString(Vec::new())).0).unwrap()
}

async fn wait_team(test: &SelfHosted, namespace: &str, name: &str, expected: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(test.management.client.clone(), namespace);
    eventually(&format!("{name} has {expected}"), || async {
        let data = maps.get_opt(name).await.unwrap()?.data?;
        (data.get("team").map(String::as_str) == Some(expected)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_not_overwritten() {
    let test = SelfHosted::new("values-secrets").await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    for tenant in [&red, &blue] {
        tenant.apply_secret("login", json!({"team": "CANARY-one"})).await;
    }
    // A Secret with the name that earlier versions wrote to.
    let former = "app-values";
    red.apply_secret(former, json!({"values.yaml": "mine", "password": "mine"})).await;
    let foreign = red.secrets().get(former).await.unwrap();
    let manager = Manager::from_process(test.management.start_manager_with(&READ_OFTEN));
    red.apply_instance("app", with_login()).await;
    let release = red.wait_ready("app").await;
    assert_eq!(format!("{}-values", release.name_any()), former);
    let written = release.spec.values_secret.clone().unwrap().name;
    assert_ne!(written, former);
    let secret = red.secrets().get(&written).await.unwrap();
    assert!(values(&secret).contains("CANARY-one") && secret.type_.as_deref() == Some("Opaque"));
    eventually("the release owns the Secret", || async {
        let owners = red.secrets().get(&written).await.unwrap().owner_references().to_vec();
        (owners == [release.controller_owner_ref(&()).unwrap()]).then_some(())
    })
    .await;
    assert_eq!(red.secrets().get(former).await.unwrap(), foreign, "it is not changed");

    // A Secret of somebody else takes the place of the one that Chandler has written.
    red.secrets().delete(&written, &DeleteParams::default()).await.unwrap();
    red.apply_secret(&written, json!({"values.yaml": "mine too"})).await;
    red.apply_secret("login", json!({"team": "CANARY-two"})).await;
    let message = red.wait_refused("app", &format!("Secret red/{written}")).await;
    assert!(message.contains("does not belong to AddonRelease"), "{message}");
    blue.apply_instance("app", with_login()).await;
    blue.wait_ready("app").await;
    assert_eq!(values(&red.secrets().get(&written).await.unwrap()), "mine too");
    wait_team(&test, "red", "app", "CANARY-one").await;
    red.secrets().delete(&written, &DeleteParams::default()).await.unwrap();
    wait_team(&test, "red", "app", "CANARY-two").await;

    assert_that_a_former_name_is_kept(&test, &blue, manager).await;
}

/// A release of an earlier version keeps its Secret, and no revision is added.
async fn assert_that_a_former_name_is_kept(test: &SelfHosted, blue: &Tenant<'_>, manager: Manager) {
    manager.stop().await;
    let release = blue.wait_ready("app").await;
    let reference = release.spec.values_secret.clone().unwrap();
    let former = format!("{}-values", release.name_any());
    let mut secret = blue.secrets().get(&reference.name).await.unwrap();
    blue.secrets().delete(&reference.name, &DeleteParams::default()).await.unwrap();
    secret.metadata = ObjectMeta {
        name: Some(former.clone()),
        owner_references: Some(vec![release.controller_owner_ref(&()).unwrap()]),
        ..ObjectMeta::default()
    };
    blue.secrets().create(&PostParams::default(), &secret).await.unwrap();
    let renamed = Patch::Merge(json!({"spec": {"valuesSecret": {"name": former}}}));
    blue.releases().patch(&release.name_any(), &PatchParams::default(), &renamed).await.unwrap();
    let before = blue.secrets().get(&former).await.unwrap();

    let manager = Manager::from_process(test.management.start_manager_with(&READ_OFTEN));
    let kept = blue.wait_ready("app").await;
    manager.wait_idle().await;
    assert_eq!(kept.spec.values_secret.unwrap().name, former);
    assert_eq!(blue.wait_ready("app").await.status.unwrap().revision, Some(1));
    assert_eq!(blue.secrets().get(&former).await.unwrap().resource_version(), before.resource_version());
    // Other values are written to it.
    blue.apply_secret("login", json!({"team": "CANARY-three"})).await;
    wait_team(test, "blue", "app", "CANARY-three").await;
    assert!(values(&blue.secrets().get(&former).await.unwrap()).contains("CANARY-three"));
}
