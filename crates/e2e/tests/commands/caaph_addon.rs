//! An add-on that was installed by the Cluster API Add-on Provider for Helm (CAAPH).

use std::sync::Arc;

use chandler_api::addons::HelmChartProxy;
use chandler_e2e::{shell::Shell, wait::until};
use chandler_sandbox::{apply, assets::Binary, plane::Plane, repository::ChartRepository, testing};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{Api, Client, Resource as _, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::documents::root;

/// A release that was installed by client-side apply, with its HelmChartProxy and HelmReleaseProxy.
pub struct CaaphAddon {
    alpha: Arc<Plane>,
    pub repository: ChartRepository,
}

impl CaaphAddon {
    pub async fn new(shell: &Shell, client: &Client) -> Self {
        let sandbox = testing::sandbox().await.unwrap();
        let alpha = sandbox.cluster("default", "alpha", 1, &[("fleet", "old")]).await.unwrap();
        let repository =
            ChartRepository::start(sandbox.authority(), &shell.home.join("charts")).await.unwrap();
        let chart = root().join("examples/charts/hello");
        repository.publish(&chart).unwrap();
        let helm = testing::assets().await.unwrap().path(Binary::Helm);
        let install = format!(
            "{} install hello {} --server-side=false --namespace default --kubeconfig {}",
            helm.display(),
            chart.display(),
            alpha.kubeconfig_path().display()
        );
        shell.expect(&install, &[]).await;
        let addon = Self { alpha, repository };
        addon.create_objects(client).await;
        addon
    }

    async fn create_objects(&self, client: &Client) {
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "default"},
            "stringData": {"ca.crt": self.repository.ca_pem()},
        });
        apply_with_retry(client, &ca).await;
        let chart = json!({
            "repoURL": self.repository.url(), "chartName": "hello", "version": "1.0.0", "releaseName": "hello",
            "namespace": "default", "tlsConfig": {"caSecret": {"name": "ca", "namespace": "default"}},
            "options": {"timeout": "10m0s", "install": {"createNamespace": true}, "upgrade": {"maxHistory": 10}},
        });
        let mut placement_spec = chart.clone();
        placement_spec["clusterSelector"] = json!({"matchLabels": {"fleet": "old"}});
        let object = |kind: &str, name: &str, fields: Value, spec: Value| {
            let mut metadata = json!({"name": name, "namespace": "default"});
            metadata.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
        };
        let finalizers = json!({"finalizers": ["helmchartproxy.addons.cluster.x-k8s.io"]});
        apply_with_retry(client, &object("HelmChartProxy", "kept", finalizers, placement_spec)).await;
        let placements: Api<HelmChartProxy> = Api::namespaced(client.clone(), "default");
        let owner = placements.get("kept").await.unwrap().controller_owner_ref(&()).unwrap();
        let mut release_spec = chart;
        release_spec["clusterRef"] = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "alpha", "namespace": "default",
        });
        let metadata = json!({
            "finalizers": ["helmreleaseproxy.addons.cluster.x-k8s.io"], "ownerReferences": [owner],
            "labels": {
                "cluster.x-k8s.io/cluster-name": "alpha",
                "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "kept",
            },
        });
        apply_with_retry(client, &object("HelmReleaseProxy", "kept-alpha-x7k2p", metadata, release_spec))
            .await;
    }

    /// Returns the release Secrets of Helm.
    pub async fn release_secrets(&self) -> Vec<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.alpha.client().await.unwrap(), "default");
        secrets.list(&ListParams::default().labels("owner=helm")).await.unwrap().items
    }

    pub async fn deployment(&self) -> Deployment {
        Api::namespaced(self.alpha.client().await.unwrap(), "default").get("hello").await.unwrap()
    }

    /// Waits until Chandler has adopted the release.
    pub async fn wait_adopted(&self) {
        until("the release is adopted", async || {
            let secrets = self.release_secrets().await;
            assert_eq!(secrets.len(), 1, "no revision is added");
            secrets[0].labels().contains_key("chandler.dev/input")
        })
        .await;
    }
}

/// Applies an object, retrying until its kind is served.
async fn apply_with_retry(client: &Client, object: &Value) {
    until("it is applied", async || apply::apply(client, object).await.is_ok()).await;
}
