//! A connection of an agent, from the end of its TLS handshake.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use chandler_tunnel::{
    AgentConnection, CertificateFacts, HubEndpoint, JoinToken, OpenError, TunnelIdentity, TunnelKey,
    TunnelKeys,
    join_message::{About, HubList},
    token::{TOKEN_LIFETIME, TOKEN_REFRESH},
};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::Registration,
    directory::{HubAddress, TunnelEntry},
    metrics::HandshakeResult,
    server::Context,
};

/// Pause before a list of hubs is sent again that the agent has not accepted.
const CONFIG_RETRY: Duration = Duration::from_mins(1);

/// How much earlier than its certificate a connection may end.
const MAX_EARLIER: Duration = Duration::from_hours(1);

/// A registered connection of an agent. Dropping it closes the connection.
///
/// A hub has thousands of them, and most are idle: this is all that they keep, and the futures of short steps are boxed, so that
/// they need memory only while they run.
pub struct Session {
    identity: TunnelIdentity,
    node: String,
    /// How long the connection may be used.
    lifetime: Duration,
    revoked: CancellationToken,
    connection: AgentConnection,
    _registration: Registration,
}

impl Session {
    /// Starts HTTP/2 and registers the connection. Returns `None` if the agent is refused or does not answer.
    pub async fn start(
        context: &Context,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        certificate: CertificateFacts,
        address: SocketAddr,
    ) -> Option<Self> {
        let Some((identity, revoked)) = identify(context, &certificate) else {
            context.metrics.handshake(HandshakeResult::Revoked);
            tracing::info!(%address, identity = ?certificate.identity, "an agent was refused: its certificate is not valid here");
            return None;
        };
        context.metrics.handshake(HandshakeResult::Accepted);
        let connection = AgentConnection::start(stream, &context.tunnel_settings)
            .await
            .inspect_err(|error| tracing::info!(%address, %error, "a connection of an agent failed"))
            .ok()?;
        let TunnelIdentity { tunnel, epoch, .. } = identity;
        let about = match connection.about(&context.replica).await {
            Ok(about) => about,
            Err(OpenError::Refused { .. }) => About::default(),
            Err(error) => {
                connection.close();
                tracing::info!(%tunnel, %address, %error, "an agent does not answer");
                return None;
            }
        };
        let (node, version) = (about.node.clone(), about.version.clone());
        let Some(registration) = context.agents.register(identity, connection.clone(), about) else {
            connection.close();
            tracing::warn!(%tunnel, %address, "the agents of this tunnel have too many connections; closed");
            return None;
        };
        tracing::info!(%tunnel, epoch, %address, node, version, "an agent is connected");
        let lifetime = lifetime(until(certificate.not_after, Timestamp::now()), fastrand::f64());
        Some(Self { identity, node, lifetime, revoked, connection, _registration: registration })
    }

    /// Serves the agent until the connection ends.
    pub async fn run(&self, context: &Context) {
        let Self { identity, node, revoked, connection, .. } = self;
        let tunnel = identity.tunnel;
        let is_open = tokio::select! {
            reason = connection.closed() => {
                tracing::info!(%tunnel, node, %reason, "an agent is disconnected");
                false
            }
            () = revoked.cancelled() => {
                tracing::info!(%tunnel, node, "the connection of an agent is cut: revoked");
                false
            }
            () = tokio::time::sleep(self.lifetime) => {
                tracing::info!(%tunnel, node, "the certificate of a connection expires; the agent has to connect again");
                true
            }
            () = context.stop.cancelled() => true,
            never = send_config(context, connection, *identity) => match never {},
        };
        if is_open {
            // The agent connects again, and open streams end. A revocation cuts also these.
            revoked.run_until_cancelled(Box::pin(connection.shutdown(context.drain_timeout))).await;
        }
    }
}

/// Returns how long a connection is used whose certificate is valid for this time. The agent has renewed its certificate long
/// ago; its connections, which are equally old, must not end at the same time.
fn lifetime(validity: Duration, random: f64) -> Duration {
    validity.saturating_sub((validity / 10).min(MAX_EARLIER).mul_f64(random))
}

/// Returns the identity of a certificate that TLS has verified, and the token that revokes it. Returns `None` if it belongs to
/// another installation, to an unknown tunnel, to another Cluster or to another epoch.
fn identify(
    context: &Context,
    certificate: &CertificateFacts,
) -> Option<(TunnelIdentity, CancellationToken)> {
    let installation = context.keys.borrow().keys.installation;
    let identity = certificate.agent().ok().filter(|identity| identity.installation == installation)?;
    let revoked = context.revocations.token(identity.key(), identity.epoch)?;
    Some((identity, revoked))
}

fn until(time: Timestamp, now: Timestamp) -> Duration {
    time.duration_since(now).try_into().unwrap_or_default()
}

