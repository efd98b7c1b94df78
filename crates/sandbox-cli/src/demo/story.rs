//! What the demo shows: the manager at work on one HelmChartProxy, then on a Cluster of a class.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Result, bail};
use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    extensions::{AddonRelease, Extension, ExtensionCatalog, ExtensionInstance},
    status::ReleaseStatus,
};
use chandler_sandbox::{
    Sandbox, apply,
    process::{Child, Spec},
    repository::ChartRepository,
    service_account,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::{
    fitting_out::{self, FittingOut},
    what_next,
};
use crate::programs::Found;

const EXAMPLE: &str = include_str!("../../../../examples/hello.yaml");
/// The address that the examples name; the demo's own repository takes its place.
pub const EXAMPLE_REPOSITORY: &str = "https://charts.example";
const RIGHTS: &str = include_str!("../../../../deploy/rbac.yaml");
pub const NAMESPACE: &str = "default";
pub const LIMIT: Duration = Duration::from_mins(3);
pub const LOOK: Duration = Duration::from_millis(250);

pub struct Story<'a> {
    sandbox: &'a Sandbox,
    client: Client,
    programs: Found,
    manager: Child,
}

impl<'a> Story<'a> {
    /// Installs the kinds, starts the manager and applies the example.
    pub async fn begin(
        sandbox: &'a Sandbox,
        repository: &ChartRepository,
        dir: &Path,
        programs: Found,
    ) -> Result<Self> {
        let client = sandbox.management().client().await?;
        for crd in chandler_api::crds() {
            apply::apply(&client, &serde_json::to_value(&crd)?).await?;
        }
        wait_served(&client).await?;
        apply::apply_all(&client, RIGHTS).await?;
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

    /// Shows what happens until the add-on is ready on every cluster.
    pub async fn until_ready(&self) -> Result<()> {
        let releases: Api<HelmReleaseProxy> = Api::namespaced(self.client.clone(), NAMESPACE);
        let placements: Api<HelmChartProxy> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut shown = BTreeMap::new();
        let deadline = tokio::time::Instant::now() + LIMIT;
        while tokio::time::Instant::now() < deadline {
            self.manager.check()?;
            self.sandbox.check().await?;
            for release in releases.list(&ListParams::default()).await?.items {
                let line = line(&release);
                if shown.insert(release.name_any(), line.clone()) != Some(line.clone()) {
                    eprintln!("  {line}");
                }
            }
            if is_ready(&placements.get("hello").await?, crate::demo::CLUSTERS) {
                eprintln!("the add-on is ready on all {} clusters", crate::demo::CLUSTERS);
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        bail!("the add-on was not ready within {LIMIT:?}; see {}", self.manager.log().display())
    }

    /// Shows how a Cluster of a class comes to be Available with its extensions.
    pub async fn fit_out(&self, repository: &ChartRepository) -> Result<()> {
        fitting_out::begin(&self.client, repository).await?;
        let mut fitting_out = FittingOut::new(&self.client);
        while !fitting_out.look().await? {
            self.manager.check()?;
            self.sandbox.check().await?;
        }
        Ok(())
    }

    /// Prints commands to copy.
    pub fn what_next(&self) -> Result<()> {
        println!("\n{}", what_next::text(self.sandbox, &self.programs)?);
        Ok(())
    }

    /// Stops the manager in order.
    pub async fn end(self) {
        self.manager.stop(Duration::from_secs(10)).await;
    }
}

fn start_manager(config: &str, dir: &Path, programs: &Found) -> Result<Child> {
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
        // The demo's repository is on this machine.
        "--allow-source-address".to_owned(),
        "127.0.0.1".to_owned(),
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

/// A definition is served a moment after it was accepted.
async fn wait_served(client: &Client) -> Result<()> {
    for _ in 0..100 {
        let served = [
            is_served::<HelmChartProxy>(client).await,
            is_served::<HelmReleaseProxy>(client).await,
            is_served::<ExtensionCatalog>(client).await,
            is_served::<Extension>(client).await,
            is_served::<ExtensionInstance>(client).await,
            is_served::<AddonRelease>(client).await,
        ];
        if served.iter().all(|served| *served) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the management plane does not serve Chandler's kinds")
}

async fn is_served<K>(client: &Client) -> bool
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Api::<K>::all(client.clone()).list(&ListParams::default().limit(1)).await.is_ok()
}

fn line(release: &HelmReleaseProxy) -> String {
    let cluster = release.spec.cluster_ref.name.as_deref().unwrap_or("?");
    format!("{cluster}: {}", readiness(release.status.as_ref()))
}

/// How far a release is.
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
