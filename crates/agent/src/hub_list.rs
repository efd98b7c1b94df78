//! Decides whether a list of hubs that arrived through the tunnel is used.
//!
//! A hub that was stolen can send its agents elsewhere, because they trust its authority. It must not be able to keep them there
//! after it was replaced: it cannot remove its own installation from the list, nor make a list that no later one replaces, and
//! the hubs in `agent.yaml` are tried again while the list names their installation and none of its hubs is connected. Only a
//! move ends that, which a stolen hub can prepare, too: then `agent.yaml` has to be replaced.

use std::time::Duration;

use chandler_tunnel::{
    HubEndpoint,
    agent_config::MAX_HUBS,
    tls::{Protocol, TlsError, agent_client_config, server_name},
    token::TOKEN_LIFETIME,
};
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::{config::issued, state::StateError, status::Connection};

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

/// Returns the hubs of `agent.yaml` to try beside those of the list, because no hub of their installation is connected. Hubs of
/// other installations do not count: a stolen hub may have added them. An installation that is not in the list any more is not
/// tried: the cluster was moved away from it.
pub fn fallback(file: &[HubEndpoint], list: &[HubEndpoint], connected: &[Connection]) -> Vec<HubEndpoint> {
    let is_missing = |hub: &&HubEndpoint| !list.iter().any(|listed| is_same(listed, hub));
    let is_left = |hub: &&HubEndpoint| list.iter().any(|listed| share_authority(listed, hub));
    let is_unconnected = |hub: &&HubEndpoint| {
        !connected.iter().any(|connection| have_common(&connection.ca_bundle, &hub.ca_bundle))
    };
    file.iter().filter(is_missing).filter(is_left).filter(is_unconnected).cloned().collect()
}

/// Returns whether a hub is stopped: it is not in the list, and the list is known to work. If the list names the installation of
/// the hub, it works only if a hub of that installation is connected.
pub fn is_obsolete(hub: &HubEndpoint, list: &[HubEndpoint], connected: &[Connection]) -> bool {
    if list.iter().any(|listed| is_same(listed, hub)) {
        return false;
    }
    let is_left = list.iter().any(|listed| share_authority(listed, hub));
    let is_connected =
        |listed: &&HubEndpoint| connected.iter().any(|connection| leads_to(connection, listed));
    list.iter().filter(is_connected).any(|listed| !is_left || share_authority(listed, hub))
}

/// Returns whether two entries are the same hub. One with the same address and another authority is another hub: it may be in
/// the list of a stolen one to hide the real one.
pub fn is_same(one: &HubEndpoint, other: &HubEndpoint) -> bool {
    one.address == other.address && share_authority(one, other)
}

fn leads_to(connection: &Connection, hub: &HubEndpoint) -> bool {
    connection.hub == hub.address && have_common(&connection.ca_bundle, &hub.ca_bundle)
}

/// Returns whether two hubs belong to the same installation: both trust the same certificate.
fn share_authority(one: &HubEndpoint, other: &HubEndpoint) -> bool {
    have_common(&one.ca_bundle, &other.ca_bundle)
}

/// Returns whether two bundles have a certificate in common. Equal ones have, even if they cannot be read.
fn have_common(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let others = authorities(other);
    authorities(one).iter().any(|authority| others.contains(authority))
}

fn authorities(ca_bundle: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(ca_bundle.as_bytes()).filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use std::time::Instant;

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

    fn connection(address: &str, ca_bundle: &str) -> Connection {
        let (hub, ca_bundle) = (address.to_owned(), ca_bundle.to_owned());
        Connection { hub, ca_bundle, replica: None, since: Instant::now() }
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
        type Addresses = &'static [&'static str];
        let (own, other, day) = (authority(), authority(), TOKEN_LIFETIME);
        let rotated = format!("{own}{other}");
        let file = [hub("own:443", &own, day), hub("second:443", &own, day)];
        let gone = hub("elsewhere:443", &own, day);
        let foreign = hub("other:443", &other, day);
        let rows: [(&str, Vec<HubEndpoint>, Vec<Connection>, Addresses); 9] = [
            ("other addresses", vec![gone.clone()], vec![], &["own:443", "second:443"]),
            ("one address", vec![hub("own:443", &own, day)], vec![], &["second:443"]),
            ("all addresses", file.to_vec(), vec![], &[]),
            ("moved", vec![foreign.clone()], vec![], &[]),
            (
                "the address of a foreign authority",
                vec![gone.clone(), hub("own:443", &other, day)],
                vec![],
                &["own:443", "second:443"],
            ),
            ("a rotated authority", vec![hub("own:443", &rotated, day)], vec![], &["second:443"]),
            (
                "only another installation is connected",
                vec![gone.clone(), foreign.clone()],
                vec![connection("other:443", &other)],
                &["own:443", "second:443"],
            ),
            (
                "the installation is connected",
                vec![gone.clone(), foreign],
                vec![connection("elsewhere:443", &own)],
                &[],
            ),
            ("by another address", vec![gone], vec![connection("second:443", &own)], &[]),
        ];
        for (case, list, connected, expected) in rows {
            let fallback = fallback(&file, &list, &connected);
            let addresses: Vec<_> = fallback.iter().map(|hub| hub.address.as_str()).collect();
            assert_eq!(addresses, expected, "{case}");
        }
    }

    #[test]
    fn a_hub_is_stopped_when_the_list_without_it_is_known_to_work() {
        let (own, other, day) = (authority(), authority(), TOKEN_LIFETIME);
        let old = hub("own:443", &own, day);
        let (new, foreign) = (hub("new:443", &own, day), hub("other:443", &other, day));
        let to_new = || vec![connection("new:443", &own)];
        let to_foreign = || vec![connection("other:443", &other)];
        let posing = hub("own:443", &other, day);
        let rows = [
            ("in the list", vec![old.clone(), new.clone()], to_new(), false),
            ("the new one is not connected", vec![new.clone()], vec![], false),
            ("the new one is connected", vec![new.clone()], to_new(), true),
            (
                "a move is prepared, its installation is lost",
                vec![new.clone(), foreign.clone()],
                to_foreign(),
                false,
            ),
            ("a move is prepared", vec![new.clone(), foreign.clone()], to_new(), true),
            ("moved", vec![foreign.clone()], to_foreign(), true),
            ("moved, not connected", vec![foreign], vec![connection("own:443", &own)], false),
            ("its address with a foreign authority", vec![new, posing.clone()], to_new(), true),
            ("moved behind the same address", vec![posing], vec![connection("own:443", &own)], false),
        ];
        for (case, list, connected, expected) in rows {
            assert_eq!(is_obsolete(&old, &list, &connected), expected, "{case}");
        }
        let unreadable = hub("own:443", "garbage", day);
        assert!(is_same(&unreadable, &unreadable), "it is not started again and again");
    }
}
