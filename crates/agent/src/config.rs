//! The settings of the agent: `agent.yaml`, and the list of hubs that arrived through the tunnel.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use chandler_tunnel::{
    AgentConfig, HubEndpoint, JoinToken, agent_config::AgentConfigError, join_message::HubList,
    token::TOKEN_LIFETIME,
};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;

use crate::{
    dial::{HttpProxy, InvalidProxy},
    state::{StateDir, StateError},
};

/// Default of [`Settings::fallback_after`]. A hub that is restarted takes less.
const FALLBACK_AFTER: Duration = Duration::from_mins(10);

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}; name the configuration with `--config FILE`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Content(#[from] AgentConfigError),
    #[error(transparent)]
    Proxy(#[from] InvalidProxy),
    #[error("`connections` is 0: an agent needs at least one connection to each hub")]
    NoConnections,
    #[error(transparent)]
    State(#[from] StateError),
}

/// The settings of a running agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What `agent.yaml` says, with the newest list of hubs.
    pub config: AgentConfig,
    /// The hubs in `agent.yaml`, which are tried again if those of the same installation in the newest list cannot be reached.
    pub file_hubs: Vec<HubEndpoint>,
    /// How long no hub of an installation is connected before its hubs in `agent.yaml` are tried.
    pub fallback_after: Duration,
    pub proxy: Option<HttpProxy>,
    pub state: StateDir,
}

impl Settings {
    /// Reads the configuration file and what the agent has stored.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(failed)?;
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!("{} contains a join token, but other users can read it", path.display());
        }
        Self::new(AgentConfig::from_yaml(&text)?)
    }

    /// Completes a configuration by what the agent has stored.
    pub fn new(mut config: AgentConfig) -> Result<Self, ConfigError> {
        if config.connections == 0 {
            return Err(ConfigError::NoConnections);
        }
        let proxy = config.proxy.as_ref().map(|url| url.expose_secret().parse()).transpose()?;
        let state = StateDir::open(&config.state_dir)?;
        let file_hubs = config.hubs.clone();
        config.hubs = newer(config.hubs, stored_hubs(&state)?, Timestamp::now());
        Ok(Self { config, file_hubs, fallback_after: FALLBACK_AFTER, proxy, state })
    }
}

/// Returns the list of hubs that arrived through the tunnel. One that cannot be read counts as none, because the agent must
/// connect with the list in `agent.yaml` to receive another.
fn stored_hubs(state: &StateDir) -> Result<Vec<HubEndpoint>, StateError> {
    let Some(json) = state.hubs()? else { return Ok(Vec::new()) };
    let list = serde_json::from_str::<HubList>(&json);
    if list.is_err() {
        tracing::warn!("the stored list of hubs cannot be read; using the one in the configuration");
    }
    Ok(list.map_or_else(|_| Vec::new(), |list| list.hubs))
}

/// Returns the stored list if it is newer than the one in the configuration file.
fn newer(file: Vec<HubEndpoint>, stored: Vec<HubEndpoint>, now: Timestamp) -> Vec<HubEndpoint> {
    if !stored.is_empty() && issued_by(&stored, now) > issued(&file) { stored } else { file }
}

/// Returns the latest expiry of the tokens in a list, by which two lists are compared: Chandler writes new tokens into each
/// list. `None`, which is older than every list, means that no token can be read.
pub(crate) fn issued(hubs: &[HubEndpoint]) -> Option<Timestamp> {
    hubs.iter().filter_map(token).map(|token| token.expires).max()
}

/// Like [`issued`], of a list that is known at this time: a hub whose clock is right cannot have signed a token that expires
/// later. Otherwise a stolen hub could make a list that is newer than all others for as long as tokens may differ.
pub(crate) fn issued_by(hubs: &[HubEndpoint], now: Timestamp) -> Option<Timestamp> {
    let latest = now.saturating_add(TOKEN_LIFETIME).unwrap_or(now);
    issued(hubs).map(|expires| expires.min(latest))
}

