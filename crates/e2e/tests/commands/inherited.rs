//! What the Cluster API add-on provider for Helm leaves on a management cluster and a workload cluster.

use std::sync::Arc;

use chandler_api::addons::HelmChartProxy;
use chandler_e2e::{shell::Shell, wait::until};
use chandler_sandbox::{apply, assets::Binary, plane::Plane, repository::ChartRepository, testing};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{Api, Client, Resource as _, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::documents::root;

/// An add-on as the other provider leaves it: a release of client-side Helm, and the two objects that stand for it.
pub struct Addon {
    alpha: Arc<Plane>,
    pub repository: ChartRepository,
}

impl Addon {
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
        addon.objects(client).await;
        addon
    }

    async fn objects(&self, client: &Client) {
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "default"},
            "stringData": {"ca.crt": self.repository.ca_pem()},
        });
        eventually_applied(client, &ca).await;
        let chart = json!({
            "repoURL": self.repository.url(), "chartName": "hello", "version": "1.0.0", "releaseName": "hello",
            "namespace": "default", "tlsConfig": {"caSecret": {"name": "ca", "namespace": "default"}},
            "options": {"timeout": "10m0s", "install": {"createNamespace": true}, "upgrade": {"maxHistory": 10}},
        });
        let mut placed = chart.clone();
        placed["clusterSelector"] = json!({"matchLabels": {"fleet": "old"}});
        let kind = |kind: &str, name: &str, further: Value, spec: Value| {
            let mut metadata = json!({"name": name, "namespace": "default"});
            metadata.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
            json!({"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
        };
        let finalizers = json!({"finalizers": ["helmchartproxy.addons.cluster.x-k8s.io"]});
        eventually_applied(client, &kind("HelmChartProxy", "kept", finalizers, placed)).await;
        let placements: Api<HelmChartProxy> = Api::namespaced(client.clone(), "default");
        let owner = placements.get("kept").await.unwrap().controller_owner_ref(&()).unwrap();
        let mut released = chart;
        released["clusterRef"] = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "alpha", "namespace": "default",
        });
        let metadata = json!({
            "finalizers": ["helmreleaseproxy.addons.cluster.x-k8s.io"], "ownerReferences": [owner],
            "labels": {
                "cluster.x-k8s.io/cluster-name": "alpha",
                "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "kept",
            },
        });
        eventually_applied(client, &kind("HelmReleaseProxy", "kept-alpha-x7k2p", metadata, released)).await;
    }

    /// Helm's records of the release.
    pub async fn records(&self) -> Vec<Secret> {
        let records: Api<Secret> = Api::namespaced(self.alpha.client().await.unwrap(), "default");
        records.list(&ListParams::default().labels("owner=helm")).await.unwrap().items
    }

    pub async fn deployment(&self) -> Deployment {
        Api::namespaced(self.alpha.client().await.unwrap(), "default").get("hello").await.unwrap()
    }

    /// Waits until Chandler has taken the release over.
    pub async fn adopted(&self) {
        until("the release is adopted", async || {
            let records = self.records().await;
            assert_eq!(records.len(), 1, "no revision is added");
            records[0].labels().contains_key("chandler.dev/input")
        })
        .await;
    }
}

/// Its kind may not be served yet.
async fn eventually_applied(client: &Client, object: &Value) {
    until("it is applied", async || apply::apply(client, object).await.is_ok()).await;
}
