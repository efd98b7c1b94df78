//! A tenant: a namespace of the management cluster, and a workload cluster.

use std::path::Path;

use anyhow::Result;
use chandler_sandbox::{
    apply::apply, plane::Plane, process::Child, provider::cluster_resource, repository::ChartRepository,
};
use futures::future::try_join_all;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    addons::{self, Addon, AddonKind, Round, Sample},
    objects::{self, CLUSTER_LABEL, GROUP_LABEL},
};
use crate::{
    chart,
    controller::exit_error,
    environment::{CA_KEY, CA_SECRET, Environment},
    releases::{ReleaseKind, Releases},
};

/// The Cluster on which the add-ons of a tenant are installed.
pub const MAIN_CLUSTER: &str = "main";

/// A tenant.
pub struct Tenant<'a> {
    pub namespace: &'static str,
    pub plane: &'a Plane,
    pub environment: &'a Environment,
    /// A repository for each round, so that index and chart have to be downloaded.
    rounds: Vec<(Round, ChartRepository)>,
    chart_proxies: Releases,
    instances: Releases,
}

impl<'a> Tenant<'a> {
    /// Creates the namespace with a Cluster, and what so many rounds of installations need.
    pub async fn create(
        environment: &'a Environment,
        namespace: &'static str,
        plane: &'a Plane,
        rounds: u32,
    ) -> Result<Self> {
        let client = environment.client();
        let authority = environment.repository().ca_pem();
        for object in
            [objects::namespace(namespace), objects::secret(namespace, CA_SECRET, CA_KEY, authority)]
        {
            apply(client, &object).await?;
        }
        let cluster = NewCluster { name: MAIN_CLUSTER, group: MAIN_CLUSTER, kubeconfig: plane.kubeconfig() };
        cluster.register(client, namespace, json!({})).await?;
        let folder = environment.dir().join(format!("charts-{namespace}"));
        let chart = chart::write(&folder.join("source"))?;
        let mut prepared = Vec::new();
        for number in 0..rounds {
            prepared.push(prepare_round(environment, namespace, &folder, &chart, number).await?);
        }
        let watch = |kind| Releases::watch(client.clone(), namespace, kind);
        Ok(Self {
            namespace,
            plane,
            environment,
            rounds: prepared,
            chart_proxies: watch(ReleaseKind::HelmReleaseProxy),
            instances: watch(ReleaseKind::AddonRelease),
        })
    }

    pub fn client(&self) -> &'a Client {
        self.environment.client()
    }

    /// Returns the source of a chart that can be installed: that of the first round.
    pub fn source(&self) -> Value {
        let version = self.rounds.first().map(|(round, _)| &round.version);
        let catalog = self.rounds.first().map(|(round, _)| round.catalog());
        json!({"catalog": {"name": catalog}, "chart": chart::NAME, "version": version})
    }

    /// Installs so many new add-ons at the same time, and removes them again, so that each round begins with as many. Returns how
    /// long each of them took until it was Ready. Returns an error if the manager exits.
    pub async fn install(&self, round: usize, count: u32, manager: &Child) -> Result<Vec<Sample>> {
        let Some((round, _)) = self.rounds.get(round) else { return Ok(Vec::new()) };
        let addons = round.addons(self.namespace, count);
        let install = |addon| addons::install(self.client(), addon, self.releases(addon));
        let samples = tokio::select! {
            samples = try_join_all(addons.iter().map(install)) => samples?,
            error = exit_error(manager) => return Err(error),
        };
        let remove = |addon| addons::remove(self.client(), addon, self.releases(addon));
        try_join_all(addons.iter().map(remove)).await?;
        Ok(samples)
    }

    fn releases(&self, addon: &Addon) -> &Releases {
        match addon.kind {
            AddonKind::HelmChartProxy => &self.chart_proxies,
            AddonKind::ExtensionInstance => &self.instances,
        }
    }
}

/// Starts the repository of a round, and creates its catalog.
async fn prepare_round(
    environment: &Environment,
    namespace: &str,
    folder: &Path,
    chart: &Path,
    number: u32,
) -> Result<(Round, ChartRepository)> {
    let repository =
        ChartRepository::start(environment.authority(), &folder.join(format!("round-{number}"))).await?;
    let version = format!("1.0.{number}");
    repository.publish_version(chart, &version)?;
    let round = Round { number, version, repository: repository.url().to_owned() };
    let catalog = objects::catalog(namespace, &round.catalog(), repository.url(), &json!({}));
    apply(environment.client(), &catalog).await?;
    Ok((round, repository))
}

/// A Cluster that Cluster API would create.
#[derive(Clone, Copy, Debug)]
pub struct NewCluster<'a> {
    pub name: &'a str,
    /// The value of the label [`GROUP_LABEL`].
    pub group: &'a str,
    pub kubeconfig: &'a str,
}

impl NewCluster<'_> {
    /// Creates the Cluster, with further labels, and the Secret with its kubeconfig.
    pub async fn register(&self, client: &Client, namespace: &str, labels: Value) -> Result<()> {
        let Self { name, group, kubeconfig } = *self;
        let secret = objects::secret(namespace, &format!("{name}-kubeconfig"), "value", kubeconfig);
        apply(client, &secret).await?;
        let mut cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"topology": {"classRef": {"name": "bench"}, "version": "v1.34.4"}},
        });
        cluster["metadata"]["labels"][CLUSTER_LABEL] = json!(name);
        cluster["metadata"]["labels"][GROUP_LABEL] = json!(group);
        apply(client, &cluster).await?;
        let status = json!({"status": {
            "phase": "Provisioned",
            "initialization": {"controlPlaneInitialized": true, "infrastructureProvisioned": true},
        }});
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &cluster_resource());
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }
}
