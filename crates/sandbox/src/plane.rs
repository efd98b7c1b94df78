//! A Kubernetes control plane as local processes.

mod components;
mod contents;
mod layout;
mod nodes;
mod options;
mod ports;
mod shared_etcd;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

pub use self::contents::Contents;
use self::layout::{Layout, PROBE};
pub use self::options::{Network, PlaneOptions};
pub use self::ports::{NoFreePort, free_port};
pub use self::shared_etcd::SharedEtcd;
use crate::assets::{Assets, Binary, KubernetesVersion};
use crate::process::{Child, GRACE_PERIOD, Spec};
use crate::requests::{AuditLog, RequestCounts};
use crate::test_record::{self, Record};
use crate::{certificates, kubeconfig, process};

const READY_TIMEOUT: Duration = Duration::from_secs(90);
const NODES_TIMEOUT: Duration = Duration::from_mins(1);
/// The API server waits for clients to close their watches. It has no data of its own, so it can be killed early.
const APISERVER_GRACE_PERIOD: Duration = Duration::from_secs(1);
const PORT_ATTEMPTS: usize = 4;

/// An error while running a control plane.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Port(#[from] NoFreePort),
    #[error("port {port} of control plane {name} is in use: stop the process that uses it")]
    PortInUse { name: String, port: u16 },
    #[error(transparent)]
    Process(#[from] process::Error),
    #[error("control plane {name} was not ready within {} s; its logs are in {}", READY_TIMEOUT.as_secs(), logs.display())]
    NotReady { name: String, logs: PathBuf },
    #[error("cannot write a Node: {source}")]
    WriteNode { source: Box<kube::Error> },
    #[error("cannot build a Node object: {source}")]
    BuildNode { source: serde_json::Error },
    #[error("the Nodes were not Ready within {} s; see kwok's log", NODES_TIMEOUT.as_secs())]
    NodesNotReady,
    #[error("control plane {name} is stopped")]
    Stopped { name: String },
}

/// A running control plane. Its processes end when it is dropped or when this process ends.
#[derive(Debug)]
pub struct Plane {
    options: PlaneOptions,
    /// Replaced by an upgrade.
    assets: std::sync::Mutex<Assets>,
    port: u16,
    kubeconfig: String,
    /// In the order in which they were started; etcd is the first, unless it is shared.
    children: Mutex<Vec<Child>>,
    /// Set by [`Plane::stop`] and [`Plane::kill`]. The provider does not restart a control plane that was stopped.
    stopped: AtomicBool,
    /// Whether its processes are those that it was started with, and nobody knows their PIDs.
    untouched: AtomicBool,
}

