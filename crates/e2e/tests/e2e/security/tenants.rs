//! Tenants of one management cluster: each has a namespace with one Cluster, and a manager watches all namespaces.

use chandler_api::extensions::{AddonRelease, Extension, ExtensionInstance};
use chandler_e2e::{extension_world::is_ready, self_hosted::SelfHosted, wait::eventually};
use chandler_sandbox::{
    chart, plane::Plane, provider::cluster_resource, repository::ChartRepository, testing,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The namespace whose Extensions and catalogs are for all tenants.
pub const PLATFORM: &str = "chandler-system";

/// The namespace of a tenant with one Cluster, `main`.
pub struct Tenant<'t> {
    pub test: &'t SelfHosted,
    pub namespace: &'static str,
}

impl<'t> Tenant<'t> {
    pub async fn new(test: &'t SelfHosted, namespace: &'static str, plane: &Plane) -> Self {
        Self::with_labels(test, namespace, plane, &json!({})).await
    }

    /// Like [`Tenant::new`], with labels of the Cluster.
    pub async fn with_labels(
        test: &'t SelfHosted,
        namespace: &'static str,
        plane: &Plane,
        labels: &Value,
    ) -> Self {
        let metadata = |name: &str| json!({"name": name, "namespace": namespace, "labels": labels});
        test.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        test.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata("main-kubeconfig"),
            "stringData": {"value": plane.kubeconfig()},
        }))
        .await;
        test.apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata("main"),
            "spec": {"topology": {"version": "v1.34.4"}},
        }))
        .await;
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(test.management.client.clone(), namespace, &cluster_resource());
        let initialized =
            Patch::Merge(json!({"status": {"initialization": {"controlPlaneInitialized": true}}}));
        clusters.patch_status("main", &PatchParams::default(), &initialized).await.unwrap();
        Self { test, namespace }
    }

    pub async fn apply(&self, kind: &str, name: &str, spec: Value) {
        apply(self.test, kind, self.namespace, name, spec).await;
    }

    /// Applies an ExtensionInstance for the Cluster. Its release is in the namespace of the tenant's name, so that tenants can
    /// share a workload cluster; `fields` are other fields of its spec.
    pub async fn apply_instance(&self, name: &str, fields: Value) {
        let mut spec = json!({
            "clusters": {"name": "main"}, "release": {"name": name, "namespace": self.namespace},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.apply("ExtensionInstance", name, spec).await;
    }

    pub async fn apply_secret(&self, name: &str, data: Value) {
        let metadata = json!({"name": name, "namespace": self.namespace});
        self.test
            .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}))
            .await;
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.test.management.client.clone(), self.namespace)
    }

    pub fn instances(&self) -> Api<ExtensionInstance> {
        Api::namespaced(self.test.management.client.clone(), self.namespace)
    }

    pub fn releases(&self) -> Api<AddonRelease> {
        Api::namespaced(self.test.management.client.clone(), self.namespace)
    }

    /// Returns the instance of an Extension.
    pub async fn instance_of(&self, extension: &str) -> Option<ExtensionInstance> {
        let all = self.instances().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|one| one.spec.extension.as_ref().is_some_and(|named| named.name == extension))
    }

    /// Returns the release object of an instance.
    pub async fn release_of(&self, instance: &str) -> Option<AddonRelease> {
        let all = self.releases().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|release| release.owner_references().iter().any(|owner| owner.name == instance))
    }

    /// Waits until the release of an instance is Ready.
    pub async fn wait_ready(&self, instance: &str) -> AddonRelease {
        eventually(&format!("{instance} is ready in {}", self.namespace), || async {
            self.release_of(instance).await.filter(is_ready)
        })
        .await
    }

    /// Waits until an instance is gone, which is after its releases were uninstalled.
    pub async fn wait_gone(&self, instance: &str) {
        eventually(&format!("{instance} is gone from {}", self.namespace), || async {
            self.instances().get_opt(instance).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Waits until the release of an Extension of the platform is Ready.
    pub async fn wait_platform_ready(&self, extension: &str) -> AddonRelease {
        eventually(&format!("{extension} is ready in {}", self.namespace), || async {
            self.platform_release(extension).await.filter(is_ready)
        })
        .await
    }

    pub async fn platform_release(&self, extension: &str) -> Option<AddonRelease> {
        let all = self.releases().list(&ListParams::default()).await.unwrap().items;
        let name = format!("platform/{extension}");
        all.into_iter().find(|release| release.spec.extension.as_ref() == Some(&name))
    }

    /// Waits until a condition of an instance, or of its release, is False with a message that contains `text`. Returns the
    /// message.
    pub async fn wait_refused(&self, instance: &str, text: &str) -> String {
        eventually(&format!("{instance} is refused: {text}"), || async {
            let object = self.instances().get_opt(instance).await.unwrap()?;
            let own = object.status.map(|status| status.placement.conditions).unwrap_or_default();
            let release = self.release_of(instance).await.and_then(|release| release.status);
            let all = own.into_iter().chain(release.map(|status| status.conditions).unwrap_or_default());
            all.filter(|condition| condition.status == "False")
                .map(|condition| condition.message)
                .find(|message| message.contains(text))
        })
        .await
    }
}

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
