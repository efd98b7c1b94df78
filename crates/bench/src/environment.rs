//! The environment of a benchmark: a management cluster, workload clusters and a chart repository.
//!
//! Cluster API does not run in it, so that only the controller is measured. The Clusters are written by hand, and their
//! control planes are only API servers, which share one etcd: idle etcds would take much of the machine's CPU time.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    apply::apply,
    assets::{Assets, Binary},
    certificates::Authority,
    clusters,
    crds::wait_served,
    plane::{Plane, PlaneOptions, SharedEtcd},
    progress::ProgressReporter,
    provider::cluster_resource,
    repository::ChartRepository,
};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    chart,
    cluster_registration::ClusterRegistration,
    traffic::{Traffic, USER_AGENT},
};

/// The namespace of all objects on the management cluster.
pub const NAMESPACE: &str = "default";
/// The namespace of the add-ons on the workload clusters.
pub const TARGET_NAMESPACE: &str = "fleet";
/// The versions of the chart.
pub const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];

pub const GROUP: &str = "addons.cluster.x-k8s.io";
/// The Secret with the certificate authority of the chart repository and of Git servers, and its key.
pub const CA_SECRET: &str = "charts-ca";
pub const CA_KEY: &str = "ca.crt";
/// The number of control planes that start in parallel. More of them would not be faster.
const PARALLEL_STARTS: usize = 2;

/// The programs that an environment needs. The Cluster API manager does not run; only its CRDs are used.
pub const BINARIES: [Binary; 3] = [Binary::Etcd, Binary::KubeApiserver, Binary::CapiManager];

/// The desired version and values of every add-on.
#[derive(Clone, Copy, Debug)]
pub struct DesiredAddon<'a> {
    pub version: &'a str,
    pub greeting: &'a str,
}

pub struct Environment {
    dir: PathBuf,
    management: Plane,
    workloads: Vec<Plane>,
    /// The etcd of all workload clusters.
    etcd: SharedEtcd,
    authority: Authority,
    repository: ChartRepository,
    client: Client,
}

impl Environment {
    /// Starts the environment, with a Cluster for each workload cluster.
    pub async fn start(
        assets: &Assets,
        dir: &Path,
        clusters: u32,
        crds: &[Value],
        progress: &dyn ProgressReporter,
    ) -> Result<Self> {
        let environment = Self::start_unregistered(assets, dir, clusters, crds, progress).await?;
        environment.register_clusters().await?;
        Ok(environment)
    }

    /// Like [`Self::start`], without the Clusters.
    pub async fn start_unregistered(
        assets: &Assets,
        dir: &Path,
        clusters: u32,
        crds: &[Value],
        progress: &dyn ProgressReporter,
    ) -> Result<Self> {
        let management =
            Plane::start(assets, PlaneOptions::bare("management", &dir.join("management"))).await?;
        let etcd = SharedEtcd::start(assets, &dir.join("etcd")).await?;
        let step = format!("starting {clusters} workload clusters");
        progress.begin(&step, None);
        let starting = (0..clusters).map(|index| {
            let name = clusters::name(index);
            Plane::start(assets, PlaneOptions::sharing(&etcd, &name, &dir.join(&name)))
        });
        let workloads = stream::iter(starting).buffered(PARALLEL_STARTS).try_collect().await?;
        progress.finish(&step);
        let authority = Authority::open(&dir.join("pki"), "bench")?;
        let repository = ChartRepository::start(&authority, &dir.join("charts")).await?;
        let chart = chart::write(&dir.join("chart"))?;
        for version in VERSIONS {
            repository.publish_version(&chart, version)?;
        }
        let client = management.client_as(USER_AGENT).await?;
        let environment =
            Self { dir: dir.to_owned(), management, workloads, etcd, authority, repository, client };
        environment.install_crds(assets, crds).await?;
        Ok(environment)
    }

    pub async fn kill(self) {
        for plane in self.workloads.iter().chain([&self.management]) {
            plane.kill().await;
        }
        self.etcd.kill().await;
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn management(&self) -> &Plane {
        &self.management
    }

    pub fn workloads(&self) -> &[Plane] {
        &self.workloads
    }

    /// Returns the authority of the certificates of servers, whose certificate is in the Secret [`CA_SECRET`].
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn repository(&self) -> &ChartRepository {
        &self.repository
    }

    pub fn traffic(&self) -> Traffic {
        Traffic::of(&self.management, &self.workloads)
    }

    /// Applies the `HelmChartProxy` objects of add-ons.
    pub async fn apply_addons(&self, addons: &[String], desired: &DesiredAddon<'_>) -> Result<()> {
        let objects: Vec<_> = addons.iter().map(|addon| self.helm_chart_proxy(addon, desired)).collect();
        try_join_all(objects.iter().map(|object| apply(&self.client, object))).await?;
        Ok(())
    }

    pub async fn delete_addon(&self, addon: &str) -> Result<()> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), NAMESPACE, &proxy_resource("HelmChartProxy"));
        api.delete(addon, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates objects with the names that the add-ons use but without the labels of Helm, so that their installation
    /// fails.
    pub async fn create_conflicts(&self, addons: &[String]) -> Result<()> {
        for plane in &self.workloads {
            let client = plane.client_as(USER_AGENT).await?;
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TARGET_NAMESPACE}});
            apply(&client, &namespace).await?;
            for addon in addons {
                let metadata = json!({"name": addon, "namespace": TARGET_NAMESPACE});
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
                apply(&client, &object).await?;
            }
        }
        Ok(())
    }

    fn helm_chart_proxy(&self, name: &str, desired: &DesiredAddon<'_>) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "clusterSelector": {"matchLabels": {"fleet": "bench"}},
                "repoURL": self.repository.url(), "chartName": chart::NAME, "version": desired.version,
                "releaseName": name, "namespace": TARGET_NAMESPACE,
                "valuesTemplate": format!("greeting: {}\ncluster: {{{{ .Cluster.metadata.name }}}}\n", desired.greeting),
                "tlsConfig": {"caSecret": {"name": CA_SECRET, "namespace": NAMESPACE}},
            },
        })
    }

    async fn install_crds(&self, assets: &Assets, crds: &[Value]) -> Result<()> {
        let path = assets.capi_config().join("crd/bases/cluster.x-k8s.io_clusters.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let cluster: Value =
            serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        for crd in crds.iter().chain([&cluster]) {
            apply(&self.client, crd).await?;
        }
        let proxies = ["HelmChartProxy", "HelmReleaseProxy"].map(proxy_resource);
        for resource in proxies.iter().chain([&cluster_resource()]) {
            wait_served(&self.client, resource).await?;
        }
        Ok(())
    }

    async fn register_clusters(&self) -> Result<()> {
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CA_SECRET, "namespace": NAMESPACE},
            "stringData": {CA_KEY: self.repository.ca_pem()},
        });
        apply(&self.client, &ca).await?;
        try_join_all(self.workloads.iter().map(|plane| self.register(plane))).await?;
        Ok(())
    }

    async fn register(&self, plane: &Plane) -> Result<()> {
        let cluster =
            ClusterRegistration { name: plane.name(), kubeconfig: plane.kubeconfig(), port: plane.port() };
        cluster.apply(&self.client).await
    }
}

/// Returns a kind of the group of the proxies.
pub fn proxy_resource(kind: &str) -> ApiResource {
    let plural = format!("{}ies", kind.to_lowercase().trim_end_matches('y'));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1alpha1", kind), &plural)
}
