//! A management cluster that is its own workload cluster, without Cluster API: tests write what Cluster API would write.

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_sandbox::{
    apply, crds::wait_served, provider::sandbox_control_plane::SandboxControlPlane,
    repository::ChartRepository, testing,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, CustomResourceExt as _, ResourceExt as _,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};

use crate::{
    management_cluster::ManagementCluster,
    wait::eventually,
    world::{condition, hello},
};

/// The namespace of all objects, on the management cluster and on the workload clusters.
pub const NAMESPACE: &str = "default";

/// A management cluster whose Clusters are itself, with a chart repository.
pub struct SelfHosted {
    pub management: ManagementCluster,
    pub repository: ChartRepository,
}

impl SelfHosted {
    pub async fn new(name: &str) -> Self {
        let management = ManagementCluster::new(name).await;
        let dir = testing::fresh_dir(&format!("{name}-charts")).await.unwrap();
        let repository = ChartRepository::start_self_signed(&dir).await.unwrap();
        repository.publish(&hello()).unwrap();
        let cluster = Self { management, repository };
        cluster.apply(&secret("ca", "ca.crt", cluster.repository.ca_pem())).await;
        cluster
    }

    /// Returns the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::from_yaml(self.management.plane.kubeconfig()).unwrap()
    }

    pub async fn apply(&self, object: &Value) {
        apply::apply(&self.management.client, object).await.unwrap();
    }

    /// Creates a Cluster whose control plane is initialized. Its label `cluster` is its name.
    pub async fn create_cluster(&self, name: &str, kubeconfig: &Kubeconfig, spec: &Value) {
        self.write_kubeconfig(name, kubeconfig).await;
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"cluster": name}},
        });
        self.apply(&cluster).await;
        self.management.set_control_plane_initialized(name).await;
    }

    /// Makes the API server serve control planes.
    pub async fn serve_control_planes(&self) {
        self.apply(&serde_json::to_value(SandboxControlPlane::crd()).unwrap()).await;
        let resource = ApiResource::erase::<SandboxControlPlane>(&());
        wait_served(&self.management.client, &resource).await.unwrap();
    }

    pub fn control_planes(&self) -> Api<SandboxControlPlane> {
        Api::namespaced(self.management.client.clone(), NAMESPACE)
    }

    /// Creates the control plane of a Cluster. It reports no version yet.
    pub async fn create_control_plane(&self, cluster: &str, version: &str) {
        let resource = ApiResource::erase::<SandboxControlPlane>(&());
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        self.apply(&json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "spec": {"version": version},
            "metadata": {"name": cluster, "namespace": NAMESPACE, "labels": labels},
        }))
        .await;
    }

    /// Lets a control plane report the version that runs.
    pub async fn report_version(&self, cluster: &str, version: Option<&str>) {
        let patch = Patch::Merge(json!({"status": {"version": version}}));
        self.control_planes().patch_status(cluster, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates a Cluster without a topology whose control plane has the same name.
    pub async fn create_cluster_with_control_plane(&self, name: &str) {
        let resource = ApiResource::erase::<SandboxControlPlane>(&());
        let reference = json!({"apiGroup": resource.group, "kind": resource.kind, "name": name});
        self.create_cluster(name, &self.kubeconfig(), &json!({"controlPlaneRef": reference})).await;
    }

    /// Writes the kubeconfig Secret of a Cluster.
    pub async fn write_kubeconfig(&self, cluster: &str, kubeconfig: &Kubeconfig) {
        let text = serde_saphyr::to_string(kubeconfig).unwrap();
        self.apply(&secret(&format!("{cluster}-kubeconfig"), "value", &text)).await;
    }

    /// Applies a HelmChartProxy for one cluster, whose release has the same name; `fields` replaces fields of its spec.
    pub async fn apply_placement(&self, name: &str, cluster: &str, chart: &str, fields: &Value) {
        let mut spec = json!({
            "clusterSelector": {"matchLabels": {"cluster": cluster}}, "repoURL": self.repository.url(),
            "chartName": chart, "version": "1.0.0", "releaseName": name, "namespace": NAMESPACE,
            "tlsConfig": {"caSecret": {"name": "ca"}},
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let placement = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.apply(&placement).await;
    }

    pub async fn delete_placement(&self, name: &str) {
        let placements: Api<HelmChartProxy> = Api::namespaced(self.management.client.clone(), NAMESPACE);
        placements.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub fn releases(&self) -> Api<HelmReleaseProxy> {
        Api::namespaced(self.management.client.clone(), NAMESPACE)
    }

    /// Returns the release object of a placement.
    pub async fn release(&self, placement: &str) -> Option<HelmReleaseProxy> {
        let owned = format!("helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name={placement}");
        self.releases().list(&ListParams::default().labels(&owned)).await.unwrap().items.pop()
    }

    /// Waits until a condition of a placement's release has this status and a message that contains `text`. Returns the
    /// message.
    pub async fn wait_condition(&self, placement: &str, type_: &str, status: &str, text: &str) -> String {
        eventually(&format!("{type_} of {placement} is {status}: {text}"), || async {
            let release = self.release(placement).await?;
            let found = condition(release.status.as_ref()?, type_)?.clone();
            (found.status == status && found.message.contains(text)).then_some(found.message)
        })
        .await
    }

    /// Waits until the release of a placement is Ready at this revision, with the current spec.
    pub async fn wait_ready(&self, placement: &str, revision: u32) {
        eventually(&format!("{placement} is Ready at revision {revision}"), || async {
            let release = self.release(placement).await?;
            let status = release.status?;
            let is_current = status.observed_generation == release.metadata.generation;
            let is_ready = condition(&status, "Ready")?.status == "True";
            (is_current && is_ready && status.revision == Some(revision)).then_some(())
        })
        .await;
    }

    /// Returns the revisions of a release and their statuses, as Helm has stored them.
    pub async fn revisions(&self, release: &str) -> Vec<(u32, String)> {
        let secrets: Api<Secret> = Api::namespaced(self.management.client.clone(), NAMESPACE);
        let stored = ListParams::default().labels(&format!("owner=helm,name={release}"));
        let stored = secrets.list(&stored).await.unwrap().items;
        let revision = |secret: &Secret| {
            let labels = secret.labels();
            (labels["version"].parse().unwrap(), labels["status"].clone())
        };
        let mut revisions: Vec<_> = stored.iter().map(revision).collect();
        revisions.sort();
        revisions
    }
}

fn secret(name: &str, key: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
        "stringData": {key: value},
    })
}
