//! A tenant with a namespace of its own on the management cluster of a test.

use chandler_api::{
    addons::HelmReleaseProxy,
    extensions::{AddonRelease, ExtensionInstance},
};
use chandler_sandbox::{plane::Plane, provider::cluster_resource};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde_json::{Value, json};

use crate::{extension_world::is_ready, self_hosted::SelfHosted, wait::eventually, world::condition};

/// A tenant who may write Clusters, kubeconfigs and placements in one namespace.
pub struct Tenant<'t> {
    pub test: &'t SelfHosted,
    pub namespace: &'static str,
}

impl<'t> Tenant<'t> {
    /// Creates the namespace, with one Cluster, `main`.
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
        let tenant = Self::without_clusters(test, namespace).await;
        let spec = json!({"topology": {"version": "v1.34.4"}});
        tenant.write_cluster("main", plane.kubeconfig(), labels, &spec).await;
        tenant
    }

    /// Creates the namespace, with the certificate authority of the chart repository.
    pub async fn without_clusters(test: &'t SelfHosted, namespace: &'static str) -> Self {
        let tenant = Self { test, namespace };
        test.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        tenant.apply_secret("ca", json!({"ca.crt": test.repository.ca_pem()})).await;
        tenant
    }

    /// Creates a Cluster whose control plane is initialized. Its label `cluster` is its name.
    pub async fn create_cluster(&self, name: &str, kubeconfig: &str) {
        self.write_cluster(name, kubeconfig, &json!({"cluster": name}), &json!({})).await;
    }

    async fn write_cluster(&self, name: &str, kubeconfig: &str, labels: &Value, spec: &Value) {
        self.apply_secret(&format!("{name}-kubeconfig"), json!({"value": kubeconfig})).await;
        let metadata = json!({"name": name, "namespace": self.namespace, "labels": labels});
        self.test
            .apply(&json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata, "spec": spec,
            }))
            .await;
        let client = self.test.management.client.clone();
        let clusters: Api<DynamicObject> = Api::namespaced_with(client, self.namespace, &cluster_resource());
        let initialized = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(initialized)).await.unwrap();
    }

    pub async fn apply_secret(&self, name: &str, data: Value) {
        let metadata = json!({"name": name, "namespace": self.namespace});
        self.test
            .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}))
            .await;
    }

    /// Applies an object of a kind of Chandler.
    pub async fn apply(&self, kind: &str, name: &str, spec: Value) {
        self.test
            .apply(&json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": kind,
                "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
            }))
            .await;
    }

    /// Applies a HelmChartProxy for all clusters of the namespace; `fields` replaces fields of its spec.
    pub async fn apply_placement(&self, name: &str, fields: &Value) {
        let mut spec = json!({
            "clusterSelector": {}, "repoURL": self.test.repository.url(), "chartName": "hello", "version": "1.0.0",
            "releaseName": name, "namespace": "default", "tlsConfig": {"caSecret": {"name": "ca"}},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.test
            .apply(&json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
            }))
            .await;
    }

    /// Applies an ExtensionInstance for the Cluster `main`. Its release is in the namespace of the tenant's name, so that
    /// tenants can share a workload cluster; `fields` are other fields of its spec.
    pub async fn apply_instance(&self, name: &str, fields: Value) {
        let mut spec = json!({
            "clusters": {"name": "main"}, "release": {"name": name, "namespace": self.namespace},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.apply("ExtensionInstance", name, spec).await;
    }

    /// Returns the objects of a kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.test.management.client.clone(), self.namespace)
    }

    pub fn secrets(&self) -> Api<Secret> {
        self.api()
    }

    pub fn instances(&self) -> Api<ExtensionInstance> {
        self.api()
    }

    pub fn releases(&self) -> Api<AddonRelease> {
        self.api()
    }

    /// Returns the release of a placement on a cluster.
    pub async fn release(&self, placement: &str, cluster: &str) -> Option<HelmReleaseProxy> {
        let owned = format!("helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name={placement}");
        let owned = ListParams::default().labels(&owned);
        let all = self.api::<HelmReleaseProxy>().list(&owned).await.unwrap().items;
        all.into_iter().find(|release| release.spec.cluster_ref.name.as_deref() == Some(cluster))
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

    /// Returns the release of an Extension of the platform.
    pub async fn platform_release(&self, extension: &str) -> Option<AddonRelease> {
        let all = self.releases().list(&ListParams::default()).await.unwrap().items;
        let name = format!("platform/{extension}");
        all.into_iter().find(|release| release.spec.extension.as_ref() == Some(&name))
    }

    /// Returns the clusters and the statuses of all releases of placements, as JSON.
    pub async fn statuses(&self) -> String {
        let all = self.api::<HelmReleaseProxy>().list(&ListParams::default()).await.unwrap().items;
        let shown: Vec<_> = all.iter().map(|one| (&one.spec.cluster_ref.name, &one.status)).collect();
        serde_json::to_string(&shown).unwrap()
    }

    /// Waits until a condition of the release of a placement on a cluster is not True, with a message that contains `text`.
    /// Returns the message.
    pub async fn wait_release_refused(
        &self,
        placement: &str,
        cluster: &str,
        type_: &str,
        text: &str,
    ) -> String {
        let what = format!("{type_} of {placement} on {cluster}: {text}");
        eventually(&what, || async {
            let release = self.release(placement, cluster).await?;
            let found = condition(release.status.as_ref()?, type_)?.clone();
            (found.status != "True" && found.message.contains(text)).then_some(found.message)
        })
        .await
    }

    /// Waits until the release of a placement on a cluster is Ready.
    pub async fn wait_release_ready(&self, placement: &str, cluster: &str) {
        eventually(&format!("{placement} on {cluster} is ready"), || async {
            let release = self.release(placement, cluster).await?;
            (condition(release.status.as_ref()?, "Ready")?.status == "True").then_some(())
        })
        .await;
    }

    /// Waits until the release of an instance is Ready.
    pub async fn wait_ready(&self, instance: &str) -> AddonRelease {
        eventually(&format!("{instance} is ready in {}", self.namespace), || async {
            self.release_of(instance).await.filter(is_ready)
        })
        .await
    }

    /// Waits until the release of an Extension of the platform is Ready.
    pub async fn wait_platform_ready(&self, extension: &str) -> AddonRelease {
        eventually(&format!("{extension} is ready in {}", self.namespace), || async {
            self.platform_release(extension).await.filter(is_ready)
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
