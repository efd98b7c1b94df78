//! Records of releases: what a tenant has installed, or what looks like the platform's, does not become exempt from rules.

use chandler_api::extensions::PLATFORM_EXTENSION_ANNOTATION;
use chandler_e2e::{
    clock_shift::ShiftedClock, extension_world::is_ready, manager::Manager, self_hosted::SelfHosted,
    wait::eventually,
};
use chandler_sandbox::testing;
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Secret, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    tenancy::{EVIL, allow_config_maps, apply_tenancy, binding, publish, wait_not_allowed},
    tenancy_changes::{apply_extension, become_platform_instance, chart},
    tenants::{Tenant, apply_catalog, publish_settings},
};

/// Label of a record with the inputs that Chandler has created it from.
const MARK: &str = "chandler.dev/input";

/// Waits until an instance of the platform has written the spec of its release.
async fn wait_platform_release(tenant: &Tenant<'_>, instance: &str, extension: &str) {
    eventually("the release object is one of the platform", || async {
        let release = tenant.release_of(instance).await?;
        (release.annotations().get(PLATFORM_EXTENSION_ANNOTATION)? == extension).then_some(())
    })
    .await;
}

/// The uninstall of what a tenant has installed stops in a hook that the account may not create. Then the instance becomes one of
/// the platform, which is installed with the kubeconfig: the uninstall is not finished with it.
#[tokio::test]
async fn an_interrupted_uninstall_is_finished_as_the_account() {
    let test = SelfHosted::new("tenancy-recovery").await;
    let events = "helm.sh/hook: \"post-install,pre-delete\", helm.sh/hook-delete-policy: hook-succeeded";
    publish(&test.repository, "hooked", "templates/hook.yaml", &binding(EVIL, events)).await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    allow_config_maps(&test, "hooked", "deployer").await;
    let account = json!({
        "workloadServiceAccount": {"name": "deployer"},
        "kinds": {"clusterScoped": [{"group": "*", "kind": "*"}]},
    });
    apply_tenancy(&test, "red", json!({"names": ["red"]}), account).await;
    apply_extension(&test, "hooked", "settings").await;
    red.apply("AddonPolicy", "uninstall", json!({"remediation": {"retries": 0, "onFailure": "Uninstall"}}))
        .await;
    let clock = ShiftedClock::new(&testing::fresh_dir("tenancy-recovery-clock").await.unwrap());
    let manager = test.management.start_manager_with_environment(&[], clock.environment());
    let _manager = Manager::from_process(manager);
    let mut hooked = chart("hooked");
    hooked["release"] = json!({"name": "hooked", "namespace": "hooked"});
    hooked["policyRef"] = json!({"name": "uninstall"});
    red.apply_instance("hooked", hooked).await;
    let records: Api<Secret> = Api::namespaced(test.management.client.clone(), "hooked");
    eventually("the uninstall of the failed release has stopped", || async {
        let stopped = ListParams::default().labels("owner=helm,name=hooked,status=uninstalling");
        (!records.list(&stopped).await.unwrap().items.is_empty()).then_some(())
    })
    .await;

    become_platform_instance(&red, "hooked", "hooked", None).await;
    wait_platform_release(&red, "hooked", "hooked").await;
    red.wait_refused("hooked", "takes over at").await;
    blue.apply_instance("settings", chart("settings")).await;
    blue.wait_ready("settings").await;
    clock.set(11 * 60);
    let release = red.release_of("hooked").await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"at": Timestamp::now().to_string()}}}));
    red.releases().patch(&release.name_any(), &PatchParams::default(), &patch).await.unwrap();
    eventually("the uninstall is continued as the account", || async {
        let failure = red.release_of("hooked").await?.status?.last_failure?;
        // The failures before are those of the spec before.
        let is_of_platform = failure.input.starts_with("2-");
        (is_of_platform && failure.message.contains("system:serviceaccount:hooked:deployer")).then_some(())
    })
    .await;
    let bindings: Api<ClusterRoleBinding> = Api::all(test.management.client.clone());
    assert!(bindings.get_opt("hooked-hooked-evil").await.unwrap().is_none(), "the hook ran as administrator");
}

/// A chart cannot contain the record of another release. A revision that Chandler has not created is replaced by that of the
/// platform, and not adopted, where the tenant has rules.
#[tokio::test]
async fn a_record_of_others_is_neither_installed_nor_adopted() {
    let test = SelfHosted::new("tenancy-records").await;
    let record = "apiVersion: v1\nkind: Secret\ntype: helm.sh/release.v1\nmetadata:\n  name: sh.helm.release.v1.other.v1\n  \
        labels: {owner: helm, name: other, version: \"1\", status: deployed}\n";
    publish(&test.repository, "forged", "templates/record.yaml", record).await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    apply_tenancy(&test, "red", json!({"names": ["red"]}), json!({"targetNamespaces": ["red"]})).await;
    for extension in ["first", "second"] {
        apply_extension(&test, extension, "settings").await;
    }
    let _manager = Manager::from_process(test.management.start_manager());
    red.apply_instance("forged", chart("forged")).await;
    let pairs = [(&red, "first"), (&blue, "second")];
    for (tenant, name) in pairs {
        let spec = json!({"clusters": {"name": "main"}, "extension": {"name": name, "scope": "Platform"}});
        tenant.apply("ExtensionInstance", name, spec).await;
    }
    wait_not_allowed(&red, "forged", &["AddonTenancy red", "a record of a Helm release"]).await;
    let secrets =
        |namespace: &str| -> Api<Secret> { Api::namespaced(test.management.client.clone(), namespace) };
    let forged = secrets("red").get_opt("sh.helm.release.v1.other.v1").await.unwrap();
    assert!(forged.is_none(), "the record was written");

    for (tenant, name) in pairs {
        tenant.wait_ready(name).await;
        let unmarked = Patch::Merge(json!({"metadata": {"labels": {MARK: null}}}));
        let record = format!("sh.helm.release.v1.{name}.v1");
        secrets(name).patch(&record, &PatchParams::default(), &unmarked).await.unwrap();
    }
    eventually("the revision under rules is replaced", || async {
        let release = red.release_of("first").await.filter(is_ready)?;
        (release.status?.revision == Some(2)).then_some(())
    })
    .await;
    eventually("the other revision is adopted", || async {
        let record = secrets("second").get("sh.helm.release.v1.second.v1").await.unwrap();
        record.labels().contains_key(MARK).then_some(())
    })
    .await;
    let second = blue.wait_ready("second").await;
    assert_eq!(second.status.unwrap().revision, Some(1));
}
