//! A tenant with a namespace of its own on the management cluster of a test.

use std::time::Duration;

use chandler_api::addons::HelmReleaseProxy;
use chandler_sandbox::{apply, provider::cluster_resource};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{self_hosted::SelfHosted, wait::eventually_within, world::condition};

/// Conditions of attackers are written soon, also on a busy machine.
const REPORTED_WITHIN: Duration = Duration::from_mins(1);

/// A tenant who may write Clusters, kubeconfigs and placements in one namespace.
pub struct Tenant {
    client: Client,
    namespace: String,
    repository: String,
}

impl Tenant {
    /// Creates the namespace, with the certificate authority of the chart repository.
    pub async fn new(test: &SelfHosted, namespace: &str) -> Self {
        let (client, repository) = (test.management.client.clone(), test.repository.url().to_owned());
        let tenant = Self { client, namespace: namespace.to_owned(), repository };
        tenant.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        tenant.write_secret("ca", "ca.crt", test.repository.ca_pem()).await;
        tenant
    }

    async fn apply(&self, object: Value) {
        apply::apply(&self.client, &object).await.unwrap();
    }

    async fn write_secret(&self, name: &str, key: &str, value: &str) {
        let metadata = json!({"name": name, "namespace": self.namespace});
        self.apply(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {key: value}}),
        )
        .await;
    }

    /// Creates a Cluster whose control plane is initialized.
    pub async fn create_cluster(&self, name: &str, kubeconfig: &str) {
        self.write_secret(&format!("{name}-kubeconfig"), "value", kubeconfig).await;
        let metadata = json!({"name": name, "namespace": self.namespace, "labels": {"cluster": name}});
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {}, "metadata": metadata,
        }))
        .await;
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &cluster_resource());
        let initialized = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(initialized)).await.unwrap();
    }

    /// Applies a HelmChartProxy for all clusters of the namespace; `fields` replaces fields of its spec.
    pub async fn apply_placement(&self, name: &str, fields: &Value) {
        let mut spec = json!({
            "clusterSelector": {}, "repoURL": self.repository, "chartName": "hello", "version": "1.0.0",
            "releaseName": name, "namespace": "default", "tlsConfig": {"caSecret": {"name": "ca"}},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.apply(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        }))
        .await;
    }

    /// Waits until a condition of the release of a placement on a cluster is not True, with a message that contains `text`.
    /// Returns the message.
    pub async fn wait_refused(&self, placement: &str, cluster: &str, type_: &str, text: &str) -> String {
        let what = format!("{type_} of {placement} on {cluster}: {text}");
        eventually_within(REPORTED_WITHIN, &what, || async {
            let release = self.release(placement, cluster).await?;
            let found = condition(release.status.as_ref()?, type_)?.clone();
            (found.status != "True" && found.message.contains(text)).then_some(found.message)
        })
        .await
    }

    /// Waits until the release of a placement on a cluster is ready.
    pub async fn wait_ready(&self, placement: &str, cluster: &str) {
        eventually_within(REPORTED_WITHIN, &format!("{placement} on {cluster} is ready"), || async {
            let release = self.release(placement, cluster).await?;
            (condition(release.status.as_ref()?, "Ready")?.status == "True").then_some(())
        })
        .await;
    }

    async fn release(&self, placement: &str, cluster: &str) -> Option<HelmReleaseProxy> {
        let releases: Api<HelmReleaseProxy> = Api::namespaced(self.client.clone(), &self.namespace);
        let owned = format!("helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name={placement}");
        let all = releases.list(&ListParams::default().labels(&owned)).await.unwrap().items;
        all.into_iter().find(|release| release.spec.cluster_ref.name.as_deref() == Some(cluster))
    }

    /// Returns the statuses of all releases, as JSON.
    pub async fn statuses(&self) -> String {
        let releases: Api<HelmReleaseProxy> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        serde_json::to_string(&all.iter().map(|release| &release.status).collect::<Vec<_>>()).unwrap()
    }
}
