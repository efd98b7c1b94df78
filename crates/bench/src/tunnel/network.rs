//! Three network namespaces: the hub's, the site's, and the network between them.
//!
//! ```text
//! hub (hub, clients) 198.18.0.1 ─ 198.18.0.2 wan 198.18.0.5 ─ 198.18.0.6 site (agent, target)
//! ```
//!
//! Nothing is routed in `wan`: only the link, which runs there, connects the two sides.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};

use anyhow::{Context as _, Result};
use chandler_sandbox::netns::{self, LinkEnd, NetworkNamespace, connect_namespaces};
use tokio::net::TcpListener;

/// The addresses of RFC 2544, which are reserved for benchmarks.
pub const HUB: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const WAN_TO_HUB: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub const WAN_TO_SITE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 5);
pub const SITE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 6);

/// The namespaces, which are removed when this is dropped.
#[derive(Debug)]
pub struct Network {
    pub hub: NetworkNamespace,
    pub wan: NetworkNamespace,
    pub site: NetworkNamespace,
}

impl Network {
    /// Creates the namespaces. Requires root and the `ip` command.
    pub fn create() -> Result<Self> {
        let create =
            |label| NetworkNamespace::create(label).context("the benchmark needs network namespaces");
        let network = Self { hub: create("hub")?, wan: create("wan")?, site: create("site")? };
        let Self { hub, wan, site } = &network;
        connect((hub, "wan", HUB), (wan, "hub", WAN_TO_HUB))?;
        connect((wan, "site", WAN_TO_SITE), (site, "wan", SITE))?;
        Ok(network)
    }
}

type End<'a> = (&'a NetworkNamespace, &'a str, Ipv4Addr);

fn connect(one: End<'_>, other: End<'_>) -> Result<()> {
    let address = |(_, _, address): End<'_>| format!("{address}/30");
    let (one_address, other_address) = (address(one), address(other));
    Ok(connect_namespaces(
        &LinkEnd { namespace: one.0, interface: one.1, address: &one_address },
        &LinkEnd { namespace: other.0, interface: other.1, address: &other_address },
    )?)
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