impl Plane {
    /// Starts a control plane of the Kubernetes version of `assets` and waits until its API server is ready and its
    /// Nodes exist.
    pub async fn start(assets: &Assets, options: PlaneOptions) -> Result<Self, Error> {
        let home = options.dir.clone();
        // The function blocks while it waits for orphans to end.
        let _ = tokio::task::spawn_blocking(move || process::terminate_orphans(&home)).await;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let port = match options.port.or_else(|| Layout::new(&options.dir).previous_port()) {
                Some(port) if options.port.is_some() || attempt == 1 => port,
                _ => free_port()?,
            };
            let plane = Self::prepare(assets, &options, port)?;
            match plane.launch().await {
                Ok(()) => return Ok(plane),
                Err(error) if is_port_in_use(&error) => {
                    plane.stop().await;
                    if options.port.is_some() || attempt == PORT_ATTEMPTS {
                        return Err(Error::PortInUse { name: options.name, port });
                    }
                }
                Err(error) => {
                    plane.stop().await;
                    return Err(error);
                }
            }
        }
    }

    fn prepare(assets: &Assets, options: &PlaneOptions, port: u16) -> Result<Self, Error> {
        let layout = Layout::new(&options.dir);
        let kubeconfig = layout.prepare(&options.name, &options.network, port)?;
        layout.store_port(port)?;
        if let Some(etcd) = &options.shared_etcd {
            layout.link_etcd(etcd)?;
        }
        Ok(Self {
            options: options.clone(),
            assets: std::sync::Mutex::new(assets.clone()),
            port,
            kubeconfig,
            children: Mutex::default(),
            stopped: AtomicBool::new(false),
            untouched: AtomicBool::new(true),
        })
    }

    async fn launch(&self) -> Result<(), Error> {
        let start = Instant::now();
        self.launch_missing(&mut *self.children.lock().await).await?;
        test_record::append(&Record::Plane {
            directory: &self.options.dir,
            full: self.options.nodes.is_some(),
            ready_after_millis: start.elapsed().as_millis(),
        });
        Ok(())
    }

    /// Starts all processes, or all but etcd if `children` contains it.
    async fn launch_missing(&self, children: &mut Vec<Child>) -> Result<(), Error> {
        let home = &self.options.dir;
        let assets = self.assets();
        let bare = self.options.nodes.is_none();
        if children.is_empty() && self.options.shared_etcd.is_none() {
            children.push(self.spawn(components::etcd(&assets, home))?);
        }
        let prefix = self.options.shared_etcd.is_some().then_some(self.options.name.as_str());
        children.push(self.spawn(components::apiserver(&assets, home, self.address(), bare, prefix))?);
        let probe = self.probe().await?;
        self.wait_ready(&probe, children).await?;
        Layout::new(home).store_version(assets.kubernetes())?;
        if let Some(nodes) = self.options.nodes {
            for spec in components::controllers(&assets, home) {
                children.push(self.spawn(spec)?);
            }
            nodes::ensure(&probe, nodes, assets.kubernetes()).await?;
        }
        Ok(())
    }

    /// Starts a process in the control plane's network namespace.
    fn spawn(&self, spec: Spec) -> Result<Child, Error> {
        let spec = match &self.options.network.namespace {
            Some(namespace) => spec.in_network_namespace(namespace),
            None => spec,
        };
        Ok(Child::spawn(&spec)?)
    }

    fn assets(&self) -> Assets {
        self.assets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a client whose requests are not in the audit log.
    pub(crate) async fn probe(&self) -> Result<kube::Client, Error> {
        let path = Layout::new(&self.options.dir).kubeconfig(PROBE);
        let yaml = std::fs::read_to_string(&path).map_err(|source| Error::Folder { path, source })?;
        self.connect(&yaml).await
    }

    /// Returns a client that connects from the control plane's network namespace.
    async fn connect(&self, kubeconfig: &str) -> Result<kube::Client, Error> {
        Ok(match &self.options.network.namespace {
            Some(namespace) => kubeconfig::client_in(kubeconfig, namespace).await?,
            None => kubeconfig::client(kubeconfig).await?,
        })
    }

    async fn wait_ready(&self, probe: &kube::Client, children: &[Child]) -> Result<(), Error> {
        let deadline = Instant::now() + READY_TIMEOUT;
        // The API server creates the default namespace a moment after it reports that it is ready.
        let mut pending = vec!["/api/v1/namespaces/default", "/readyz"];
        while let Some(path) = pending.last() {
            for child in children {
                child.check()?;
            }
            if responds(probe, path).await {
                pending.pop();
                continue;
            }
            if Instant::now() > deadline {
                return Err(Error::NotReady {
                    name: self.options.name.clone(),
                    logs: self.options.dir.join("logs"),
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until every Node is Ready.
    pub async fn wait_nodes_ready(&self) -> Result<(), Error> {
        nodes::wait_ready(&self.probe().await?, NODES_TIMEOUT).await
    }

    /// Adds the Node of a Machine. An existing Node is left unchanged.
    pub async fn add_node(&self, name: &str, provider_id: &str, version: &str) -> Result<(), Error> {
        nodes::add(&self.probe().await?, name, provider_id, version).await
    }

    /// Stops the processes in order and keeps the data.
    pub async fn stop(&self) {
        self.touch();
        self.stopped.store(true, Ordering::Release);
        stop_after(0, &mut *self.children.lock().await).await;
    }

    /// Kills the processes. The data may be incomplete afterwards.
    pub async fn kill(&self) {
        self.touch();
        self.stopped.store(true, Ordering::Release);
        let mut children = self.children.lock().await;
        while let Some(child) = children.pop() {
            child.kill().await;
        }
    }

    /// Stops the control plane and starts it again with the same data, port and certificate authority.
    pub async fn restart(&self) -> Result<(), Error> {
        self.touch();
        let mut children = self.children.lock().await;
        self.stopped.store(false, Ordering::Release);
        stop_after(0, &mut children).await;
        self.launch_missing(&mut children).await
    }

    /// Restarts the control plane if one of its processes has exited unexpectedly.
    pub(crate) async fn restart_if_failed(&self) -> Result<(), Error> {
        let mut children = self.children.lock().await;
        if self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let Err(error) = self.check_all(&children) else {
            return Ok(());
        };
        tracing::warn!(cluster = %self.options.name, %error, "restarting a control plane");
        self.touch();
        stop_after(0, &mut children).await;
        self.launch_missing(&mut children).await
    }

    /// Restarts all processes but etcd with the programs of another version. If they do not start, the control plane is
    /// stopped, and the next restart uses the new version again.
    pub async fn upgrade(&self, assets: &Assets) -> Result<(), Error> {
        self.touch();
        let mut children = self.children.lock().await;
        let etcd = usize::from(self.options.shared_etcd.is_none());
        stop_after(etcd, &mut children).await;
        *self.assets.lock().unwrap_or_else(PoisonError::into_inner) = assets.clone();
        let launched = self.launch_missing(&mut children).await;
        if launched.is_err() {
            stop_after(0, &mut children).await;
        }
        launched
    }

    /// Returns the version that the control plane in this folder ran last.
    pub fn stored_version(dir: &Path) -> Option<KubernetesVersion> {
        Layout::new(dir).stored_version()
    }

    /// Prepares the control plane for another Cluster, after [`Contents::restore`]. Returns `None` if its processes were
    /// stopped, or may have been.
    pub(crate) async fn reassign(mut self, name: &str, nodes: u32) -> Option<Self> {
        let has_nodes = self.options.nodes.is_some_and(|existing| existing <= nodes);
        if !has_nodes || !self.is_untouched() || self.check().await.is_err() {
            return None;
        }
        name.clone_into(&mut self.options.name);
        self.options.nodes = Some(nodes);
        let layout = Layout::new(&self.options.dir);
        self.kubeconfig = layout.rename(name, &self.options.network, self.port).ok()?;
        nodes::ensure(&self.probe().await.ok()?, nodes, self.version()).await.ok()?;
        Some(self)
    }

    /// Returns whether only clients have changed something.
    pub(crate) fn is_untouched(&self) -> bool {
        self.untouched.load(Ordering::Acquire)
    }

    pub(crate) fn has_default_network(&self) -> bool {
        self.options.network == Network::default()
    }

    fn touch(&self) {
        self.untouched.store(false, Ordering::Release);
    }

    /// Returns an error with the end of the log if one of the processes has exited.
    pub async fn check(&self) -> Result<(), Error> {
        self.check_all(&self.children.lock().await)
    }

    fn check_all(&self, children: &[Child]) -> Result<(), Error> {
        if children.is_empty() {
            return Err(Error::Stopped { name: self.options.name.clone() });
        }
        children.iter().try_for_each(|child| Ok(child.check()?))
    }

    pub fn name(&self) -> &str {
        &self.options.name
    }

    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn endpoint(&self) -> String {
        endpoint(self.address())
    }

    /// Returns the address that clients elsewhere use. Unlike [`Plane::endpoint`], it may be reachable through a proxy only.
    pub fn public_endpoint(&self) -> String {
        format!("https://{}:{}", self.options.network.public_host(), self.port)
    }

    /// Returns the address on which the API server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.options.network.address, self.port)
    }

    /// Returns a new kubeconfig of an administrator, whose certificate expires. Its entries have the names that Cluster API
    /// gives to them.
    pub fn issue_kubeconfig(&self, server: &str, lifetime: Duration) -> Result<String, Error> {
        let layout = Layout::new(&self.options.dir);
        Ok(layout.issue_kubeconfig(&self.options.name, server, lifetime)?)
    }

    /// Returns the certificate of the authority that has signed the API server's certificate.
    pub fn authority(&self) -> Result<String, Error> {
        Ok(Layout::new(&self.options.dir).authority(&self.options.name)?.certificate().to_owned())
    }

    pub fn version(&self) -> KubernetesVersion {
        self.assets().kubernetes()
    }

    /// Returns the YAML of the administrator's kubeconfig, with inline certificates.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.options.dir.join("kubeconfig")
    }

    /// Returns a new client for the current Tokio runtime.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        self.connect(&self.kubeconfig).await
    }

    /// Returns a new client with a user agent that identifies its requests in the audit log.
    pub async fn client_as(&self, user_agent: &'static str) -> Result<kube::Client, Error> {
        Ok(match &self.options.network.namespace {
            Some(namespace) => kubeconfig::client_in_as(&self.kubeconfig, namespace, user_agent).await?,
            None => kubeconfig::client_as(&self.kubeconfig, user_agent).await?,
        })
    }

    /// Returns the API server's request counts since its start.
    pub async fn request_counts(&self) -> Result<RequestCounts, Error> {
        let metrics = get_text(&self.probe().await?, "/metrics").await;
        Ok(RequestCounts::parse(&metrics.map_err(kubeconfig::Error::Client)?))
    }

    /// Returns a reader of the audit log that starts at its current end.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::at_end(&Layout::new(&self.options.dir).audit_log())
    }

    /// Returns the name and PID of each process.
    pub async fn processes(&self) -> Vec<(String, u32)> {
        self.touch();
        let children = self.children.lock().await;
        children.iter().map(|child| (child.name().to_owned(), child.pid())).collect()
    }
}

/// Stops all processes but the first `keep`, in reverse order of their start, so that clients stop before their servers.
async fn stop_after(keep: usize, children: &mut Vec<Child>) {
    while children.len() > keep
        && let Some(child) = children.pop()
    {
        let is_apiserver = child.name() == Binary::KubeApiserver.file_name();
        child.stop(if is_apiserver { APISERVER_GRACE_PERIOD } else { GRACE_PERIOD }).await;
    }
}

fn endpoint(address: SocketAddr) -> String {
    format!("https://{address}")
}

fn is_port_in_use(error: &Error) -> bool {
    matches!(error, Error::Process(process::Error::Exited { tail, .. }) if tail.contains("address already in use"))
}

/// Returns whether a request succeeds. Suppresses the logs of the client, which would contain an error for every attempt
/// while the server starts.
async fn responds(client: &kube::Client, path: &str) -> bool {
    get_text(client, path).with_subscriber(NoSubscriber::default()).await.is_ok()
}

async fn get_text(client: &kube::Client, path: &str) -> Result<String, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}
