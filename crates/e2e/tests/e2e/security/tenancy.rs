//! AddonTenancies: what namespaces may use and install, and as which account Helm acts on workload clusters.

use chandler_api::{
    addons::HelmReleaseProxy,
    extensions::{AddonTenancy, ExtensionCatalog, PLATFORM_INPUTS_ANNOTATION, RETRY_ANNOTATION, Source},
};
use chandler_e2e::{
    manager::Manager,
    self_hosted::SelfHosted,
    sync_world::{SyncWorld, map, ready_message},
    wait::eventually,
};
use chandler_sandbox::{chart, repository::ChartRepository, testing};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::tenants::{PLATFORM, Tenant, apply_catalog, platform_source, publish_settings};

pub const SETTINGS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {team: none}\n";
/// The name of a `ClusterRoleBinding` that makes a group administrators.
pub const EVIL: &str = "{{ .Release.Name }}-{{ .Release.Namespace }}-evil";

pub fn binding(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: \"{name}\", annotations: {{{annotations}}}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: evil}}]\n"
    )
}

pub async fn publish(repository: &ChartRepository, name: &str, file: &str, content: &str) {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let files = [("Chart.yaml", &*metadata), ("templates/settings.yaml", SETTINGS), (file, content)];
    let folder = testing::fresh_dir(&format!("tenancy-chart-{name}")).await.unwrap().join(name);
    repository.publish_version(&chart::write(&folder, &files).unwrap(), "1.0.0").unwrap();
}

pub async fn apply_tenancy(test: &SelfHosted, name: &str, namespaces: Value, fields: Value) {
    let mut spec = json!({"namespaces": namespaces});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonTenancy", "metadata": {"name": name}, "spec": spec,
    }))
    .await;
}

pub async fn delete_tenancy(client: kube::Client, name: &str) {
    let tenancies: Api<AddonTenancy> = Api::all(client);
    tenancies.delete(name, &DeleteParams::default()).await.unwrap();
}

pub fn reason(conditions: &[Condition]) -> Option<&str> {
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|ready| &*ready.reason)
}

/// Waits until the release of an instance is refused with the reason `NotAllowed` and these texts.
pub async fn wait_not_allowed(tenant: &Tenant<'_>, instance: &str, texts: &[&str]) {
    let message = tenant.wait_refused(instance, "does not allow").await;
    for text in texts {
        assert!(message.contains(text), "{instance}: {message}");
    }
    let status = tenant.release_of(instance).await.and_then(|release| release.status).unwrap();
    assert_eq!(reason(&status.conditions), Some("NotAllowed"), "{instance}");
    assert_eq!(status.revision, None, "{instance}");
}

