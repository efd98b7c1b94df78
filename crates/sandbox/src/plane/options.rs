//! The configuration of a control plane.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use super::SharedEtcd;

/// The configuration of a control plane.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    pub name: String,
    /// The folder with all data. A control plane that is started in the same folder again has the same data.
    pub dir: PathBuf,
    /// `None` means only etcd and the API server. `Some(n)` adds the controller manager, the scheduler and `n` Nodes
    /// whose Pods become Ready.
    pub nodes: Option<u32>,
    /// `None` means the port of the last start if it is free, otherwise any free port.
    pub port: Option<u16>,
    /// The folder of a [`SharedEtcd`] in which the name is the prefix of all data. `None` means an etcd of its own.
    pub shared_etcd: Option<PathBuf>,
    pub network: Network,
}

/// Where the processes of a control plane run, and where its API server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The network namespace of all processes. `None` means that of this process.
    pub namespace: Option<String>,
    /// The only address on which the API server listens.
    pub address: IpAddr,
    /// A name of the API server. Nothing has to resolve it: it may be known only behind a proxy.
    pub host_name: Option<String>,
}

impl Network {
    /// Returns the host that clients elsewhere connect to.
    pub fn public_host(&self) -> String {
        self.host_name.clone().unwrap_or_else(|| match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        })
    }

    /// Returns the names of the API server, for its certificate.
    pub(super) fn names(&self) -> Vec<String> {
        let address = (!self.address.is_loopback()).then(|| self.address.to_string());
        address.into_iter().chain(self.host_name.clone()).collect()
    }
}

impl Default for Network {
    fn default() -> Self {
        Self { namespace: None, address: Ipv4Addr::LOCALHOST.into(), host_name: None }
    }
}

impl PlaneOptions {
    /// Only etcd and the API server.
    pub fn bare(name: &str, dir: &Path) -> Self {
        Self {
            name: name.to_owned(),
            dir: dir.to_owned(),
            nodes: None,
            port: None,
            shared_etcd: None,
            network: Network::default(),
        }
    }

    /// Only the API server, with a shared etcd. Takes the least CPU time and memory.
    pub fn sharing(etcd: &SharedEtcd, name: &str, dir: &Path) -> Self {
        Self { shared_etcd: Some(etcd.dir().to_owned()), ..Self::bare(name, dir) }
    }

    /// With controller manager, scheduler and Nodes.
    pub fn full(name: &str, dir: &Path, nodes: u32) -> Self {
        Self { nodes: Some(nodes), ..Self::bare(name, dir) }
    }
}
