//! A replica of the hub, as a process that a test may kill.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use chandler_sandbox::{
    netns,
    plane::free_port,
    process::{Child, Spec},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{canary, programs, wait::eventually};

/// Verbose logs of the hub's crates, so that the check for leaked secrets covers them.
const LOG_LEVEL: &str = "info,chandler_hub=debug,chandler_tunnel=debug";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a replica listens. It keeps its addresses when it is started again.
#[derive(Clone, Debug)]
pub struct HubPlace {
    pub name: String,
    /// Kubeconfig of the hub's ServiceAccount.
    pub kubeconfig: PathBuf,
    /// The folder with the keys, as a volume of the Secret has them.
    pub keys: PathBuf,
    /// The folder with its log.
    pub home: PathBuf,
    /// For clients in the management cluster.
    pub proxy: SocketAddr,
    /// For agents.
    pub agents: SocketAddr,
    /// For the other replica.
    pub peer: SocketAddr,
    pub metrics: SocketAddr,
    /// Where the other replica listens for this one.
    pub other: Option<SocketAddr>,
    /// The network namespace. `None` means that of the test.
    pub network_namespace: Option<String>,
}

/// Returns an address with a free port.
pub fn free_address(ip: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), free_port().unwrap())
}

impl HubPlace {
    /// Returns free loopback addresses for a replica.
    pub fn on_loopback(name: &str, kubeconfig: &Path, keys: &Path, home: &Path) -> Self {
        let address = || free_address(Ipv4Addr::LOCALHOST);
        Self {
            name: name.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            keys: keys.to_owned(),
            home: home.to_owned(),
            proxy: address(),
            agents: address(),
            peer: address(),
            metrics: address(),
            other: None,
            network_namespace: None,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut arguments = vec!["hub".to_owned()];
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add("--kubeconfig", path(&self.kubeconfig));
        add("--keys-dir", path(&self.keys));
        add("--name", self.name.clone());
        add("--proxy-address", self.proxy.to_string());
        add("--public-address", self.agents.to_string());
        add("--peer-address", self.peer.to_string());
        add("--metrics-address", self.metrics.to_string());
        add("--drain-seconds", "5".to_owned());
        add("--log-level", LOG_LEVEL.to_owned());
        add("--log-format", "json".to_owned());
        if let Some(other) = self.other {
            add("--peers", other.to_string());
        }
        arguments
    }
}

/// A running replica of the hub.
pub struct Hub {
    child: Option<Child>,
    pub place: HubPlace,
    log: PathBuf,
    secrets: canary::Secrets,
}

impl Hub {
    /// Starts a replica. [`Hub::wait_ready`] waits until it serves.
    pub fn start(place: &HubPlace) -> Self {
        let spec = Spec {
            name: place.name.clone(),
            program: PathBuf::from(programs::chandler()),
            args: place.arguments(),
            env: Vec::new(),
            home: place.home.clone(),
        };
        let spec = match &place.network_namespace {
            Some(namespace) => spec.in_network_namespace(namespace),
            None => spec,
        };
        let child = Child::spawn(&spec).unwrap();
        let mut secrets = canary::Secrets::of_kubeconfig(&read(&place.kubeconfig));
        for file in ["ca.key", "hub.key", "signing.key"] {
            secrets.add(&read(&place.keys.join(file)));
        }
        Self { log: child.log().to_owned(), child: Some(child), place: place.clone(), secrets }
    }

    /// Waits until the replica is ready: it has listed the ClusterTunnels.
    pub async fn wait_ready(&self) {
        eventually(&format!("{} is ready", self.place.name), || async {
            self.child.as_ref().unwrap().check().unwrap();
            let response = self.get("/readyz").await.ok()?;
            response.starts_with("HTTP/1.1 200").then_some(())
        })
        .await;
    }

    /// Returns the metrics of the replica: name with labels → value.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let body = self.get("/metrics").await.unwrap();
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect()
    }

    /// Returns the whole response of one of its endpoints.
    async fn get(&self, path: &str) -> std::io::Result<String> {
        let request = async {
            let mut stream = match &self.place.network_namespace {
                Some(namespace) => netns::connect(namespace, self.place.metrics, REQUEST_TIMEOUT).await?,
                None => TcpStream::connect(self.place.metrics).await?,
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut response = String::new();
            stream.read_to_string(&mut response).await?;
            Ok::<_, std::io::Error>(response)
        };
        tokio::time::timeout(REQUEST_TIMEOUT, request).await.map_err(std::io::Error::other)?
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().pid()
    }

    pub fn logs(&self) -> String {
        read(&self.log)
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(mut self) -> HubPlace {
        self.assert_no_leaks().await;
        self.child.take().unwrap().kill().await;
        self.place.clone()
    }

    /// Stops the process gracefully: it lets streams end for a while.
    pub async fn stop(mut self) -> HubPlace {
        self.assert_no_leaks().await;
        self.child.take().unwrap().stop(Duration::from_secs(30)).await;
        self.place.clone()
    }

    /// Fails the test if logs, metrics, arguments or environment of the replica contain a secret.
    async fn assert_no_leaks(&self) {
        let mut outputs = vec![(format!("log of {}", self.place.name), self.logs())];
        outputs.extend(canary::process(self.pid()));
        outputs.extend(self.get("/metrics").await.ok().map(|text| ("metrics of the hub".to_owned(), text)));
        canary::assert_no_leaks(&self.secrets, &outputs);
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
