//! The steps of the demo: the manager installs a HelmChartProxy, then the extensions of a Cluster with a ClusterClass, then a
//! bundle of a Git repository.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Result, bail};
use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    extensions::{AddonPolicy, AddonRelease, Extension, ExtensionCatalog, ExtensionInstance, Source},
    status::ReleaseStatus,
};
use chandler_sandbox::{
    Sandbox, apply,
    crds::wait_served,
    process::{Child, Spec},
    repository::ChartRepository,
    service_account,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, ListParams},
};
use serde_json::{Value, json};

use super::{
    cluster_class::{self, ClusterProgress},
    next_steps,
    push::{PushProgress, Repository},
};
use crate::programs::ProgramPaths;

const EXAMPLE: &str = include_str!("../../../../examples/hello.yaml");
/// The chart repository in the examples, which is replaced by the repository of the demo.
pub const EXAMPLE_REPOSITORY: &str = "https://charts.example";
const RBAC: &str = include_str!("../../../../deploy/rbac.yaml");
pub const NAMESPACE: &str = "default";
pub const TIMEOUT: Duration = Duration::from_mins(3);
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub struct Walkthrough<'a> {
    sandbox: &'a Sandbox,
    client: Client,
    programs: ProgramPaths,
    manager: Child,
}

impl<'a> Walkthrough<'a> {
    /// Installs the CRDs, starts the manager and applies the example.
    pub async fn start(
        sandbox: &'a Sandbox,
        repository: &ChartRepository,
        dir: &Path,
        programs: ProgramPaths,
    ) -> Result<Self> {
        let client = sandbox.management().client().await?;
        for crd in chandler_api::crds() {
            apply::apply(&client, &serde_json::to_value(&crd)?).await?;
        }
        for resource in [
            ApiResource::erase::<HelmChartProxy>(&()),
            ApiResource::erase::<HelmReleaseProxy>(&()),
            ApiResource::erase::<ExtensionCatalog>(&()),
            ApiResource::erase::<Extension>(&()),
            ApiResource::erase::<ExtensionInstance>(&()),
            ApiResource::erase::<AddonRelease>(&()),
            ApiResource::erase::<AddonPolicy>(&()),
            ApiResource::erase::<Source>(&()),
        ] {
            wait_served(&client, &resource).await?;
        }
        apply::apply_all(&client, RBAC).await?;
        let config =
            service_account::kubeconfig(sandbox.management(), "chandler-system", "chandler-manager").await?;
        let manager = start_manager(&config, dir, &programs)?;
        eprintln!("started the manager (log: {})", manager.log().display());
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "charts-ca", "namespace": NAMESPACE},
            "stringData": {"ca.crt": repository.ca_pem()},
        });
        apply::apply(&client, &ca).await?;
        let example: Value = serde_saphyr::from_str(&EXAMPLE.replace(EXAMPLE_REPOSITORY, repository.url()))?;
        apply::apply(&client, &example).await?;
        eprintln!("applied HelmChartProxy {NAMESPACE}/hello from examples/hello.yaml");
        Ok(Self { sandbox, client, programs, manager })
    }

    /// Prints the progress of the releases until the add-on is ready on every cluster.
    pub async fn wait_addon_ready(&self) -> Result<()> {
        let releases: Api<HelmReleaseProxy> = Api::namespaced(self.client.clone(), NAMESPACE);
        let placements: Api<HelmChartProxy> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut printed = BTreeMap::new();
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while tokio::time::Instant::now() < deadline {
            self.manager.check()?;
            self.sandbox.check().await?;
            for release in releases.list(&ListParams::default()).await?.items {
                let line = line(&release);
                if printed.insert(release.name_any(), line.clone()) != Some(line.clone()) {
                    eprintln!("  {line}");
                }
            }
            if is_ready(&placements.get("hello").await?, crate::demo::CLUSTERS) {
                eprintln!("the add-on is ready on all {} clusters", crate::demo::CLUSTERS);
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        bail!("the add-on was not ready within {TIMEOUT:?}; see {}", self.manager.log().display())
    }

    /// Creates a Cluster with a ClusterClass and prints the progress until it is Available.
    pub async fn show_cluster_class(&self, repository: &ChartRepository) -> Result<()> {
        cluster_class::apply_example(&self.client, repository).await?;
        let mut progress = ClusterProgress::new(&self.client);
        while !progress.poll().await? {
            self.manager.check()?;
            self.sandbox.check().await?;
        }
        Ok(())
    }

    /// Installs a bundle of a Git repository on all clusters, changes it by a push, and prints how the commits arrive.
    pub async fn show_push(&self, repository: &Repository) -> Result<()> {
        let first = repository.push("Hello").await?;
        repository.apply(&self.client).await?;
        self.wait_reached(first).await?;
        let second = repository.push("Good morning").await?;
        self.wait_reached(second).await
    }

    async fn wait_reached(&self, commit: String) -> Result<()> {
        let mut progress = PushProgress::new(&self.client, commit);
        while !progress.poll().await? {
            self.manager.check()?;
            self.sandbox.check().await?;
        }
        Ok(())
    }

    /// Prints commands to try.
    pub fn print_next_steps(&self) -> Result<()> {
        println!("\n{}", next_steps::text(self.sandbox, &self.programs)?);
        Ok(())
    }

    /// Stops the manager.
    pub async fn stop(self) {
        self.manager.stop(Duration::from_secs(10)).await;
    }
}

fn start_manager(config: &str, dir: &Path, programs: &ProgramPaths) -> Result<Child> {
    let path = dir.join("manager-kubeconfig");
    chandler_sandbox::certificates::write_private(&path, config)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let args = vec![
        "manager".to_owned(),
        "--kubeconfig".to_owned(),
        text(&path),
        "--tool".to_owned(),
        text(&programs.tool),
        "--store".to_owned(),
        text(&dir.join("store")),
        // The chart repository and the API servers of the demo listen on the loopback address.
        "--allow-address".to_owned(),
        "127.0.0.1".to_owned(),
        // The demo shows a push, and must not wait ten seconds for the next poll.
        "--source-min-interval-seconds".to_owned(),
        "1".to_owned(),
        "--metrics-address".to_owned(),
        "127.0.0.1:0".to_owned(),
    ];
    Ok(Child::spawn(&Spec {
        name: "manager".to_owned(),
        program: programs.chandler.clone(),
        args,
        env: Vec::new(),
        home: dir.to_owned(),
    })?)
}

fn line(release: &HelmReleaseProxy) -> String {
    let cluster = release.spec.cluster_ref.name.as_deref().unwrap_or("?");
    format!("{cluster}: {}", readiness(release.status.as_ref()))
}

/// Returns a summary of a release's condition `Ready`.
pub fn readiness(status: Option<&ReleaseStatus>) -> String {
    let ready = status.and_then(|status| status.conditions.iter().find(|c| c.type_ == "Ready"));
    match ready {
        None => "waiting".to_owned(),
        Some(ready) if ready.status == "True" => {
            let revision = status.and_then(|status| status.revision).unwrap_or_default();
            format!("Ready at revision {revision}")
        }
        Some(ready) => format!("{} ({})", ready.reason, ready.message),
    }
}

fn is_ready(placement: &HelmChartProxy, clusters: u32) -> bool {
    placement.status.as_ref().is_some_and(|status| {
        status.ready_clusters == Some(format!("{clusters}/{clusters}"))
            && status.observed_generation == placement.metadata.generation
    })
}
