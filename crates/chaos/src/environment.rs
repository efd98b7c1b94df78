//! The environment of all sequences: two management clusters with managers, two workload clusters, a chart repository,
//! and a proxy in front of every API server.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    apply::{apply, apply_all},
    assets::{Assets, Binary, KubernetesVersion},
    certificates::{Authority, write_private},
    chart::Package,
    crds::{cluster_without_schema, wait_served},
    dynamic_api,
    fault_proxy::{FaultProxy, Mode},
    kubeconfig,
    plane::{Plane, PlaneOptions},
    progress::ProgressReporter,
    provider::sandbox_control_plane::SandboxControlPlane,
    repository::ChartRepository,
    service_account,
};
use kube::{Client, CustomResourceExt as _};

use crate::{
    action::{ChartVersion, Cluster, ManagementCluster, PlaneId},
    chart::{self, PublishedVersion},
    client_process::address_of_client,
    manager::{ManagerCommand, Managers},
    objects,
};

/// The user agent of requests that are not those of Chandler.
pub const USER_AGENT: &str = "chaos";
const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// A control plane, and the proxy in front of its API server.
pub struct ProxiedPlane {
    pub plane: Plane,
    pub proxy: FaultProxy,
    /// A client that does not use the proxy.
    pub client: Client,
}

impl ProxiedPlane {
    async fn start(assets: &Assets, dir: &Path, id: PlaneId) -> Result<Self> {
        let plane = Plane::start(assets, PlaneOptions::bare(id.name(), dir)).await?;
        let proxy = FaultProxy::start_with_source(plane.port(), address_of_client).await;
        let proxy = proxy.context("starting a proxy")?;
        let client = plane.client_as(USER_AGENT).await?;
        Ok(Self { plane, proxy, client })
    }

    /// Returns a kubeconfig whose server is the proxy.
    fn through_proxy(&self, kubeconfig: &str) -> String {
        kubeconfig.replace(&format!(":{}", self.plane.port()), &format!(":{}", self.proxy.port()))
    }

    /// Returns a kubeconfig of an administrator with new credentials. Its server is the proxy.
    pub fn new_kubeconfig(&self, user: &str) -> Result<String> {
        let name = self.plane.name();
        let authority = Authority::open(&self.plane.dir().join("pki"), &format!("sandbox {name}"))?;
        let credentials = authority.client(user, &["system:masters"])?;
        let direct = kubeconfig::render(name, &self.plane.endpoint(), authority.certificate(), &credentials);
        Ok(self.through_proxy(&direct))
    }
}

pub struct Environment {
    pub dir: PathBuf,
    /// The programs of each Kubernetes version.
    assets: BTreeMap<KubernetesVersion, Assets>,
    pub repository: ChartRepository,
    /// The archive of the chart, for the helm CLI.
    pub archive: PathBuf,
    planes: BTreeMap<PlaneId, ProxiedPlane>,
    managers: BTreeMap<ManagementCluster, Managers>,
    /// The number of workload clusters that were replaced.
    replaced: u32,
}

impl Environment {
    pub async fn start(
        assets: BTreeMap<KubernetesVersion, Assets>,
        dir: &Path,
        chandler: &Path,
        tool: &Path,
        progress: &dyn ProgressReporter,
    ) -> Result<Self> {
        let step = "starting 4 control planes and 2 managers";
        progress.begin(step, None);
        let (repository, archive) = publish_chart(dir).await?;
        let trusted = dir.join("repository.pem");
        std::fs::write(&trusted, repository.ca_pem())
            .with_context(|| format!("writing {}", trusted.display()))?;
        let mut environment = Self {
            dir: dir.to_owned(),
            assets,
            repository,
            archive,
            planes: BTreeMap::new(),
            managers: BTreeMap::new(),
            replaced: 0,
        };
        for id in PlaneId::ALL {
            progress.advance(id.name());
            let oldest = environment.assets(KubernetesVersion::default())?;
            let plane = ProxiedPlane::start(oldest, &dir.join(id.name()), id).await?;
            environment.planes.insert(id, plane);
        }
        for management in ManagementCluster::ALL {
            let kubeconfig = environment.prepare_management(management).await?;
            let command = ManagerCommand {
                name: PlaneId::Management(management).name().to_owned(),
                chandler: chandler.to_owned(),
                tool: tool.to_owned(),
                kubeconfig,
                trusted: trusted.clone(),
                home: dir.to_owned(),
            };
            environment.managers.insert(management, Managers::start(command)?);
        }
        progress.finish(step);
        Ok(environment)
    }

    /// Returns the programs of a Kubernetes version.
    pub fn assets(&self, version: KubernetesVersion) -> Result<&Assets> {
        self.assets.get(&version).with_context(|| format!("there are no programs of Kubernetes {version}"))
    }