/// Reads the token of a hub, which only the hub can verify.
pub(crate) fn token(hub: &HubEndpoint) -> Option<JoinToken> {
    JoinToken::read_unverified(hub.token.expose_secret()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use chandler_tunnel::{Installation, SigningKey, TunnelId, TunnelOwner};

    use super::*;

    fn hub(address: &str, expires: Option<i64>) -> HubEndpoint {
        let token = expires.map_or_else(
            || "garbage".into(),
            |second| {
                let (tunnel, owner) = (TunnelId::random().unwrap(), TunnelOwner::of("fleet", "blue"));
                let expires = Timestamp::from_second(second).unwrap();
                JoinToken { tunnel, owner, epoch: 1, expires }.sign(&SigningKey::generate().unwrap())
            },
        );
        HubEndpoint { address: address.to_owned(), ca_bundle: "CA".to_owned(), token }
    }

    #[test]
    fn the_newer_list_of_hubs_wins() {
        type Expiries = &'static [Option<i64>];
        let now = Timestamp::from_second(100).unwrap();
        let rows: [(Expiries, Expiries, &str); 9] = [
            // (expiry of the tokens in the file, of the stored ones, winner)
            (&[Some(10)], &[], "file"),
            (&[Some(10)], &[Some(20)], "stored"),
            (&[Some(20)], &[Some(10)], "file"),
            (&[Some(10)], &[Some(10)], "file"),
            (&[Some(10)], &[Some(5), Some(20)], "stored"),
            (&[Some(10)], &[None], "file"),
            (&[None], &[Some(10)], "stored"),
            // A token that is valid for two days does not make a list newer than one that is written now.
            (&[Some(86_500)], &[Some(172_900)], "file"),
            (&[Some(86_499)], &[Some(172_900)], "stored"),
        ];
        for (file, stored, winner) in rows {
            let list = |name, times: &[Option<i64>]| times.iter().map(|time| hub(name, *time)).collect();
            let hubs = newer(list("file", file), list("stored", stored), now);
            assert_eq!(hubs[0].address, winner, "file {file:?}, stored {stored:?}");
        }
    }

    #[test]
    fn settings_are_the_file_and_the_stored_list() {
        let temporary = tempfile::tempdir().unwrap();
        let config = AgentConfig {
            installation: Installation::random().unwrap(),
            tunnel: TunnelId::random().unwrap(),
            hubs: vec![hub("file", Some(10))],
            target: "127.0.0.1:6443".to_owned(),
            proxy: Some("http://user:password@proxy:3128".into()),
            state_dir: temporary.path().join("state"),
            connections: 2,
        };
        let path = temporary.path().join("agent.yaml");
        fs::write(&path, config.to_yaml().unwrap().expose_secret()).unwrap();
        let settings = Settings::load(&path).unwrap();
        assert_eq!(settings.config.hubs[0].address, "file");
        assert_eq!(settings.proxy.unwrap().to_string(), "proxy:3128");

        let list = HubList { hubs: vec![hub("stored", Some(20))] };
        settings.state.set_hubs(&serde_json::to_string(&list).unwrap()).unwrap();
        let settings = Settings::load(&path).unwrap();
        assert_eq!(settings.config.hubs[0].address, "stored");
        assert_eq!(settings.file_hubs[0].address, "file");
        settings.state.set_hubs("half a fi").unwrap();
        assert_eq!(Settings::load(&path).unwrap().config.hubs[0].address, "file");

        let missing = Settings::load(&temporary.path().join("missing")).unwrap_err();
        assert!(missing.to_string().contains("--config FILE"), "{missing}");
        let none = Settings::new(AgentConfig { connections: 0, ..config.clone() }).unwrap_err();
        assert!(matches!(none, ConfigError::NoConnections));
        let proxy = Some("socks5://user:password@proxy".into());
        let unsupported = Settings::new(AgentConfig { proxy, ..config }).unwrap_err().to_string();
        assert!(unsupported.contains("not supported") && !unsupported.contains("password"), "{unsupported}");
    }
}
