//! `chandler hub`

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use chandler_hub::{Addresses, HubOptions, PeerOptions, Replica, RunOptions};
use chandler_tunnel::keys::service_name;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    connection::Connection,
    logging::{self, LogFormat},
    manager::{raise_open_files_limit, stop_on_signal},
};

/// The largest length of the name of an annotation, without its prefix.
const MAX_NAME_LENGTH: usize = 63;

#[derive(Debug, Args)]
pub struct HubArgs {
    #[command(flatten)]
    connection: Connection,
    /// Directory with the files of the Secret chandler-tunnel-keys
    #[arg(long, default_value = "/etc/chandler-tunnel")]
    keys_dir: PathBuf,
    /// Listen address of the proxy for clients in the management cluster
    #[arg(long, default_value = "0.0.0.0:8132")]
    proxy_address: SocketAddr,
    /// Listen address for agents
    #[arg(long, default_value = "0.0.0.0:8443")]
    public_address: SocketAddr,
    /// Listen address for other replicas of the hub
    #[arg(long, default_value = "0.0.0.0:8134")]
    peer_address: SocketAddr,
    /// Listen address of /metrics, /healthz and /readyz
    #[arg(long, default_value = "127.0.0.1:8081")]
    metrics_address: SocketAddr,
    /// Host and port that resolve to all replicas of the hub, such as that of a headless Service [default: no other replicas]
    #[arg(long, value_name = "HOST:PORT")]
    peers: Option<String>,
    /// Name of this replica, which is that of its Pod [default: the host name]
    #[arg(long, env = "POD_NAME")]
    name: Option<String>,
    /// Namespace of the hub
    #[arg(long, env = "POD_NAMESPACE", default_value = "chandler-system")]
    namespace: String,
    /// Maximum size in MiB of all data that waits in buffers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    buffer_limit: u64,
    /// How many seconds open streams may take to end when the hub is stopped; then they are cut
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    drain_seconds: u64,
    /// Log level, or a list such as `info,chandler_hub=debug`
    #[arg(long, default_value = "info")]
    log_level: String,
    /// Log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

pub async fn run(arguments: HubArgs) -> Result<()> {
    let HubArgs {
        connection,
        keys_dir,
        proxy_address,
        public_address,
        peer_address,
        metrics_address,
        peers,
        name,
        namespace,
        buffer_limit,
        drain_seconds,
        log_level,
        log_format,
    } = arguments;
    logging::start(&log_level, log_format)?;
    raise_open_files_limit();
    let name = name.or_else(host_name).context("finding the name of this replica; set it with --name")?;
    check_name(&name)?;
    let addresses = Addresses { proxy: proxy_address, public: public_address, peer: peer_address };
    let peers = peers.map(|address| PeerOptions { address, server_name: service_name(&namespace) });
    let hub = HubOptions {
        peers,
        buffer_limit: usize::try_from(buffer_limit << 20)?,
        drain_timeout: Duration::from_secs(drain_seconds),
        ..HubOptions::new(addresses)
    };
    let options = RunOptions { hub, replica: Replica { name, namespace }, keys_dir, metrics_address };
    let client = connection.client().await?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    Ok(chandler_hub::run(client, options, stop).await?)
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_lowercase()).filter(|name| !name.is_empty())
}

/// Checks the name of a replica, which is part of the name of an annotation.
fn check_name(name: &str) -> Result<()> {
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let has_ends = ends.into_iter().all(|byte| byte.is_some_and(u8::is_ascii_alphanumeric));
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    if name.len() > MAX_NAME_LENGTH || !has_ends || !bytes.iter().all(is_allowed) {
        bail!(
            "{name:?} cannot be the name of this replica: it must have at most {MAX_NAME_LENGTH} letters, digits, `-`, `_` and \
             `.`, and begin and end with a letter or digit; set another one with --name"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_replicas_are_checked() {
        let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
        for (name, valid) in [
            ("chandler-hub-7d9c5b6f4-x2x9z", true),
            ("node_1.example", true),
            ("7", true),
            (longest.as_str(), true),
            (too_long.as_str(), false),
            ("", false),
            ("-hub", false),
            ("hub.", false),
            ("hub/1", false),
            ("hub 1", false),
            ("h\u{fc}b", false),
        ] {
            assert_eq!(check_name(name).is_ok(), valid, "{name:?}");
        }
    }
}
