//! Who may connect to whom, with real TLS.

use std::{io, sync::Arc, time::Duration};

use chandler_tunnel::{
    HubNames, Installation, TunnelId, TunnelIdentity, TunnelKeys, TunnelOwner,
    authority::{CertificateAndKey, certificate_request, generate_key_pem},
    keys::service_name,
    tls::{
        Protocol, UntrustedIssuer, agent_client_config, describe_handshake_error, peer_certificate,
        peer_client_config, peer_server_config, public_server_config, server_name,
    },
};
use jiff::Timestamp;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::harness::{Options, Tunnel, run, within};

const DAY: Duration = Duration::from_hours(24);

fn keys() -> TunnelKeys {
    TunnelKeys::generate(&HubNames::new(&["hub.example:443".to_owned()], "chandler"), Timestamp::now())
        .unwrap()
}

fn identity(installation: Installation) -> TunnelIdentity {
    let (tunnel, owner) = (TunnelId::random().unwrap(), TunnelOwner::of("fleet", "blue"));
    TunnelIdentity { installation, tunnel, owner, epoch: 1 }
}

fn agent(keys: &TunnelKeys, identity: TunnelIdentity, issued: Timestamp) -> CertificateAndKey {
    let key = generate_key_pem().unwrap();
    let request = certificate_request(&key).unwrap();
    CertificateAndKey { certificate: keys.authority.sign_agent(&request, identity, issued).unwrap(), key }
}

type Streams = (io::Result<client::TlsStream<DuplexStream>>, io::Result<server::TlsStream<DuplexStream>>);

/// Connects, and exchanges a byte: with TLS 1.3 a client sees only then that the server has refused its certificate.
async fn connect(client: ClientConfig, server: ServerConfig, name: &str) -> Streams {
    let (near, far) = duplex(64 << 10);
    let name = server_name(name).unwrap();
    let (client, server) = within(async {
        tokio::join!(
            TlsConnector::from(Arc::new(client)).connect(name, near),
            TlsAcceptor::from(Arc::new(server)).accept(far),
        )
    })
    .await;
    match (client, server) {
        (Ok(mut client), Ok(mut server)) => {
            client.write_all(b"x").await.unwrap();
            server.read_u8().await.unwrap();
            (Ok(client), Ok(server))
        }
        streams => streams,
    }
}

#[test]
fn an_agent_opens_a_tunnel_with_its_certificate() {
    run(async {
        let keys = keys();
        let identity = identity(keys.installation);
        let certificate = agent(&keys, identity, Timestamp::now());
        let client = agent_client_config(keys.ca_bundle(), Some(&certificate), Protocol::Tunnel).unwrap();
        let (client, server) = connect(client, public_server_config(&keys).unwrap(), "hub.example:443").await;
        let (client, server) = (client.unwrap(), server.unwrap());
        let state = server.get_ref().1;
        assert_eq!(Protocol::negotiated(state.alpn_protocol()), Some(Protocol::Tunnel));
        let facts = peer_certificate(state.peer_certificates()).unwrap().unwrap();
        assert_eq!(facts.agent().unwrap(), identity);

        let mut tunnel = Tunnel::start_on(Options::default(), server, client).await;
        let mut connected = tunnel.connect().await.unwrap();
        connected.ping_pong().await;
        connected.finish().await;
    });
}

#[test]
fn joining_needs_no_certificate() {
    run(async {
        let keys = keys();
        let client = agent_client_config(keys.ca_bundle(), None, Protocol::Join).unwrap();
        let (client, server) = connect(client, public_server_config(&keys).unwrap(), "hub.example:443").await;
        client.unwrap();
        let server = server.unwrap();
        let state = server.get_ref().1;
        assert_eq!(Protocol::negotiated(state.alpn_protocol()), Some(Protocol::Join));
        assert!(peer_certificate(state.peer_certificates()).unwrap().is_none());
    });
}

#[test]
fn other_protocols_are_refused() {
    run(async {
        let keys = keys();
        for alpn in [&b"h2"[..], b"http/1.1", Protocol::Peer.alpn()] {
            let mut client = agent_client_config(keys.ca_bundle(), None, Protocol::Join).unwrap();
            client.alpn_protocols = vec![alpn.to_vec()];
            let (client, server) =
                connect(client, public_server_config(&keys).unwrap(), "hub.example:443").await;
            assert!(client.is_err() && server.is_err(), "{alpn:?}");
        }
        let mut client = agent_client_config(keys.ca_bundle(), None, Protocol::Join).unwrap();
        client.alpn_protocols.clear();
        let (_, server) = connect(client, public_server_config(&keys).unwrap(), "hub.example:443").await;
        assert_eq!(Protocol::negotiated(server.unwrap().get_ref().1.alpn_protocol()), None);
    });
}

