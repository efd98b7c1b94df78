//! Objects and AddonTenancies that change: what was not allowed stays so, and what is not allowed any more can be removed.

use std::time::Duration;

use chandler_api::extensions::{
    PLATFORM_EXTENSION_ANNOTATION, PLATFORM_INPUTS_ANNOTATION, RETRY_ANNOTATION, SUSPEND_ANNOTATION,
};
use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, wait::eventually};
use chandler_sandbox::{
    certificates::Authority, git_server::GitServer, repository::ChartRepository, testing,
};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    tenancy::{EVIL, SETTINGS, allow_config_maps, apply_tenancy, binding, publish, reason, wait_not_allowed},
    tenants::{PLATFORM, Tenant, apply_catalog, platform_source, publish_settings},
};

pub fn chart(name: &str) -> Value {
    json!({"source": platform_source("charts", name, Some("1.0.0"))})
}

/// Publishes an Extension of the platform with version 1.0.0, which is that of a chart.
pub async fn apply_extension(test: &SelfHosted, name: &str, chart: &str) {
    let source = platform_source("charts", chart, Some("1.0.0"));
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "source": source}]);
    super::tenants::apply(test, "Extension", PLATFORM, name, json!({"versions": versions})).await;
}

/// Replaces the spec of an instance by one that installs an Extension of the platform as it is published.
pub async fn become_platform_instance(
    tenant: &Tenant<'_>,
    instance: &str,
    extension: &str,
    version: Option<&str>,
) {
    let mut spec =
        json!({"clusters": {"name": "main"}, "extension": {"name": extension, "scope": "Platform"}});
    if let Some(version) = version {
        spec["version"] = json!(version);
    }
    tenant.apply("ExtensionInstance", instance, spec).await;
    eventually(&format!("the new spec of {instance} is reconciled"), || async {
        let object = tenant.instances().get(instance).await.unwrap();
        let observed = object.status?.placement.observed_generation;
        (observed == object.metadata.generation).then_some(())
    })
    .await;
}

async fn annotate_instance(tenant: &Tenant<'_>, instance: &str, annotation: &str, value: Option<&str>) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    tenant.instances().patch(instance, &PatchParams::default(), &patch).await.unwrap();
}

/// Lets a release be tried again, and waits until it is refused again.
async fn retry_refused(tenant: &Tenant<'_>, instance: &str) {
    let ready = || async {
        let status = tenant.release_of(instance).await.and_then(|release| release.status).unwrap();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let message = ready.map(|ready| ready.message.clone()).unwrap_or_default();
        (reason(&status.conditions).map(str::to_owned), message)
    };
    let (_, before) = ready().await;
    // The message contains the time of the next retry, in seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let release = tenant.release_of(instance).await.unwrap();
    let retry = json!({"metadata": {"annotations": {RETRY_ANNOTATION: Timestamp::now().to_string()}}});
    let patch = Patch::Merge(retry);
    tenant.releases().patch(&release.name_any(), &PatchParams::default(), &patch).await.unwrap();
    eventually(&format!("{instance} is refused again"), || async {
        let (reason, message) = ready().await;
        let is_refused = reason.as_deref() == Some("NotAllowed") && message.contains("does not allow");
        (is_refused && message != before).then_some(())
    })
    .await;
}

/// The release object keeps what was refused while nothing can be made of the new spec. That spec does not allow it.
#[tokio::test]
async fn an_instance_that_becomes_one_of_the_platform_does_not_install_what_it_was_before() {
    let test = SelfHosted::new("tenancy-exempt").await;
    publish(&test.repository, "roles", "templates/binding.yaml", &binding(EVIL, "")).await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    apply_tenancy(&test, "red", json!({"names": ["red"]}), json!({"targetNamespaces": ["red"]})).await;
    apply_extension(&test, "roles", "roles").await;
    let _manager = Manager::from_process(test.management.start_manager());
    let extension = json!({"name": "roles", "scope": "Platform"});
    red.apply_instance("missing", chart("roles")).await;
    red.apply_instance("changed", json!({"extension": extension, "parameters": {"a": "b"}})).await;
    for instance in ["missing", "changed"] {
        wait_not_allowed(&red, instance, &["AddonTenancy red", "ClusterRoleBinding"]).await;
    }
    become_platform_instance(&red, "missing", "does-not-exist", None).await;
    become_platform_instance(&red, "changed", "roles", Some("99.x")).await;
    blue.apply_instance("settings", chart("settings")).await;
    retry_refused(&red, "missing").await;
    // No version is in the range of the other one. Its release object is deleted, because it would be in another namespace.
    eventually("the release is not that of the tenant any more", || async {
        let release = red.release_of("changed").await;
        release.is_none_or(|release| release.spec.release.namespace == "roles").then_some(())
    })
    .await;
    blue.wait_ready("settings").await;
    let bindings: Api<ClusterRoleBinding> = Api::all(test.management.client.clone());
    for instance in ["missing", "changed"] {
        let name = format!("{instance}-red-evil");
        assert!(bindings.get_opt(&name).await.unwrap().is_none(), "{name} was written");
    }
}

