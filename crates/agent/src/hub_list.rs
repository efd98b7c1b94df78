//! Decides whether a list of hubs that arrived through the tunnel is used.
//!
//! A hub that was stolen can send its agents elsewhere, because they trust its authority. It must not be able to keep them there
//! after it was replaced: it cannot remove its own installation from the list, nor make a list that no later one replaces, and
//! the hubs in `agent.yaml` are tried again if those of the list cannot be reached.

use std::time::Duration;

use chandler_tunnel::{
    HubEndpoint,
    agent_config::MAX_HUBS,
    tls::{Protocol, TlsError, agent_client_config, server_name},
    token::TOKEN_LIFETIME,
};
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::{config::issued, state::StateError};

/// No token is valid for longer, even if the clocks of agent and hub differ.
const LONGEST_TOKEN: Duration = TOKEN_LIFETIME.saturating_mul(2);

/// Why a list of hubs is refused. The messages contain nothing of its tokens.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("the list names no hub")]
    Empty,
    #[error("the list names {0} hubs, which is more than {MAX_HUBS}")]
    TooMany(usize),
    #[error("the hub {0} cannot be used: {1}")]
    Hub(String, TlsError),
    #[error("the list names no hub of the installation that sends it")]
    WithoutSender,
    #[error(
        "a join token in the list is valid until {0}, and no hub signs one for so long; is the clock right?"
    )]
    LongToken(Timestamp),
    #[error("the list cannot be stored: {0}")]
    Store(#[from] StateError),
    #[error("the list cannot be stored: {0}")]
    Write(#[from] serde_json::Error),
    #[error("the list cannot be stored: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Checks a list that the hub `sender` has sent. Hubs of other installations are added before a cluster moves to them; after the
/// move, these send lists without the old one.
pub fn check(hubs: &[HubEndpoint], sender: &HubEndpoint, now: Timestamp) -> Result<(), ListError> {
    if hubs.is_empty() {
        return Err(ListError::Empty);
    }
    if hubs.len() > MAX_HUBS {
        return Err(ListError::TooMany(hubs.len()));
    }
    hubs.iter().try_for_each(|hub| {
        let unusable = |error| ListError::Hub(hub.address.clone(), error);
        server_name(&hub.address).map_err(unusable)?;
        if !has_port(&hub.address) {
            return Err(unusable(TlsError::InvalidAddress { address: hub.address.clone() }));
        }
        agent_client_config(&hub.ca_bundle, None, Protocol::Join).map(drop).map_err(unusable)
    })?;
    if !hubs.iter().any(|hub| share_authority(hub, sender)) {
        return Err(ListError::WithoutSender);
    }
    let latest = now.saturating_add(LONGEST_TOKEN).unwrap_or(now);
    match issued(hubs) {
        Some(expires) if expires > latest => Err(ListError::LongToken(expires)),
        _ => Ok(()),
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// Returns the hubs of `agent.yaml` to try if no hub of the list can be reached. An installation that is not in the list any more
/// is not one of them: the cluster was moved away from it.
pub fn fallback(file: &[HubEndpoint], list: &[HubEndpoint]) -> Vec<HubEndpoint> {
    let is_missing = |hub: &&HubEndpoint| list.iter().all(|listed| listed.address != hub.address);
    let is_left = |hub: &&HubEndpoint| list.iter().any(|listed| share_authority(listed, hub));
    file.iter().filter(is_missing).filter(is_left).cloned().collect()
}

/// Returns whether two hubs belong to the same installation: both trust the same certificate.
fn share_authority(one: &HubEndpoint, other: &HubEndpoint) -> bool {
    let others = authorities(other);
    authorities(one).iter().any(|authority| others.contains(authority))
}

fn authorities(hub: &HubEndpoint) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(hub.ca_bundle.as_bytes()).filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use chandler_tunnel::{CertificateAuthority, Installation, JoinToken, SigningKey, TunnelId, TunnelOwner};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn authority() -> String {
        let installation = Installation::random().unwrap();
        CertificateAuthority::generate(installation, now()).unwrap().certificate_pem().to_owned()
    }

    fn hub(address: &str, ca_bundle: &str, lifetime: Duration) -> HubEndpoint {
        let (tunnel, owner) = (TunnelId::random().unwrap(), TunnelOwner::of("fleet", "blue"));
        let token = JoinToken { tunnel, owner, epoch: 1, expires: now() + lifetime };
        let token = token.sign(&SigningKey::generate().unwrap());
        HubEndpoint { address: address.to_owned(), ca_bundle: ca_bundle.to_owned(), token }
    }

    #[test]
    fn a_hub_cannot_take_its_agents_away_from_its_installation() {
        let (own, other, day) = (authority(), authority(), TOKEN_LIFETIME);
        let sender = hub("own:443", &own, day);
        let garbage = HubEndpoint { token: "garbage".into(), ..sender.clone() };
        let rows = [
            ("the same hub", vec![hub("own:443", &own, day)], None),
            ("another address", vec![hub("new:443", &own, day)], None),
            ("a prepared move", vec![sender.clone(), hub("other:443", &other, day)], None),
            ("a rotated authority", vec![hub("own:443", &format!("{own}{other}"), day)], None),
            ("a token that cannot be read", vec![garbage], None),
            ("the longest list", vec![sender.clone(); MAX_HUBS], None),
            ("no hub", vec![], Some("no hub")),
            ("too many", vec![sender.clone(); MAX_HUBS + 1], Some("9 hubs")),
            ("only another installation", vec![hub("own:443", &other, day)], Some("that sends it")),
            ("no authority", vec![hub("own:443", "garbage", day)], Some("cannot be used")),
            ("no port", vec![hub("own", &own, day)], Some("cannot be used")),
            ("a token for years", vec![hub("own:443", &own, 1000 * day)], Some("valid until")),
            ("one of two", vec![sender.clone(), hub("own:1", &own, 3 * day)], Some("valid until")),
        ];
        for (case, list, expected) in rows {
            let refused = check(&list, &sender, now()).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(refused, None, "{case}"),
                Some(text) => assert!(
                    refused.as_ref().is_some_and(|refused| refused.contains(text)),
                    "{case}: {refused:?}"
                ),
            }
        }
    }

    #[test]
    fn hubs_of_the_file_are_tried_again_unless_the_cluster_was_moved() {
        let (own, other, day) = (authority(), authority(), TOKEN_LIFETIME);
        let file = [hub("own:443", &own, day), hub("second:443", &own, day)];
        let rows: [(Vec<HubEndpoint>, &[&str]); 4] = [
            (vec![hub("elsewhere:443", &own, day)], &["own:443", "second:443"]),
            (vec![hub("own:443", &own, day)], &["second:443"]),
            (vec![hub("own:443", &own, day), hub("second:443", &own, day)], &[]),
            (vec![hub("other:443", &other, day)], &[]),
        ];
        for (list, expected) in rows {
            let fallback = fallback(&file, &list);
            let addresses: Vec<_> = fallback.iter().map(|hub| hub.address.as_str()).collect();
            assert_eq!(addresses, expected);
        }
    }
}