/// Returns the names of Helm's releases in a namespace, as it has recorded them.
async fn recorded(test: &SelfHosted, namespace: &str) -> Vec<String> {
    let secrets: Api<Secret> = Api::namespaced(test.management.client.clone(), namespace);
    let stored = secrets.list(&ListParams::default().labels("owner=helm")).await.unwrap().items;
    let mut names: Vec<_> = stored.iter().map(|secret| secret.labels()["name"].clone()).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn what_a_tenancy_does_not_allow_is_refused_before_anything_is_written() {
    let test = SelfHosted::new("tenancy").await;
    let client = test.management.client.clone();
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    let hook = binding(EVIL, "helm.sh/hook: pre-install");
    publish(&test.repository, "hook", "templates/hook.yaml", &hook).await;
    publish(&test.repository, "folder", "crds/binding.yaml", &binding("tenancy-folder-evil", "")).await;
    let elsewhere = SETTINGS.replace("}}}", "}}-hidden, namespace: kube-system}");
    publish(&test.repository, "elsewhere", "templates/elsewhere.yaml", &elsewhere).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    apply_catalog(&test, "private", &test.repository, json!({})).await;
    let folder = testing::fresh_dir("tenancy-other").await.unwrap();
    let other = ChartRepository::start_self_signed(&folder).await.unwrap();
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let sources = json!({"platformCatalogs": ["charts"], "urlPrefixes": ["https://charts.example/red"]});
    let rules = json!({"sources": sources, "targetNamespaces": ["red"]});
    apply_tenancy(&test, "red", json!({"names": ["red"]}), rules).await;
    let _manager = Manager::from_process(test.management.start_manager());

    let chart = |name: &str| json!({"source": platform_source("charts", name, Some("1.0.0"))});
    for name in ["hook", "folder", "elsewhere", "settings"] {
        red.apply_instance(name, chart(name)).await;
    }
    let mut system = chart("settings");
    system["release"] = json!({"name": "system", "namespace": "kube-system"});
    red.apply_instance("system", system).await;
    let source = json!({"source": {"repository": other.url(), "chart": "settings", "version": "1.0.0"}});
    red.apply_instance("outside", source).await;
    red.apply_instance("unlisted", json!({"source": platform_source("private", "settings", Some("1.0.0"))}))
        .await;
    red.apply("ExtensionCatalog", "outside", json!({"url": other.url()})).await;
    red.apply("Source", "outside", json!({"git": {"url": format!("{}/repository", other.url())}})).await;
    apply_chart_proxy(&test, "proxy", &other).await;
    blue.apply_instance("hook", chart("hook")).await;

    let clusterwide = ["AddonTenancy red", "ClusterRoleBinding", "spec.kinds.clusterScoped"];
    wait_not_allowed(&red, "hook", &clusterwide).await;
    wait_not_allowed(&red, "folder", &clusterwide).await;
    wait_not_allowed(&red, "elsewhere", &["kube-system/elsewhere-hidden", "spec.targetNamespaces"]).await;
    wait_not_allowed(&red, "system", &["namespace kube-system", "spec.targetNamespaces"]).await;
    wait_not_allowed(&red, "outside", &["AddonTenancy red", "spec.sources.urlPrefixes"]).await;
    wait_not_allowed(&red, "unlisted", &["ExtensionCatalog private", "spec.sources.platformCatalogs"]).await;
    wait_chart_proxy_refused(&test).await;
    wait_source_refused(&test).await;
    wait_catalog_refused(&test).await;
    red.wait_ready("settings").await;
    blue.wait_ready("hook").await;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    assert!(bindings.get_opt("hook-blue-evil").await.unwrap().is_some(), "blue has no AddonTenancy");
    assert!(bindings.get_opt("hook-red-evil").await.unwrap().is_none());
    assert!(bindings.get_opt("tenancy-folder-evil").await.unwrap().is_none());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "red");
    for name in ["hook", "folder", "elsewhere"] {
        assert!(maps.get_opt(name).await.unwrap().is_none(), "{name} was written");
    }
    assert_eq!(recorded(&test, "red").await, ["settings"]);
    assert_eq!(recorded(&test, "kube-system").await, Vec::<String>::new());
    assert_eq!(other.requests().len(), 0, "the other repository was asked: {:?}", other.requests());

    // What was refused is installed as soon as it is allowed.
    delete_tenancy(client, "red").await;
    red.wait_ready("hook").await;
    assert!(bindings.get_opt("hook-red-evil").await.unwrap().is_some());
}

/// Applies a HelmChartProxy of red with a chart of a repository that is not allowed.
async fn apply_chart_proxy(test: &SelfHosted, name: &str, repository: &ChartRepository) {
    test.apply(&json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": name, "namespace": "red"},
        "spec": {
            "clusterSelector": {}, "repoURL": repository.url(), "chartName": "settings", "version": "1.0.0",
            "releaseName": name, "namespace": "red",
        },
    }))
    .await;
}

async fn wait_chart_proxy_refused(test: &SelfHosted) {
    let releases: Api<HelmReleaseProxy> = Api::namespaced(test.management.client.clone(), "red");
    eventually("the HelmChartProxy is refused", || async {
        let release = releases.list(&ListParams::default()).await.unwrap().items.pop()?;
        let ready = release.status?.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.reason == "NotAllowed" && ready.message.contains("spec.sources.urlPrefixes")).then_some(())
    })
    .await;
}

