//! A hub in a process of its own, which can be killed and whose memory can be measured.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_hub::{Addresses, Directory, Hub, HubKeys, HubOptions, Inputs, Metrics, NoReports, TunnelEntry};
use chandler_sandbox::process::{Child, Spec};
use chandler_tunnel::{TunnelId, TunnelKey, TunnelKeys, TunnelOwner, proxy_credentials::ProxyScope};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const NAMESPACE: &str = "bench";
const TUNNELS: &str = "tunnels.json";
pub const EPOCH: u32 = 1;

/// The arguments of the process that runs a hub.
#[derive(Clone, Debug)]
pub struct TunnelHubOptions {
    /// The folder with the keys and the tunnels.
    pub dir: PathBuf,
    pub proxy: SocketAddr,
    pub public: SocketAddr,
}

/// A tunnel of the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchTunnel {
    pub id: TunnelId,
    pub cluster: String,
    /// What clients may connect to.
    pub endpoint: String,
}

impl BenchTunnel {
    /// Returns the id together with the cluster, as the certificates of agents contain it.
    pub fn key(&self) -> TunnelKey {
        TunnelKey { id: self.id, owner: TunnelOwner::of(NAMESPACE, &self.cluster) }
    }

    /// Returns the value of `Proxy-Authorization` for this tunnel.
    pub fn authorization(&self, keys: &TunnelKeys) -> String {
        let scope =
            ProxyScope { namespace: NAMESPACE, cluster: &self.cluster, tunnel: self.id, epoch: EPOCH };
        let login = format!("{}:{}", scope.user(), scope.password(&keys.signing).expose_secret());
        format!("Basic {}", BASE64_STANDARD.encode(login))
    }

    fn entry(self) -> TunnelEntry {
        TunnelEntry {
            id: self.id,
            epoch: EPOCH,
            namespace: NAMESPACE.to_owned(),
            name: self.cluster.clone(),
            cluster: self.cluster,
            endpoint: Some(self.endpoint),
            last_seen: None,
            // The agents keep the list that they have.
            hubs: Vec::new(),
            created: None,
        }
    }
}

/// What a hub of the benchmark serves.
#[derive(Debug)]
pub struct HubFiles {
    dir: PathBuf,
    proxy: SocketAddr,
    public: SocketAddr,
}

impl HubFiles {
    /// Writes the keys and the tunnels for [`serve_tunnel_hub`].
    pub fn write(
        dir: &Path,
        keys: &TunnelKeys,
        tunnels: &[BenchTunnel],
        proxy: SocketAddr,
        public: SocketAddr,
    ) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        for (name, content) in keys.to_files() {
            fs::write(dir.join(name), content)?;
        }
        fs::write(dir.join(TUNNELS), serde_json::to_vec(tunnels)?)?;
        Ok(Self { dir: dir.to_owned(), proxy, public })
    }

    /// Starts a hub, in a network namespace if there is one.
    pub fn start(&self, namespace: Option<&str>) -> Result<Child> {
        let dir = self.dir.to_string_lossy().into_owned();
        let (proxy, public) = (self.proxy.to_string(), self.public.to_string());
        let arguments = ["bench", "tunnel-hub", "--dir", &dir, "--proxy", &proxy, "--public", &public];
        let spec = Spec {
            name: "hub".to_owned(),
            program: std::env::current_exe().context("finding the path of this program")?,
            args: arguments.map(str::to_owned).to_vec(),
            env: Vec::new(),
            home: self.dir.clone(),
        };
        let spec = match namespace {
            Some(namespace) => spec.in_network_namespace(namespace),
            None => spec,
        };
        Ok(Child::spawn(&spec)?)
    }
}

/// Runs a hub with the keys and tunnels of a folder until the process is killed.
pub async fn serve_tunnel_hub(options: TunnelHubOptions) -> Result<()> {
    let TunnelHubOptions { dir, proxy, public } = options;
    let keys = HubKeys::new(TunnelKeys::from_dir(&dir)?)?;
    let tunnels: Vec<BenchTunnel> = serde_json::from_slice(&fs::read(dir.join(TUNNELS))?)?;
    let directory = Directory::of(tunnels.into_iter().map(BenchTunnel::entry));
    // The senders live as long as the hub: nothing changes.
    let (_keys, keys) = watch::channel(Arc::new(keys));
    let (_directory, directory) = watch::channel(Arc::new(directory));
    let peer = SocketAddr::new(public.ip(), 0);
    let options = HubOptions::new(Addresses { proxy, public, peer });
    let pump = options.new_pump();
    let inputs = Inputs { keys, directory, reporter: Arc::new(NoReports), metrics: Metrics::new(), pump };
    let _hub = Hub::start(options, inputs).await?;
    std::future::pending().await
}