/// Sends the list of hubs to the agent: at once, when it changes, and before its join tokens expire.
async fn send_config(
    context: &Context,
    connection: &AgentConnection,
    identity: TunnelIdentity,
) -> Infallible {
    let mut directory = context.directory.clone();
    // Shared with the directory: a copy per connection would contain all CA bundles.
    let mut sent: Option<Arc<TunnelEntry>> = None;
    loop {
        let entry = directory.borrow_and_update().valid(identity.key(), identity.epoch).cloned();
        let mut again = TOKEN_REFRESH;
        if let Some(entry) = entry {
            let is_sent = sent.as_ref().is_some_and(|sent| sent.hubs == entry.hubs);
            let result =
                if is_sent { Ok(()) } else { Box::pin(send_hubs(context, connection, &entry)).await };
            match result {
                Ok(()) => sent = Some(entry),
                Err(error) => {
                    tracing::warn!(tunnel = %identity.tunnel, error, "an agent has not accepted the list of hubs");
                    again = CONFIG_RETRY;
                }
            }
        }
        tokio::select! {
            changed = directory.changed() => if changed.is_err() {
                // The hub stops, which ends the session.
                return std::future::pending().await;
            },
            () = tokio::time::sleep(again) => sent = None,
        }
    }
}

async fn send_hubs(
    context: &Context,
    connection: &AgentConnection,
    entry: &TunnelEntry,
) -> Result<(), String> {
    let keys = context.keys.borrow().clone();
    let hubs = hub_list(&keys.keys, entry, Timestamp::now());
    if hubs.hubs.is_empty() {
        return Ok(());
    }
    connection.send_config(&hubs).await.map_err(|error| error.to_string())
}

/// Returns the hubs that the agents of a tunnel connect to, with a token for each. A hub of another installation without a
/// token is left out: its agents could not join.
fn hub_list(keys: &TunnelKeys, entry: &TunnelEntry, now: Timestamp) -> HubList {
    let own_token = || {
        let expires = now.saturating_add(TOKEN_LIFETIME).unwrap_or(now);
        let TunnelKey { id, owner } = entry.key();
        JoinToken { tunnel: id, owner, epoch: entry.epoch, expires }.sign(&keys.signing)
    };
    let endpoint = |hub: &HubAddress| {
        let is_own = hub.ca_bundle.trim() == keys.ca_bundle().trim();
        let token = if is_own { own_token() } else { hub.token.clone()?.into() };
        Some(HubEndpoint { address: hub.address.clone(), ca_bundle: hub.ca_bundle.clone(), token })
    };
    HubList { hubs: entry.hubs.iter().filter_map(endpoint).collect() }
}

#[cfg(test)]
mod tests {
    use chandler_tunnel::{HubNames, TunnelId};
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_list_of_hubs_has_a_token_for_each() {
        let now = Timestamp::now();
        let keys = TunnelKeys::generate(&HubNames::new(&[], "chandler-system"), now).unwrap();
        let hub = |address: &str, ca_bundle: &str, token: Option<&str>| HubAddress {
            address: address.to_owned(),
            ca_bundle: ca_bundle.to_owned(),
            token: token.map(ToOwned::to_owned),
        };
        let entry = TunnelEntry {
            id: TunnelId::random().unwrap(),
            epoch: 2,
            namespace: "fleet".to_owned(),
            cluster: "blue".to_owned(),
            name: "blue".to_owned(),
            endpoint: None,
            last_seen: None,
            hubs: vec![
                hub("own:443", keys.ca_bundle(), None),
                hub("other:443", "another CA", Some("v1.other")),
                hub("unknown:443", "a third CA", None),
            ],
            created: None,
        };
        let list = hub_list(&keys, &entry, now).hubs;
        let addresses: Vec<_> = list.iter().map(|hub| hub.address.as_str()).collect();
        assert_eq!(addresses, ["own:443", "other:443"]);
        let token = JoinToken::verify(list[0].token.expose_secret(), &keys.signing, now).unwrap();
        assert_eq!((token.tunnel, token.owner, token.epoch), (entry.id, entry.key().owner, 2));
        assert_eq!(list[1].token.expose_secret(), "v1.other");
    }

    #[test]
    fn a_connection_ends_with_its_certificate_or_little_earlier() {
        let now = Timestamp::now();
        assert_eq!(until(now - Duration::from_secs(5), now), Duration::ZERO);
        assert_eq!(until(now + Duration::from_secs(5), now), Duration::from_secs(5));
        let day = Duration::from_hours(24);
        assert_eq!(lifetime(90 * day, 0.0), 90 * day);
        assert_eq!(lifetime(90 * day, 1.0), (90 * day).saturating_sub(MAX_EARLIER));
        assert_eq!(lifetime(Duration::from_secs(10), 1.0), Duration::from_secs(9));
        assert_eq!(lifetime(Duration::ZERO, 1.0), Duration::ZERO);
    }
}
