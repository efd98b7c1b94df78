//! Where an input is tried: a folder, a certificate authority, a package store, and the Helm driver.

use std::{cell::Cell, net::Ipv4Addr, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use axum::response::Response;
use chandler_core::{
    addresses::{AddressPolicy, AllowFlag},
    digest::Digest,
    identity::{ClusterKey, ReleaseId, ToolId},
    inventory::ReleaseRecords,
    package_format::PackageFormat,
    release::PackageReference,
    target::Target,
};
use chandler_sandbox::{
    certificates::Authority,
    hostile::{
        api_server::{Attack, HostileServer, InternalServer},
        repository::router,
    },
    https_server::HttpsServer,
};
use chandler_source::{
    Access, FilesOwner, Limits, Packages, ProxyMatcher, SourceError, SourceOptions, Store, StoredPackage,
};
use chandler_tool::{PackageFile, PackageTool, Supervisor, SupervisorConfig, TemplateService};
use chandler_workload::{follow_once, target_from_kubeconfig};
use tokio::runtime::Runtime;

use crate::{Attempt, Input, Measurement, measurement::Started, refusal};

/// The name of the driver beside the binary.
const DRIVER: &str = "chandler-helm";

/// Where an input is tried.
pub struct Lab {
    runtime: Runtime,
    directory: tempfile::TempDir,
    started: Cell<Started>,
    ended: Cell<Option<Measurement>>,
}

impl Lab {
    pub fn new() -> Result<Self> {
        // Another provider may be installed already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let directory = tempfile::tempdir()?;
        Ok(Self { runtime, directory, started: Cell::new(Started::now(None)), ended: Cell::new(None) })
    }

    /// Tries an input. Returns what it took, and whether it was refused.
    pub fn attempt(&self, input: &Input) -> Result<(Measurement, Option<String>)> {
        self.begin(None);
        let refused = (input.run)(self)?;
        Ok((self.ended.take().unwrap_or_else(|| self.started.get().end()), refused))
    }

    /// Begins the measurement. What was done before was only to make the input.
    pub(crate) fn begin(&self, driver: Option<u32>) {
        self.started.set(Started::now(driver));
    }

    /// Ends the measurement while the driver still runs.
    fn end(&self) {
        self.ended.set(Some(self.started.get().end()));
    }

    /// Adds a package to the store, as after a download.
    fn stored(&self, archive: &[u8]) -> Result<Result<StoredPackage, SourceError>> {
        let format = PackageFormat::default();
        let store = Store::open(self.directory.path())?;
        self.begin(None);
        let url = "https://charts.example";
        let mut writer = store.create_for(FilesOwner { namespace: "tenant", url })?;
        writer.write(archive)?;
        match writer.commit_here("https://charts.example/web.tgz", None, &format) {
            Ok(digest) => store.get(&digest, &format).map(Ok).context("the package disappeared"),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Adds a package to the store, which checks its archive.
    pub(crate) fn store(&self, archive: &[u8]) -> Attempt {
        refusal(self.stored(archive)?)
    }

    /// Reads the values of a package from the store.
    pub(crate) fn read_values(&self, archive: &[u8]) -> Attempt {
        let stored = self.stored(archive)??;
        refusal(self.runtime.block_on(stored.values()))
    }

    /// Installs version 1.0.0 of the chart `web` of a repository with these responses.
    pub(crate) fn install(
        &self,
        limits: Limits,
        respond: impl Fn(&str) -> Response + Clone + Send + Sync + 'static,
    ) -> Attempt {
        self.runtime.block_on(async {
            let authority = Authority::open(&self.directory.path().join("pki"), "hostile")?;
            let server = HttpsServer::start(&authority, router(respond)).await?;
            let options = SourceOptions {
                addresses: AddressPolicy { flag: AllowFlag::SourceAddress, ..addresses()? },
                proxies: ProxyMatcher::builder().build(),
                limits,
                ..SourceOptions::default()
            };
            let ca_pem = Some(authority.certificate().as_bytes().to_vec());
            let access = Access { ca_pem, ..Access::default() };
            let version = Some("1.0.0".to_owned());
            let reference = PackageReference { repository: server.url(), name: "web".to_owned(), version };
            let packages = Packages::new(Store::open(self.directory.path())?, options);
            self.begin(None);
            match packages.resolve(&reference, &access).await {
                Ok(resolved) => refusal(packages.fetch(&resolved, &access).await),
                Err(error) => Ok(Some(error.to_string())),
            }
        })
    }

    /// Lets the Helm driver read a chart.
    pub(crate) fn inspect(&self, archive: &[u8]) -> Attempt {
        let path = self.directory.path().join("chart.tgz");
        std::fs::write(&path, archive)?;
        let package = PackageFile { path, digest: Digest::of(archive), format: PackageFormat::default() };
        self.runtime.block_on(async {
            let supervisor = Supervisor::new(SupervisorConfig::new(driver()?));
            let pid = supervisor.acquire().await?.pid();
            self.begin(Some(pid));
            let inspected = PackageTool::new(ToolId(0), supervisor.clone()).inspect(&package).await;
            self.end();
            refusal(inspected)
        })
    }

    /// Starts a server that must not be reached.
    pub(crate) fn internal_server(&self) -> Result<InternalServer> {
        Ok(self.runtime.block_on(InternalServer::start(Ipv4Addr::LOCALHOST))?)
    }

    /// Lets the manager list and watch the releases of a cluster whose API server attacks.
    pub(crate) fn follow(&self, attack: Attack) -> Attempt {
        self.runtime.block_on(async {
            let (_server, target) = self.cluster(attack).await?;
            self.begin(None);
            refusal(Box::pin(follow_once(&target, Arc::new(records()), addresses()?)).await)
        })
    }

    /// Lets the Helm driver read a release of a cluster whose API server attacks.
    pub(crate) fn observe(&self, attack: Attack) -> Attempt {
        self.runtime.block_on(async {
            let (_server, target) = self.cluster(attack).await?;
            let environment = vec![addresses()?.environment()];
            let supervisor =
                Supervisor::new(SupervisorConfig { environment, ..SupervisorConfig::new(driver()?) });
            let pid = supervisor.acquire().await?.pid();
            self.begin(Some(pid));
            let tool = PackageTool::new(ToolId(0), supervisor.clone());
            let observed = tool.observe(&target, &ReleaseId::new("web", "web")).await;
            self.end();
            refusal(observed)
        })
    }

    /// Starts an API server that attacks, and returns how it is reached.
    async fn cluster(&self, attack: Attack) -> Result<(HostileServer, Target)> {
        let server = HostileServer::start(&self.directory.path().join("pki"), attack).await?;
        let target = target_from_kubeconfig(&ClusterKey::new("tenant", "hostile"), &server.kubeconfig())?;
        Ok((server, target))
    }

    /// Runs something with the template service.
    pub(crate) fn with_templates<T: Future<Output = Attempt>>(
        &self,
        run: impl FnOnce(TemplateService) -> T,
    ) -> Attempt {
        self.runtime.block_on(async {
            let supervisor = Supervisor::new(SupervisorConfig::templates(driver()?));
            let pid = supervisor.acquire().await?.pid();
            self.begin(Some(pid));
            let attempt = run(TemplateService::new(supervisor.clone())).await;
            self.end();
            attempt
        })
    }
}

/// Returns a policy that allows the hostile servers, which are on this machine.
fn addresses() -> Result<AddressPolicy> {
    Ok(AddressPolicy { allowed: vec!["127.0.0.1".parse()?], ..AddressPolicy::default() })
}

/// Returns where Helm records releases.
fn records() -> ReleaseRecords {
    let text = str::to_owned;
    ReleaseRecords {
        api_version: text("v1"),
        kind: text("Secret"),
        plural: text("secrets"),
        label_selector: text("owner=helm"),
        object_name: text("sh.helm.release.v1.{release}.v{revision}"),
        release_label: text("name"),
        revision_label: text("version"),
        status_label: text("status"),
        time_labels: Vec::new(),
        object_selector: String::new(),
    }
}

/// Returns the path of the Helm driver.
fn driver() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CHANDLER_TOOL") {
        return Ok(path.into());
    }
    Ok(std::env::current_exe().context("finding the driver")?.with_file_name(DRIVER))
}