#[test]
fn certificates_that_are_foreign_or_expired_are_refused() {
    run(async {
        let (keys, other) = (keys(), keys());
        let identity = identity(keys.installation);
        let now = Timestamp::now();
        for (name, certificate) in [
            ("another installation", agent(&other, identity, now)),
            ("expired", agent(&keys, identity, now - DAY * 91)),
            ("not valid yet", agent(&keys, identity, now + DAY)),
        ] {
            let client = agent_client_config(keys.ca_bundle(), Some(&certificate), Protocol::Tunnel).unwrap();
            let (_, server) = connect(client, public_server_config(&keys).unwrap(), "hub.example:443").await;
            assert!(server.is_err(), "{name}");
        }
    });
}

#[test]
fn a_certificate_of_an_inspecting_firewall_is_named() {
    run(async {
        let (keys, firewall) = (keys(), keys());
        let client = agent_client_config(keys.ca_bundle(), None, Protocol::Join).unwrap();
        let (client, _) = connect(client, public_server_config(&firewall).unwrap(), "hub.example:443").await;
        let error = client.map(|_| ()).unwrap_err();
        let issuer = &UntrustedIssuer::find(&error).expect("another error").issuer;
        assert!(issuer.contains(&firewall.installation.to_string()), "{issuer}");
        let text = describe_handshake_error(&error);
        assert!(text.contains("firewall") && text.contains(issuer.as_str()), "{text}");

        let client = agent_client_config(keys.ca_bundle(), None, Protocol::Join).unwrap();
        let (client, _) = connect(client, public_server_config(&keys).unwrap(), "another.example:443").await;
        let error = client.map(|_| ()).unwrap_err();
        assert!(UntrustedIssuer::find(&error).is_none(), "{error}");
    });
}

#[test]
fn an_agent_cannot_pretend_to_be_a_hub() {
    run(async {
        let mut keys = keys();
        let certificate = agent(&keys, identity(keys.installation), Timestamp::now());
        let client = agent_client_config(keys.ca_bundle(), None, Protocol::Join).unwrap();
        let hub = std::mem::replace(&mut keys.hub, certificate.clone());
        let server = public_server_config(&keys).unwrap();
        let (client, _) = connect(client, server, "hub.example:443").await;
        assert!(client.is_err(), "the agent's certificate is accepted as a hub's");
        keys.hub = hub;

        // A peer's TLS accepts every certificate of the authority; its identity distinguishes hubs from agents.
        let client = agent_client_config(keys.ca_bundle(), Some(&certificate), Protocol::Peer).unwrap();
        let service = format!("{}:8134", service_name("chandler"));
        let (_, server) = connect(client, peer_server_config(&keys).unwrap(), &service).await;
        let server = server.unwrap();
        let facts = peer_certificate(server.get_ref().1.peer_certificates()).unwrap().unwrap();
        assert!(!facts.is_hub_of(keys.installation));
    });
}

#[test]
fn hubs_of_an_installation_are_peers() {
    run(async {
        let keys = keys();
        let service = format!("{}:8134", service_name("chandler"));
        let (client, server) =
            connect(peer_client_config(&keys).unwrap(), peer_server_config(&keys).unwrap(), &service).await;
        client.unwrap();
        let server = server.unwrap();
        let state = server.get_ref().1;
        assert_eq!(Protocol::negotiated(state.alpn_protocol()), Some(Protocol::Peer));
        let facts = peer_certificate(state.peer_certificates()).unwrap().unwrap();
        assert!(facts.is_hub_of(keys.installation) && facts.agent().is_err());

        let client = agent_client_config(keys.ca_bundle(), None, Protocol::Peer).unwrap();
        let (_, server) = connect(client, peer_server_config(&keys).unwrap(), &service).await;
        assert!(server.is_err(), "a peer without a certificate is accepted");
    });
}

#[test]
fn only_tls_1_3_is_spoken() {
    run(async {
        let keys = keys();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let pem = keys.ca_bundle().as_bytes();
        roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap()).unwrap();
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![Protocol::Join.alpn().to_vec()];
        let (client, server) = connect(client, public_server_config(&keys).unwrap(), "hub.example:443").await;
        assert!(client.is_err() && server.is_err());
    });
}
