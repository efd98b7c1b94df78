//! The agent's binary, as a site runs it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    netns::NetworkNamespace,
    process::{Child, Spec},
};
use chandler_tunnel::{
    AgentConfig, HubEndpoint, JoinToken, TunnelKey, TunnelKeys, agent_config::DEFAULT_CONNECTIONS,
    token::TOKEN_LIFETIME,
};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use super::hub_process::EPOCH;

/// Returns the entry of a hub in the configuration of an agent.
pub fn endpoint(keys: &TunnelKeys, tunnel: TunnelKey, hub: SocketAddr) -> Result<HubEndpoint> {
    let expires = Timestamp::from_second((Timestamp::now() + TOKEN_LIFETIME).as_second())?;
    let TunnelKey { id, owner } = tunnel;
    let token = JoinToken { tunnel: id, owner, epoch: EPOCH, expires }.sign(&keys.signing);
    Ok(HubEndpoint { address: hub.to_string(), ca_bundle: keys.ca_bundle().to_owned(), token })
}

/// Returns the configuration of an agent with its files in `state_dir`.
pub fn config(
    keys: &TunnelKeys,
    tunnel: TunnelKey,
    hub: SocketAddr,
    target: SocketAddr,
    state_dir: PathBuf,
) -> Result<AgentConfig> {
    Ok(AgentConfig {
        installation: keys.installation,
        tunnel: tunnel.id,
        hubs: vec![endpoint(keys, tunnel, hub)?],
        target: target.to_string(),
        proxy: None,
        state_dir,
        connections: DEFAULT_CONNECTIONS,
    })
}

/// Starts the binary in a network namespace.
pub fn start(agent: &Path, config: &AgentConfig, dir: &Path, site: &NetworkNamespace) -> Result<Child> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let file = dir.join("agent.yaml");
    fs::write(&file, config.to_yaml()?.expose_secret())?;
    let spec = Spec {
        name: "agent".to_owned(),
        program: agent.to_owned(),
        args: vec!["--config".to_owned(), file.to_string_lossy().into_owned()],
        env: Vec::new(),
        home: dir.to_owned(),
    };
    Ok(Child::spawn(&spec.in_network_namespace(site.name()))?)
}
