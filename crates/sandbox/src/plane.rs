//! One Kubernetes control plane as local processes.

mod components;
mod layout;
mod nodes;
mod ports;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use self::layout::{Layout, PROBE};
pub use self::ports::{NoFreePort, free_port};
use crate::assets::{Assets, Binary, KubernetesVersion};
use crate::process::{Child, GRACE};
use crate::requests::{AuditLog, RequestCounts};
use crate::{certificates, kubeconfig, process};

const READY_LIMIT: Duration = Duration::from_secs(90);
const NODES_LIMIT: Duration = Duration::from_mins(1);
/// It waits for its clients to end their watches, and keeps nothing that could be lost.
const APISERVER_GRACE: Duration = Duration::from_secs(1);
const PORT_ATTEMPTS: usize = 4;

/// Why a plane could not be run.
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
    #[error("port {port} of plane {name} is held by another process: end that one")]
    PortTaken { name: String, port: u16 },
    #[error(transparent)]
    Process(#[from] process::Error),
    #[error("plane {name} was not ready within {} s; its logs are in {}", READY_LIMIT.as_secs(), logs.display())]
    NotReady { name: String, logs: PathBuf },
    #[error("a Node could not be written: {source}")]
    WriteNode { source: Box<kube::Error> },
    #[error("a Node could not be described: {source}")]
    DescribeNode { source: serde_json::Error },
    #[error("the Nodes were not Ready within {} s; see kwok's log", NODES_LIMIT.as_secs())]
    NodesNotReady,
    #[error("plane {name} is stopped")]
    Stopped { name: String },
}

/// What a plane is to be.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    pub name: String,
    /// Everything the plane keeps; the same folder again is the same plane again.
    pub dir: PathBuf,
    /// `None`: etcd and API server alone. `Some(n)`: controllers, a scheduler and n Nodes whose Pods become Ready.
    pub nodes: Option<u32>,
    /// A free one when absent.
    pub port: Option<u16>,
}

impl PlaneOptions {
    /// etcd and API server alone.
    pub fn bare(name: &str, dir: &Path) -> Self {
        Self { name: name.to_owned(), dir: dir.to_owned(), nodes: None, port: None }
    }

    /// With controllers, a scheduler and Nodes.
    pub fn full(name: &str, dir: &Path, nodes: u32) -> Self {
        Self { nodes: Some(nodes), ..Self::bare(name, dir) }
    }
}

/// A running control plane; ends with its owner, or when dropped.
#[derive(Debug)]
pub struct Plane {
    options: PlaneOptions,
    /// Another version's after an upgrade.
    assets: std::sync::Mutex<Assets>,
    port: u16,
    kubeconfig: String,
    /// In the order in which they started; etcd is the first.
    children: Mutex<Vec<Child>>,
    /// Ended on purpose: nobody but its owner brings it back.
    away: AtomicBool,
}

