//! How agents get certificates.

use std::{net::SocketAddr, time::Duration};

use chandler_hub::{JoinReport, TunnelEntry};
use chandler_tunnel::{
    CertificateFacts,
    authority::{self, CertificateAndKey},
    join_message::JoinResponse,
    tls::Protocol,
};
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    agent::{self, dial, echo_server},
    world::{HOUR, TestHub, World, entry, options, within},
};

/// Sends a request to the join endpoint. Returns the status and the body.
async fn post(
    hub: SocketAddr,
    world: &World,
    certificate: Option<&CertificateAndKey>,
    path: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = dial(hub, world.ca_bundle(), certificate, Protocol::Join).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    within(stream.read_to_end(&mut response)).await.unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn join(
    hub: &TestHub,
    world: &World,
    key: &SecretString,
    token: Option<&str>,
    certificate: Option<&CertificateAndKey>,
) -> (u16, String) {
    let csr = authority::certificate_request(key).unwrap();
    let mut body = serde_json::json!({ "csr": csr });
    if let Some(token) = token {
        body["token"] = token.into();
    }
    post(hub.addresses.public, world, certificate, "/join", &body.to_string()).await
}

fn issued(body: &str) -> String {
    serde_json::from_str::<JoinResponse>(body).unwrap().certificate
}

#[tokio::test]
async fn a_token_gives_a_certificate_and_a_certificate_its_successor() {
    let blue = entry("blue");
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let key = authority::generate_key_pem().unwrap();
    let token = world.token(&blue, HOUR);
    let (status, body) = join(&hub, &world, &key, Some(&token), None).await;
    assert_eq!(status, 200, "{body}");
    let first = CertificateAndKey { certificate: issued(&body), key: key.clone() };
    let facts = CertificateFacts::from_pem(&first.certificate).unwrap().agent().unwrap();
    assert_eq!((facts.key(), facts.epoch), (blue.key(), 1));
    assert_eq!(facts.installation, world.keys.keys.installation);

    let (status, body) = join(&hub, &world, &key, None, Some(&first)).await;
    assert_eq!(status, 200, "{body}");
    let renewed = CertificateAndKey { certificate: issued(&body), key };
    assert_ne!(renewed.certificate, first.certificate);
    let target = echo_server("api:").await;
    let _agent = agent::connect(hub.addresses.public, world.ca_bundle(), &renewed, target).await;
    hub.reports.agents(blue.id, 1).await;
    let joins = hub.reports.joins();
    assert!(
        matches!(joins[..], [JoinReport::Joined { epoch: 1, .. }, JoinReport::Renewed { epoch: 1 }]),
        "{joins:?}"
    );
}

#[tokio::test]
async fn other_tokens_and_certificates_give_nothing() {
    let blue = TunnelEntry { epoch: 2, ..entry("blue") };
    let world = World::new(std::slice::from_ref(&blue));
    let hub = world.start(options()).await;
    let key = authority::generate_key_pem().unwrap();
    let revoked = TunnelEntry { epoch: 1, ..blue.clone() };
    let old_certificate = world.certificate(&revoked, Timestamp::now());
    let other = TunnelEntry { namespace: "other".to_owned(), ..blue.clone() };
    let other_certificate = world.certificate(&other, Timestamp::now());
    let rows = [
        ("neither token nor certificate", None, None, 401),
        ("not a token", Some("v1.nonsense".to_owned()), None, 401),
        ("expired", Some(world.token(&blue, Duration::ZERO)), None, 401),
        ("of another installation", Some(World::new(&[]).token(&blue, HOUR)), None, 401),
        ("revoked", Some(world.token(&revoked, HOUR)), None, 403),
        ("unknown tunnel", Some(world.token(&entry("blue"), HOUR)), None, 403),
        ("for another Cluster", Some(world.token(&other, HOUR)), None, 403),
        ("a certificate for another Cluster", None, Some(&other_certificate), 403),
        ("revoked certificate", None, Some(&old_certificate), 403),
        ("a hub's certificate", None, Some(&world.keys.keys.hub), 403),
    ];
    for (case, token, certificate, expected) in rows {
        let (status, body) = join(&hub, &world, &key, token.as_deref(), certificate).await;
        assert_eq!(status, expected, "{case}: {body}");
        assert!(!body.contains("CERTIFICATE") && body.contains("message"), "{case}: {body}");
    }
    let refused = hub.reports.joins();
    assert_eq!(refused.len(), 2, "only genuine ones are reported: {refused:?}");
    let public = hub.addresses.public;
    assert_eq!(post(public, &world, None, "/other", "{}").await.0, 404);
    assert_eq!(post(public, &world, None, "/join", "not JSON").await.0, 400);
}

#[tokio::test]
async fn joins_of_a_tunnel_are_limited() {
    let (blue, red) = (entry("blue"), entry("red"));
    let world = World::new(&[blue.clone(), red.clone()]);
    let hub = world.start(options()).await;
    let key = authority::generate_key_pem().unwrap();
    let token = world.token(&blue, HOUR);
    for attempt in 0..5 {
        assert_eq!(join(&hub, &world, &key, Some(&token), None).await.0, 200, "attempt {attempt}");
    }
    let (status, body) = join(&hub, &world, &key, Some(&token), None).await;
    assert_eq!(status, 429, "{body}");
    let (status, body) = join(&hub, &world, &key, Some(&world.token(&red, HOUR)), None).await;
    assert_eq!(status, 200, "another tunnel is not limited: {body}");
}