async fn wait_source_refused(test: &SelfHosted) {
    let sources: Api<Source> = Api::namespaced(test.management.client.clone(), "red");
    eventually("the Source is refused", || async {
        let status = sources.get("outside").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.reason == "NotAllowed" && ready.message.contains("AddonTenancy red")).then_some(())
    })
    .await;
}

async fn wait_catalog_refused(test: &SelfHosted) {
    let catalogs: Api<ExtensionCatalog> = Api::namespaced(test.management.client.clone(), "red");
    eventually("the ExtensionCatalog is refused", || async {
        let status = catalogs.get("outside").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.reason == "NotAllowed" && ready.message.contains("AddonTenancy red")).then_some(())
    })
    .await;
}

/// What the platform has published can be installed and removed as it is, whatever else the AddonTenancy allows.
#[tokio::test]
async fn extensions_of_the_platform_are_not_refused() {
    let test = SelfHosted::new("tenancy-platform").await;
    let hook = SETTINGS.replace("}}}", "}}-hook, annotations: {helm.sh/hook: pre-delete}}");
    let templates = format!("{}---\n{hook}", binding(EVIL, ""));
    publish(&test.repository, "roles", "templates/binding.yaml", &templates).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let green = Tenant::new(&test, "green", &test.management.plane).await;
    let label = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["red", "green"]});
    let selector = json!({"selector": {"matchExpressions": [label]}});
    let nothing = json!({"sources": {}, "targetNamespaces": ["red", "green"]});
    apply_tenancy(&test, "teams", selector, nothing).await;
    let source = platform_source("charts", "roles", Some("1.0.0"));
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "source": source}]);
    super::tenants::apply(&test, "Extension", PLATFORM, "roles", json!({"versions": versions})).await;
    let _manager = Manager::from_process(test.management.start_manager());
    let extension = json!({"name": "roles", "scope": "Platform"});
    let plain = json!({"clusters": {"name": "main"}, "extension": extension});
    red.apply("ExtensionInstance", "plain", plain.clone()).await;
    green.apply_instance("changed", json!({"extension": extension, "parameters": {"a": "b"}})).await;
    red.wait_ready("plain").await;
    wait_not_allowed(&green, "changed", &["AddonTenancy teams", "spec.sources.platformCatalogs"]).await;

    // Its hook is in a namespace that is not allowed to the tenant, and runs nevertheless.
    eventually("what is installed is recorded", || async {
        let release = red.release_of("plain").await?;
        release.annotations().contains_key(PLATFORM_INPUTS_ANNOTATION).then_some(())
    })
    .await;
    red.instances().delete("plain", &DeleteParams::default()).await.unwrap();
    red.wait_gone("plain").await;
    assert_eq!(recorded(&test, "roles").await, Vec::<String>::new());
    green.apply("ExtensionInstance", "changed", plain).await;
    green.wait_ready("changed").await;
}

/// Lets an account of the workload cluster write ConfigMaps in its namespace, and nothing else.
pub async fn allow_config_maps(test: &SelfHosted, namespace: &str, account: &str) {
    test.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    let metadata = json!({"name": account, "namespace": namespace});
    test.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}],
    }))
    .await;
    test.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }))
    .await;
}