impl Plane {
    /// Starts a plane of the programs' version and returns when its API server answers and its Nodes exist.
    pub async fn start(assets: &Assets, options: PlaneOptions) -> Result<Self, Error> {
        let home = options.dir.clone();
        // Waiting for an orphan to end would hold up the runtime.
        let _ = tokio::task::spawn_blocking(move || process::end_orphans(&home)).await;
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
                Err(error) if is_port_clash(&error) => {
                    plane.stop().await;
                    if options.port.is_some() || attempt == PORT_ATTEMPTS {
                        return Err(Error::PortTaken { name: options.name, port });
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
        let kubeconfig = layout.prepare(&options.name, &endpoint(port))?;
        layout.keep_port(port)?;
        Ok(Self {
            options: options.clone(),
            assets: std::sync::Mutex::new(assets.clone()),
            port,
            kubeconfig,
            children: Mutex::default(),
            away: AtomicBool::new(false),
        })
    }

    async fn launch(&self) -> Result<(), Error> {
        self.launch_missing(&mut *self.children.lock().await).await
    }

    /// All of them, or all but etcd.
    async fn launch_missing(&self, children: &mut Vec<Child>) -> Result<(), Error> {
        let home = &self.options.dir;
        let assets = self.assets();
        let bare = self.options.nodes.is_none();
        if children.is_empty() {
            children.push(Child::spawn(&components::etcd(&assets, home))?);
        }
        children.push(Child::spawn(&components::apiserver(&assets, home, self.port, bare))?);
        let probe = self.probe().await?;
        self.wait_ready(&probe, children).await?;
        Layout::new(home).keep_version(assets.kubernetes())?;
        if let Some(nodes) = self.options.nodes {
            for spec in components::workers(&assets, home) {
                children.push(Child::spawn(&spec)?);
            }
            nodes::ensure(&probe, nodes, assets.kubernetes()).await?;
        }
        Ok(())
    }

    fn assets(&self) -> Assets {
        self.assets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its requests stay out of the audit log.
    async fn probe(&self) -> Result<kube::Client, Error> {
        let path = Layout::new(&self.options.dir).kubeconfig(PROBE);
        let yaml = std::fs::read_to_string(&path).map_err(|source| Error::Folder { path, source })?;
        Ok(kubeconfig::client(&yaml).await?)
    }

    async fn wait_ready(&self, probe: &kube::Client, children: &[Child]) -> Result<(), Error> {
        let deadline = Instant::now() + READY_LIMIT;
        // The default namespace is made by the API server itself, a moment after it says it is ready.
        let mut pending = vec!["/api/v1/namespaces/default", "/readyz"];
        while let Some(path) = pending.last() {
            for child in children {
                child.check()?;
            }
            if answers(probe, path).await {
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

    /// Returns when every Node is Ready.
    pub async fn wait_nodes_ready(&self) -> Result<(), Error> {
        nodes::wait_ready(&self.probe().await?, NODES_LIMIT).await
    }

    /// Adds a Node that stands for a Machine; one that exists stays as it is.
    pub async fn add_node(&self, name: &str, provider_id: &str, version: &str) -> Result<(), Error> {
        nodes::add(&self.probe().await?, name, provider_id, version).await
    }

    /// Stops the processes in order; the data stays.
    pub async fn stop(&self) {
        self.away.store(true, Ordering::Release);
        stop_after(0, &mut *self.children.lock().await).await;
    }

    /// Ends the processes at once, for planes whose data nobody needs any more.
    pub async fn kill(&self) {
        self.away.store(true, Ordering::Release);
        let mut children = self.children.lock().await;
        while let Some(child) = children.pop() {
            child.kill().await;
        }
    }

    /// Stops and starts again with the same data, port and authority.
    pub async fn restart(&self) -> Result<(), Error> {
        let mut children = self.children.lock().await;
        self.away.store(false, Ordering::Release);
        stop_after(0, &mut children).await;
        self.launch_missing(&mut children).await
    }

    /// Brings back a plane of which a process has ended by itself.
    pub(crate) async fn revive(&self) -> Result<(), Error> {
        let mut children = self.children.lock().await;
        if self.away.load(Ordering::Acquire) {
            return Ok(());
        }
        let Err(error) = self.check_all(&children) else {
            return Ok(());
        };
        tracing::warn!(cluster = %self.options.name, %error, "restarting a plane");
        stop_after(0, &mut children).await;
        self.launch_missing(&mut children).await
    }

    /// Goes on with the programs of another version; etcd and the data stay. A plane whose new programs do not start
    /// is stopped, and a restart tries again with them.
    pub async fn upgrade(&self, assets: &Assets) -> Result<(), Error> {
        let mut children = self.children.lock().await;
        stop_after(1, &mut children).await;
        *self.assets.lock().unwrap_or_else(PoisonError::into_inner) = assets.clone();
        let launched = self.launch_missing(&mut children).await;
        if launched.is_err() {
            stop_after(0, &mut children).await;
        }
        launched
    }

    /// The version that the plane in this folder ran last.
    pub fn kept_version(dir: &Path) -> Option<KubernetesVersion> {
        Layout::new(dir).kept_version()
    }

    /// An error that quotes the log of the first process found ended.
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
        endpoint(self.port)
    }

    pub fn version(&self) -> KubernetesVersion {
        self.assets().kubernetes()
    }

    /// The administrator's kubeconfig with everything inline.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The administrator's kubeconfig as a file.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.options.dir.join("kubeconfig")
    }

    /// A new client, for the runtime that calls.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        Ok(kubeconfig::client(&self.kubeconfig).await?)
    }

    /// A new client whose requests the audit log shows under this name.
    pub async fn client_as(&self, user_agent: &'static str) -> Result<kube::Client, Error> {
        Ok(kubeconfig::client_as(&self.kubeconfig, user_agent).await?)
    }

    /// What the API server has counted since it started.
    pub async fn request_counts(&self) -> Result<RequestCounts, Error> {
        let metrics = get_text(&self.probe().await?, "/metrics").await;
        Ok(RequestCounts::parse(&metrics.map_err(kubeconfig::Error::Client)?))
    }

    /// Requests seen from now on.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::from_now(&Layout::new(&self.options.dir).audit_log())
    }

    /// Name and number of each process.
    pub async fn processes(&self) -> Vec<(String, u32)> {
        let children = self.children.lock().await;
        children.iter().map(|child| (child.name().to_owned(), child.pid())).collect()
    }
}

/// Stops all but the first so many. Last started, first stopped: nobody loses the server it talks to.
async fn stop_after(kept: usize, children: &mut Vec<Child>) {
    while children.len() > kept
        && let Some(child) = children.pop()
    {
        let grace = if child.name() == Binary::KubeApiserver.file_name() { APISERVER_GRACE } else { GRACE };
        child.stop(grace).await;
    }
}

fn endpoint(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

fn is_port_clash(error: &Error) -> bool {
    matches!(error, Error::Process(process::Error::EndedEarly { tail, .. }) if tail.contains("address already in use"))
}

/// A server that is still starting is no news, but the client would log each refusal as an error.
async fn answers(client: &kube::Client, path: &str) -> bool {
    get_text(client, path).with_subscriber(NoSubscriber::default()).await.is_ok()
}

async fn get_text(client: &kube::Client, path: &str) -> Result<String, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}
