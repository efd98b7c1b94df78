//! Two network namespaces, the hub's and the site's, and the link between them.
//!
//! ```text
//! hub (hub, clients) 198.18.0.1 ─ link ─ 198.18.0.2 site (agent, target)
//! ```

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    netns::{self, NetworkNamespace},
    packet_link::{Conditions, End, PacketLink},
};
use tokio::net::TcpListener;

/// The addresses of RFC 2544, which are reserved for benchmarks.
pub const HUB: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const SITE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// The namespaces and their link, which are removed when this is dropped.
#[derive(Debug)]
pub struct Network {
    pub link: PacketLink,
    pub hub: NetworkNamespace,
    pub site: NetworkNamespace,
}

impl Network {
    /// Creates the namespaces and the link. Requires root, the `ip` command and TUN devices.
    pub fn create(conditions: Conditions) -> Result<Self> {
        let create =
            |label| NetworkNamespace::create(label).context("the benchmark needs network namespaces");
        let (hub, site) = (create("hub")?, create("site")?);
        let (hub_address, site_address) = (format!("{HUB}/30"), format!("{SITE}/30"));
        let ends = [
            End { namespace: Some(&hub), interface: "site", address: &hub_address },
            End { namespace: Some(&site), interface: "hub", address: &site_address },
        ];
        let link = PacketLink::start(ends, conditions)?;
        Ok(Self { link, hub, site })
    }

    /// Returns the algorithm with which TCP reacts to losses, which differs between machines.
    pub async fn congestion_control(&self) -> Result<String> {
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        let name = netns::run_in(self.site.name(), read).await.context("reading the congestion control")?;
        Ok(name.trim().to_owned())
    }
}

/// Listens on an address in a namespace.
pub async fn listen(namespace: &NetworkNamespace, address: impl Into<SocketAddr>) -> Result<TcpListener> {
    let address = address.into();
    let bind = move || {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let listener =
        netns::run_in(namespace.name(), bind).await.with_context(|| format!("listening on {address}"))?;
    Ok(TcpListener::from_std(listener)?)
}
