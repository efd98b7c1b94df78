//! A hub on loopback, whose directory and keys a test controls.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use chandler_hub::{
    Addresses, AgentRecord, Directory, DirectoryReceiver, Hub, HubAddress, HubKeys, HubOptions, Inputs,
    JoinReport, Metrics, PeerOptions, Reporter, TunnelEntry,
};
use chandler_tunnel::{
    HubNames, JoinToken, TunnelId, TunnelIdentity, TunnelKey, TunnelKeys,
    authority::{self, CertificateAndKey},
    keys::service_name,
    proxy_credentials::ProxyScope,
};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::watch;

/// The limit of everything that a test waits for.
const LIMIT: Duration = Duration::from_secs(20);
/// The endpoint of every cluster. Their addresses overlap, as those behind NAT do.
pub const ENDPOINT: &str = "10.0.0.10:6443";
pub const HOUR: Duration = Duration::from_hours(1);
const NAMESPACE: &str = "chandler-system";

/// Waits for something that has to happen.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Remembers what the hub reports.
#[derive(Default)]
pub struct Reports {
    agents: watch::Sender<HashMap<TunnelId, Vec<AgentRecord>>>,
    joins: watch::Sender<Vec<JoinReport>>,
}

impl Reporter for Reports {
    fn agents_changed(&self, tunnel: TunnelKey, agents: Vec<AgentRecord>) {
        self.agents.send_modify(|all| drop(all.insert(tunnel.id, agents)));
    }

    fn join(&self, _: TunnelKey, report: JoinReport) {
        self.joins.send_modify(|all| all.push(report));
    }
}

impl Reports {
    /// Waits until a tunnel has this number of connections, and returns them.
    pub async fn agents(&self, tunnel: TunnelId, count: usize) -> Vec<AgentRecord> {
        let of = |all: &HashMap<TunnelId, Vec<AgentRecord>>| all.get(&tunnel).cloned().unwrap_or_default();
        let mut agents = self.agents.subscribe();
        of(&within(agents.wait_for(|all| of(all).len() == count)).await.unwrap())
    }

    pub fn joins(&self) -> Vec<JoinReport> {
        self.joins.borrow().clone()
    }
}

/// The keys and tunnels of an installation, which several hubs share.
pub struct World {
    pub keys: Arc<HubKeys>,
    keys_sender: watch::Sender<Arc<HubKeys>>,
    pub directory: watch::Sender<Arc<Directory>>,
}

/// A hub and what it reports.
pub struct TestHub {
    pub hub: Hub,
    pub addresses: Addresses,
    pub reports: Arc<Reports>,
    pub metrics: Metrics,
}

/// The options of a hub on free ports.
pub fn options() -> HubOptions {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    HubOptions::new(Addresses { proxy: free, public: free, peer: free })
}

/// Returns the options of a hub that knows another one.
pub fn options_with_peer(peer: SocketAddr) -> HubOptions {
    let peers = PeerOptions { address: peer.to_string(), server_name: service_name(NAMESPACE) };
    HubOptions { peers: Some(peers), ..options() }
}

impl World {
    /// Creates keys, and a directory with these clusters.
    pub fn new(entries: &[TunnelEntry]) -> Self {
        let names = HubNames::new(&["localhost:8443".to_owned()], NAMESPACE);
        let keys = TunnelKeys::generate(&names, Timestamp::now()).unwrap();
        let keys = Arc::new(HubKeys::new(keys).unwrap());
        let (keys_sender, _) = watch::channel(keys.clone());
        let (directory, _) = watch::channel(Arc::new(Directory::of(entries.iter().cloned())));
        Self { keys, keys_sender, directory }
    }

    pub async fn start(&self, options: HubOptions) -> TestHub {
        self.start_with(options, self.directory.subscribe()).await
    }

    /// Starts a hub with a directory of its own, as one whose watch is late.
    pub async fn start_with(&self, options: HubOptions, directory: DirectoryReceiver) -> TestHub {
        let (reports, metrics) = (Arc::new(Reports::default()), Metrics::new());
        let inputs = Inputs {
            keys: self.keys_sender.subscribe(),
            directory,
            reporter: reports.clone(),
            metrics: metrics.clone(),
            pump: options.new_pump(),
        };
        let hub = Hub::start(options, inputs).await.unwrap();
        TestHub { addresses: hub.addresses(), hub, reports, metrics }
    }

    /// Replaces the directory.
    pub fn list(&self, entries: &[TunnelEntry]) {
        self.directory.send_replace(Arc::new(Directory::of(entries.iter().cloned())));
    }

    /// Makes the hubs forget their list, as before the first list of a watch.
    pub fn unlist(&self) {
        self.directory.send_replace(Arc::new(Directory::unlisted()));
    }

    /// Returns the user and password of the proxy for a cluster.
    pub fn credentials(&self, entry: &TunnelEntry) -> (String, SecretString) {
        let TunnelEntry { namespace, cluster, id, epoch, .. } = entry;
        let scope = ProxyScope { namespace, cluster, tunnel: *id, epoch: *epoch };
        (scope.user(), scope.password(&self.keys.keys.signing))
    }

    /// Returns a certificate for an agent that was issued at this time.
    pub fn certificate(&self, entry: &TunnelEntry, issued: Timestamp) -> CertificateAndKey {
        let key = authority::generate_key_pem().unwrap();
        let request = authority::certificate_request(&key).unwrap();
        let installation = self.keys.keys.installation;
        let TunnelKey { id, owner } = entry.key();
        let identity = TunnelIdentity { installation, tunnel: id, owner, epoch: entry.epoch };
        let certificate = self.keys.keys.authority.sign_agent(&request, identity, issued).unwrap();
        CertificateAndKey { certificate, key }
    }

    pub fn token(&self, entry: &TunnelEntry, lifetime: Duration) -> String {
        let expires = Timestamp::now() + lifetime;
        let TunnelKey { id, owner } = entry.key();
        let token = JoinToken { tunnel: id, owner, epoch: entry.epoch, expires };
        token.sign(&self.keys.keys.signing).expose_secret().to_owned()
    }

    pub fn ca_bundle(&self) -> &str {
        self.keys.keys.ca_bundle()
    }
}

/// Returns the tunnel of a cluster.
pub fn entry(cluster: &str) -> TunnelEntry {
    TunnelEntry {
        id: TunnelId::random().unwrap(),
        epoch: 1,
        namespace: "fleet".to_owned(),
        cluster: cluster.to_owned(),
        name: cluster.to_owned(),
        endpoint: Some(ENDPOINT.to_owned()),
        last_seen: None,
        hubs: Vec::new(),
        created: None,
    }
}

pub fn hub_address(address: &str, ca_bundle: &str) -> HubAddress {
    HubAddress { address: address.to_owned(), ca_bundle: ca_bundle.to_owned(), token: None }
}
