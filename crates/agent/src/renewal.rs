//! Decides when the agent needs another certificate.

use std::time::Duration;

use chandler_tunnel::{CertificateFacts, JoinToken, TunnelId};
use jiff::Timestamp;

/// The clock may be set, and a machine may sleep: the decision is made again after this time.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// The shortest time between two attempts to renew.
const SHORTEST_WAIT: Duration = Duration::from_mins(1);

/// What to do before the agent uses its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Use it.
    Use,
    /// Renew it, with it. It is valid meanwhile.
    Renew,
    /// Join with the token: there is no certificate, or the hub no longer accepts it.
    Join,
}

/// Decides for the certificate of one installation. `token` is what the token for this installation says.
///
/// A token of a later epoch means that the certificate was revoked, and that Chandler allows this agent to join again. If the hub
/// has refused the certificate (`refused`), a token that is still valid is worth an attempt.
pub fn action(
    certificate: Option<&CertificateFacts>,
    tunnel: TunnelId,
    token: Option<JoinToken>,
    refused: bool,
    now: Timestamp,
) -> Action {
    let Some((facts, identity)) = certificate.and_then(|facts| Some((facts, facts.agent().ok()?))) else {
        return Action::Join;
    };
    let is_revoked = token.is_some_and(|token| token.epoch > identity.epoch);
    let can_join = token.is_some_and(|token| now < token.expires);
    if identity.tunnel != tunnel || now >= facts.not_after || is_revoked || (refused && can_join) {
        Action::Join
    } else if now >= facts.renew_agent_at() {
        Action::Renew
    } else {
        Action::Use
    }
}

/// Returns how long to wait until the decision is made again.
pub fn wait(certificate: Option<&CertificateFacts>, now: Timestamp) -> Duration {
    let remaining = certificate.map(|facts| facts.renew_agent_at().duration_since(now));
    let remaining = remaining.and_then(|remaining| Duration::try_from(remaining).ok()).unwrap_or_default();
    remaining.clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use chandler_tunnel::{
        CertificateAuthority, Installation, TunnelIdentity, TunnelOwner,
        authority::{certificate_request, generate_key_pem},
    };

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn start() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn owner() -> TunnelOwner {
        TunnelOwner::of("fleet", "blue")
    }

    fn certificate(tunnel: TunnelId, epoch: u32) -> CertificateFacts {
        let installation = Installation::random().unwrap();
        let authority = CertificateAuthority::generate(installation, start()).unwrap();
        let request = certificate_request(&generate_key_pem().unwrap()).unwrap();
        let identity = TunnelIdentity { installation, tunnel, owner: owner(), epoch };
        CertificateFacts::from_pem(&authority.sign_agent(&request, identity, start()).unwrap()).unwrap()
    }

    #[test]
    fn a_certificate_is_used_renewed_or_replaced() {
        let tunnel = TunnelId::random().unwrap();
        let facts = certificate(tunnel, 3);
        let other = certificate(TunnelId::random().unwrap(), 3);
        let token =
            |epoch, days| Some(JoinToken { tunnel, owner: owner(), epoch, expires: start() + DAY * days });
        let rows = [
            // (certificate, token, refused, age in days, action)
            (None, token(3, 1), false, 0, Action::Join),
            (None, None, false, 0, Action::Join),
            (Some(&facts), None, false, 0, Action::Use),
            (Some(&facts), token(3, 1), false, 29, Action::Use),
            (Some(&facts), token(3, 1), false, 31, Action::Renew),
            (Some(&facts), None, false, 89, Action::Renew),
            (Some(&facts), None, false, 90, Action::Join),
            (Some(&facts), token(4, 1), false, 0, Action::Join),
            (Some(&facts), token(2, 1), false, 0, Action::Use),
            (Some(&facts), token(3, 1), true, 0, Action::Join),
            (Some(&facts), token(3, 1), true, 2, Action::Use),
            (Some(&facts), None, true, 0, Action::Use),
            (Some(&other), token(3, 1), false, 0, Action::Join),
        ];
        for (index, (certificate, token, refused, days, expected)) in rows.into_iter().enumerate() {
            let chosen = action(certificate, tunnel, token, refused, start() + DAY * days);
            assert_eq!(chosen, expected, "row {index}");
        }
    }

    #[test]
    fn the_decision_is_made_again_at_least_every_hour() {
        let facts = certificate(TunnelId::random().unwrap(), 1);
        let rows =
            [(None, 0, SHORTEST_WAIT), (Some(&facts), 0, LONGEST_WAIT), (Some(&facts), 40, SHORTEST_WAIT)];
        for (certificate, days, expected) in rows {
            assert_eq!(wait(certificate, start() + DAY * days), expected, "after {days} days");
        }
        let shortly_before = facts.renew_agent_at() - Duration::from_mins(10);
        assert_eq!(wait(Some(&facts), shortly_before), Duration::from_mins(10));
    }
}