/// Hooks of what is installed run as the account, whatever the spec says since. A release whose account is not allowed any more
/// can be removed.
#[tokio::test]
async fn a_removal_is_possible_and_runs_hooks_as_the_account() {
    let test = SelfHosted::new("tenancy-removal").await;
    let hook = binding(EVIL, "helm.sh/hook: pre-delete");
    publish(&test.repository, "hooked", "templates/hook.yaml", &hook).await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    for (namespace, account) in [("hooked", "deployer"), ("blue", "deployer"), ("blue", "mine")] {
        allow_config_maps(&test, namespace, account).await;
    }
    let account = json!({
        "workloadServiceAccount": {"name": "deployer"},
        "kinds": {"clusterScoped": [{"group": "*", "kind": "*"}]},
    });
    apply_tenancy(&test, "red", json!({"names": ["red"]}), account.clone()).await;
    apply_extension(&test, "hooked", "settings").await;
    let _manager = Manager::from_process(test.management.start_manager());
    let mut hooked = chart("hooked");
    hooked["release"] = json!({"name": "hooked", "namespace": "hooked"});
    red.apply_instance("hooked", hooked).await;
    let mut own = chart("settings");
    own["workloadServiceAccountName"] = json!("mine");
    blue.apply_instance("own", own).await;
    red.wait_ready("hooked").await;
    blue.wait_ready("own").await;

    annotate_instance(&red, "hooked", SUSPEND_ANNOTATION, Some("true")).await;
    become_platform_instance(&red, "hooked", "hooked", None).await;
    eventually("the release object is one of the platform", || async {
        let release = red.release_of("hooked").await?;
        (release.annotations().get(PLATFORM_EXTENSION_ANNOTATION)? == "hooked").then_some(())
    })
    .await;
    red.instances().delete("hooked", &DeleteParams::default()).await.unwrap();
    eventually("the release object is being deleted", || async {
        red.release_of("hooked").await?.metadata.deletion_timestamp.map(drop)
    })
    .await;
    annotate_instance(&red, "hooked", SUSPEND_ANNOTATION, None).await;
    red.wait_refused("hooked", "system:serviceaccount:hooked:deployer").await;
    let bindings: Api<ClusterRoleBinding> = Api::all(test.management.client.clone());
    assert!(bindings.get_opt("hooked-hooked-evil").await.unwrap().is_none(), "the hook ran as administrator");

    apply_tenancy(&test, "blue", json!({"names": ["blue"]}), account).await;
    let message = blue.wait_refused("own", "does not allow").await;
    assert!(message.contains("blue/mine"), "{message}");
    blue.instances().delete("own", &DeleteParams::default()).await.unwrap();
    blue.wait_gone("own").await;
    let maps: Api<ConfigMap> = Api::namespaced(test.management.client.clone(), "blue");
    assert!(maps.get_opt("own").await.unwrap().is_none(), "it was uninstalled");
}

/// An Extension of the platform that the AddonTenancy does not list has its rules, also when it is removed: the record of releases
/// without rules decides.
#[tokio::test]
async fn a_release_with_rules_is_not_recorded_as_one_without() {
    let test = SelfHosted::new("tenancy-unlisted").await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let selector = json!({"selector": {"matchLabels": {"kubernetes.io/metadata.name": "red"}}});
    apply_tenancy(&test, "red", selector, json!({"platformExtensions": ["listed"]})).await;
    let manager = Manager::from_process(test.management.start_manager());
    for name in ["unlisted", "listed"] {
        apply_extension(&test, name, "settings").await;
        let extension = json!({"name": name, "scope": "Platform"});
        let spec = json!({"clusters": {"name": "main"}, "extension": extension});
        red.apply("ExtensionInstance", name, spec).await;
        red.wait_ready(name).await;
    }
    let inputs = async |instance: &'static str| {
        let release = red.release_of(instance).await.unwrap();
        release.annotations().get(PLATFORM_INPUTS_ANNOTATION).cloned()
    };
    eventually("the listed one is recorded", || inputs("listed")).await;
    manager.wait_idle().await;
    assert_eq!(inputs("unlisted").await, None, "it would be removed without its rules");
}