    pub fn plane(&self, id: PlaneId) -> Result<&ProxiedPlane> {
        self.planes.get(&id).with_context(|| format!("there is no control plane {}", id.name()))
    }

    pub fn management(&self, management: ManagementCluster) -> Result<&Client> {
        Ok(&self.plane(PlaneId::Management(management))?.client)
    }

    pub fn workload(&self, cluster: Cluster) -> Result<&ProxiedPlane> {
        self.plane(PlaneId::Workload(cluster))
    }

    pub fn managers(&mut self, management: ManagementCluster) -> Result<&mut Managers> {
        self.managers
            .get_mut(&management)
            .with_context(|| format!("there are no managers of management cluster {management:?}"))
    }

    /// Replaces the workload clusters whose Kubernetes was upgraded, because every run begins with the oldest version and a
    /// control plane cannot be downgraded. There must be no Cluster of them any more.
    pub async fn replace_upgraded_clusters(&mut self) -> Result<()> {
        let oldest = KubernetesVersion::default();
        for cluster in Cluster::ALL {
            if self.workload(cluster)?.plane.version() == oldest {
                continue;
            }
            self.replaced += 1;
            let id = PlaneId::Workload(cluster);
            let dir = self.dir.join(format!("{}-{}", id.name(), self.replaced));
            let plane = ProxiedPlane::start(self.assets(oldest)?, &dir, id).await?;
            if let Some(upgraded) = self.planes.insert(id, plane) {
                upgraded.plane.kill().await;
            }
        }
        Ok(())
    }

    /// Starts managers that have ended.
    pub fn supervise(&mut self) -> Result<()> {
        self.managers.values_mut().try_for_each(Managers::supervise)
    }

    /// Returns whether the current managers have become leaders.
    pub fn managers_are_leading(&self) -> bool {
        self.managers.values().all(Managers::is_leading)
    }

    /// Ends all faults. Dropped connections stay dropped: a client has to notice it.
    pub fn heal(&mut self) {
        self.planes.values().for_each(|plane| plane.proxy.set_mode(Mode::Forward));
        self.managers.values_mut().for_each(Managers::heal);
    }

    /// Ends the managers that were replaced.
    pub async fn end_replaced_managers(&mut self) {
        for managers in self.managers.values_mut() {
            managers.end_replaced().await;
        }
    }

    /// Kills all managers and starts new ones.
    pub async fn reset_managers(&mut self) -> Result<()> {
        for managers in self.managers.values_mut() {
            managers.reset().await?;
        }
        Ok(())
    }

    pub async fn kill(self) {
        drop(self.managers);
        for plane in self.planes.values() {
            plane.plane.kill().await;
        }
    }

    pub fn helm(&self) -> Result<&Path> {
        Ok(self.assets(KubernetesVersion::default())?.path(Binary::Helm))
    }

    /// Installs the CRDs and the RBAC rules. Returns the path of the manager's kubeconfig, whose server is the proxy.
    async fn prepare_management(&self, management: ManagementCluster) -> Result<PathBuf> {
        let plane = self.plane(PlaneId::Management(management))?;
        apply(&plane.client, &cluster_without_schema()).await?;
        apply(&plane.client, &serde_json::to_value(SandboxControlPlane::crd())?).await?;
        for crd in chandler_api::crds() {
            apply(&plane.client, &serde_json::to_value(&crd)?).await?;
        }
        apply_all(&plane.client, RBAC).await?;
        for (api_version, kind) in objects::custom_kinds() {
            wait_served(&plane.client, &dynamic_api::resource(api_version, kind)).await?;
        }
        let direct = service_account::kubeconfig(&plane.plane, "chandler-system", "chandler-manager").await?;
        let path = self.dir.join(format!("{}-manager.kubeconfig", plane.plane.name()));
        write_private(&path, &plane.through_proxy(&direct))?;
        Ok(path)
    }
}

async fn publish_chart(dir: &Path) -> Result<(ChartRepository, PathBuf)> {
    let authority = Authority::open(&dir.join("pki"), "chaos")?;
    let repository = ChartRepository::start(&authority, &dir.join("charts")).await?;
    let folder = chart::write(&dir.join("chart"))?;
    for version in PublishedVersion::all() {
        repository.publish_version(&folder, &version.to_string())?;
    }
    let first = PublishedVersion::independent(ChartVersion::First);
    let package = Package::pack(&folder, Some(&first.to_string()))?;
    let archive = dir.join(package.file_name());
    std::fs::write(&archive, &package.bytes).with_context(|| format!("writing {}", archive.display()))?;
    Ok((repository, archive))
}