#[tokio::test]
async fn helm_acts_as_the_account_of_the_tenancy_and_records_stay_those_of_chandler() {
    let test = SelfHosted::new("tenancy-account").await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let blue = Tenant::new(&test, "blue", &test.management.plane).await;
    let account = json!({"workloadServiceAccount": {"name": "deployer"}});
    apply_tenancy(&test, "red", json!({"names": ["red"]}), account).await;
    allow_config_maps(&test, "blue", "shared").await;
    let arguments = ["--default-workload-service-account=shared"];
    let _manager = Manager::from_process(test.management.start_manager_with(&arguments));
    let settings = json!({"source": platform_source("charts", "settings", Some("1.0.0"))});
    red.apply_instance("settings", settings.clone()).await;
    let mut other = settings.clone();
    other["workloadServiceAccountName"] = json!("admin");
    red.apply_instance("other", other).await;
    let mut own = settings.clone();
    own["workloadServiceAccountName"] = json!("limited");
    blue.apply_instance("limited", own).await;
    let mut elsewhere = settings.clone();
    elsewhere["release"] = json!({"name": "elsewhere", "namespace": "elsewhere"});
    blue.apply_instance("elsewhere", elsewhere).await;
    blue.apply_instance("settings", settings).await;
    red.wait_refused("settings", "system:serviceaccount:red:deployer").await;
    wait_not_allowed(&red, "other", &["red/admin", "spec.workloadServiceAccount"]).await;
    blue.wait_refused("limited", "system:serviceaccount:blue:limited").await;
    blue.wait_refused("elsewhere", "system:serviceaccount:elsewhere:shared").await;
    blue.wait_ready("settings").await;
    assert_eq!(recorded(&test, "red").await, Vec::<String>::new());

    // The account may write ConfigMaps and nothing else: records are written all the same.
    allow_config_maps(&test, "red", "deployer").await;
    let release = red.release_of("settings").await.unwrap();
    let retry = json!({"metadata": {"annotations": {RETRY_ANNOTATION: Timestamp::now().to_string()}}});
    red.releases().patch(&release.name_any(), &PatchParams::default(), &Patch::Merge(retry)).await.unwrap();
    red.wait_ready("settings").await;
    assert_eq!(recorded(&test, "red").await, ["settings"]);
}

#[tokio::test]
async fn a_sync_writes_only_what_the_tenancy_allows() {
    let world = Box::pin(SyncWorld::new("tenancy-sync")).await;
    let url = world.git.as_ref().unwrap().url("clusters");
    let prefix = url.trim_end_matches("/clusters").to_owned();
    let tenancy = |prefix: &str| {
        json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonTenancy", "metadata": {"name": "fleet"},
            "spec": {"namespaces": {"names": ["default"]}, "sources": {"urlPrefixes": [prefix]}},
        })
    };
    world.apply(&tenancy(&prefix)).await;
    let _manager = world.start_manager();
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: tenancy-sync}\nrules: []\n";
    let bad = [("clusters/a.yaml", map("a", "one")), ("clusters/role.yaml", role.to_owned())];
    let first = world.push(&bad).await;
    world.apply_sync(&json!({})).await;
    let status = world.wait("Ready", "NotAllowed", Some(&first)).await;
    for text in ["AddonTenancy fleet", "ClusterRole tenancy-sync", "spec.kinds.clusterScoped"] {
        assert!(ready_message(&status).contains(text), "{}", ready_message(&status));
    }
    assert_eq!(world.value("a").await, None, "nothing of the commit is applied");
    let second = world.push(&[("clusters/a.yaml", map("a", "two"))]).await;
    world.wait("Ready", "Applied", Some(&second)).await;
    // The source is not allowed any more: what was applied is kept.
    world.apply(&tenancy("https://git.example")).await;
    // Before the push: the manager would apply the commit as long as it has only seen the earlier rules.
    world.apply_sync(&json!({"interval": "10s"})).await;
    world.wait("Ready", "NotAllowed", None).await;
    world.push(&[("clusters/a.yaml", map("a", "three"))]).await;
    world.apply_sync(&json!({"interval": "1m"})).await;
    let status = world.wait("Ready", "NotAllowed", None).await;
    assert!(ready_message(&status).contains("spec.sources.urlPrefixes"), "{}", ready_message(&status));
    assert_eq!(world.value("a").await.as_deref(), Some("two"));
    delete_tenancy(world.cluster.client.clone(), "fleet").await;
    let last = world.push(&bad).await;
    world.wait("Ready", "Applied", Some(&last)).await;
    let roles: Api<ClusterRole> = Api::all(world.cluster.client.clone());
    assert!(roles.get_opt("tenancy-sync").await.unwrap().is_some());
}