/// The index of a repository that is allowed names an address that is not.
#[tokio::test]
async fn packages_are_not_downloaded_from_elsewhere() {
    let test = SelfHosted::new("tenancy-archive").await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let [own_folder, other_folder] = ["tenancy-index", "tenancy-elsewhere"].map(testing::fresh_dir);
    let (own_folder, other_folder) = (own_folder.await.unwrap(), other_folder.await.unwrap());
    let own = ChartRepository::start_self_signed(&own_folder).await.unwrap();
    let other = ChartRepository::start_self_signed(&other_folder).await.unwrap();
    for repository in [&own, &other] {
        publish_settings(repository, "settings", &["1.0.0"]).await;
    }
    let index = own_folder.join("index.yaml");
    let elsewhere = format!("{}/settings-1.0.0.tgz", other.url());
    let changed = std::fs::read_to_string(&index).unwrap().replace("settings-1.0.0.tgz", &elsewhere);
    std::fs::write(&index, changed).unwrap();
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let sources = json!({"sources": {"urlPrefixes": [own.url()]}});
    apply_tenancy(&test, "red", json!({"names": ["red"]}), sources).await;
    red.apply_secret("own-ca", json!({"ca.crt": own.ca_pem()})).await;
    let authority = json!({"name": "own-ca", "key": "ca.crt"});
    red.apply("ExtensionCatalog", "own", json!({"url": own.url(), "certificateAuthority": authority})).await;
    let _manager = Manager::from_process(test.management.start_manager());
    let source = json!({"catalog": {"name": "own"}, "chart": "settings", "version": "1.0.0"});
    red.apply_instance("settings", json!({"source": source})).await;
    blue.apply_instance("settings", chart("settings")).await;
    wait_not_allowed(&red, "settings", &[other.url(), "spec.sources.urlPrefixes"]).await;
    blue.wait_ready("settings").await;
    assert_eq!(other.requests().len(), 0, "{:?}", other.requests());
}

/// A catalog of the platform that is a folder of a Source is allowed like others. The Source with its other folders is not.
#[tokio::test]
async fn a_listed_catalog_allows_its_folder_and_not_the_whole_source() {
    let test = SelfHosted::new("tenancy-folder").await;
    let dir = testing::fresh_dir("tenancy-git").await.unwrap();
    let authority = Authority::open(&dir, "git").unwrap();
    let git = GitServer::start(&authority, &dir.join("served")).await.unwrap();
    let tree = git.create("apps").await.unwrap();
    let files = [
        ("charts/greeter/Chart.yaml", "apiVersion: v2\nname: greeter\nversion: 0.1.0\n"),
        ("charts/greeter/templates/map.yaml", SETTINGS),
    ];
    tree.commit("change", &files).await.unwrap();
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let metadata = json!({"name": "git-ca", "namespace": PLATFORM});
    let data = json!({"ca.crt": authority.certificate()});
    test.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}))
        .await;
    let source = json!({
        "git": {"url": git.url("apps")}, "interval": "1s",
        "certificateAuthority": {"name": "git-ca", "key": "ca.crt"},
    });
    super::tenants::apply(&test, "Source", PLATFORM, "apps", source).await;
    let folder = json!({"source": {"sourceRef": {"name": "apps"}, "path": "charts"}});
    super::tenants::apply(&test, "ExtensionCatalog", PLATFORM, "git", folder).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let sources = json!({"sources": {"platformCatalogs": ["git"]}});
    apply_tenancy(&test, "red", json!({"names": ["red"]}), sources).await;
    let _manager = Manager::from_process(test.management.start_manager());
    red.apply_instance("greeter", json!({"source": platform_source("git", "greeter", Some("0.1.0"))})).await;
    let whole = json!({"sourceRef": {"name": "apps", "scope": "Platform"}, "path": "charts/greeter"});
    red.apply_instance("folder", json!({"source": whole})).await;
    blue.apply_instance("settings", chart("settings")).await;
    red.wait_ready("greeter").await;
    wait_not_allowed(&red, "folder", &["Source apps", "spec.sources.platformSources"]).await;
    blue.wait_ready("settings").await;
}
