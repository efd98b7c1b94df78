//! Tenants of one management cluster, and what the platform publishes for them.

use chandler_api::extensions::Extension;
pub use chandler_e2e::tenant::Tenant;
use chandler_e2e::{self_hosted::SelfHosted, wait::eventually};
use chandler_sandbox::{chart, repository::ChartRepository, testing};
use kube::Api;
use serde_json::{Value, json};

/// The namespace whose Extensions and catalogs are for all tenants.
pub const PLATFORM: &str = "chandler-system";

pub async fn apply(test: &SelfHosted, kind: &str, namespace: &str, name: &str, spec: Value) {
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    }))
    .await;
}

/// Waits until the Ready condition of an Extension is False. Returns its reason and message.
pub async fn wait_not_ready(test: &SelfHosted, namespace: &str, extension: &str) -> (String, String) {
    let extensions: Api<Extension> = Api::namespaced(test.management.client.clone(), namespace);
    eventually(&format!("Extension {namespace}/{extension} is not ready"), || async {
        let status = extensions.get(extension).await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False").then_some((ready.reason, ready.message))
    })
    .await
}

/// Publishes a chart with nothing but a ConfigMap, which needs no controllers.
pub async fn publish_settings(repository: &ChartRepository, name: &str, versions: &[&str]) {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let files = [
        ("Chart.yaml", metadata.as_str()),
        ("values.yaml", "team: none\n"),
        (
            "templates/settings.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {team: {{ .Values.team | quote }}}\n",
        ),
    ];
    let folder = testing::fresh_dir(&format!("security-chart-{name}")).await.unwrap().join(name);
    let folder = chart::write(&folder, &files).unwrap();
    for version in versions {
        repository.publish_version(&folder, version).unwrap();
    }
}

/// Applies a catalog of the platform; `fields` are other fields of its spec.
pub async fn apply_catalog(test: &SelfHosted, name: &str, repository: &ChartRepository, fields: Value) {
    let authority = format!("{name}-ca");
    test.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": authority, "namespace": PLATFORM},
        "stringData": {"ca.crt": repository.ca_pem()},
    }))
    .await;
    let mut spec =
        json!({"url": repository.url(), "certificateAuthority": {"name": authority, "key": "ca.crt"}});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    apply(test, "ExtensionCatalog", PLATFORM, name, spec).await;
}

/// Returns the source of a chart of a platform catalog, as a tenant refers to it.
pub fn platform_source(catalog: &str, chart: &str, version: Option<&str>) -> Value {
    let mut source = json!({"catalog": {"name": catalog, "scope": "Platform"}, "chart": chart});
    if let Some(version) = version {
        source["version"] = json!(version);
    }
    source
}
