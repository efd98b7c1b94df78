use rcgen::{PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

use super::*;
use crate::identity::{TunnelId, TunnelOwner};

const DAY: Duration = Duration::from_hours(24);

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn identity() -> TunnelIdentity {
    TunnelIdentity {
        installation: Installation::random().unwrap(),
        tunnel: TunnelId::random().unwrap(),
        owner: TunnelOwner::of("fleet", "blue"),
        epoch: 5,
    }
}

fn authority() -> CertificateAuthority {
    CertificateAuthority::generate(Installation::random().unwrap(), now()).unwrap()
}

#[test]
fn an_agent_gets_a_certificate_for_its_identity_and_key() {
    let (authority, identity) = (authority(), identity());
    let key = generate_key_pem().unwrap();
    let request = certificate_request(&key).unwrap();
    let certificate = authority.sign_agent(&request, identity, now()).unwrap();
    assert!(belong_together(&certificate, &key).unwrap());
    let facts = CertificateFacts::from_pem(&certificate).unwrap();
    assert_eq!(facts.agent().unwrap(), identity);
    assert!(!facts.is_hub_of(identity.installation));
    assert_eq!(facts.names, Vec::<String>::new());
    assert_eq!(facts.not_before, now() - CLOCK_SKEW);
    assert_eq!(facts.not_after, now() + AGENT_LIFETIME);
    assert!(facts.renew_agent_at() > now() + DAY * 29 && facts.renew_agent_at() < now() + DAY * 31);
    let again = authority.sign_agent(&request, identity, now()).unwrap();
    assert_ne!(again, certificate, "serial numbers are random");
}

#[test]
fn claims_of_a_request_are_ignored() {
    let (authority, identity) = (authority(), identity());
    let other = CertificateIdentity::Agent(TunnelIdentity { epoch: 6, ..identity });
    let mut claims = CertificateParams::new(["hub.example".to_owned()]).unwrap();
    claims.subject_alt_names.push(uri(other).unwrap());
    claims.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    claims.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    claims.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    claims.distinguished_name.push(DnType::CommonName, "chandler hub");
    let request = claims.serialize_request(&generate_key().unwrap()).unwrap().pem().unwrap();
    let certificate = authority.sign_agent(&request, identity, now()).unwrap();

    let facts = CertificateFacts::from_pem(&certificate).unwrap();
    assert_eq!(facts.agent().unwrap(), identity);
    assert_eq!(facts.names, Vec::<String>::new());
    let der = read_pem(&certificate).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert!(!parsed.is_ca());
    assert!(parsed.subject().to_string().contains("chandler agent"));
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any);
    assert!(!parsed.key_usage().unwrap().unwrap().value.key_cert_sign());
}

#[test]
fn requests_with_other_keys_or_invalid_signatures_are_refused() {
    let (authority, identity) = (authority(), identity());
    let sign = |request: &str| authority.sign_agent(request, identity, now());
    for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        assert!(matches!(sign(&request), Err(AuthorityError::UnsupportedKey)), "{algorithm:?}");
    }
    for garbage in ["", "garbage", authority.certificate_pem()] {
        assert!(matches!(sign(garbage), Err(AuthorityError::InvalidRequest)), "{garbage}");
    }

    let key = generate_key().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let mut der = request.der().to_vec();
    let last = der.len() - 1;
    der[last] ^= 1;
    let parsed = CertificateSigningRequestParams::from_der(&der.into());
    assert!(parsed.is_err(), "the signature of a request is verified");
}

#[test]
fn a_stored_authority_signs_as_before() {
    let (authority, identity) = (authority(), identity());
    let stored = CertificateAuthority::from_pem(authority.certificate_pem(), authority.key_pem()).unwrap();
    let request = certificate_request(&generate_key_pem().unwrap()).unwrap();
    let before =
        CertificateFacts::from_pem(&authority.sign_agent(&request, identity, now()).unwrap()).unwrap();
    let after = CertificateFacts::from_pem(&stored.sign_agent(&request, identity, now()).unwrap()).unwrap();
    assert_eq!(before, after);

    let wrong = CertificateAuthority::from_pem(authority.certificate_pem(), &generate_key_pem().unwrap());
    assert!(matches!(wrong, Err(AuthorityError::KeyMismatch)));
    assert!(CertificateAuthority::from_pem("x", authority.key_pem()).is_err());
    let wrong = CertificateAuthority::from_pem(authority.certificate_pem(), &"x".into());
    assert!(matches!(wrong, Err(AuthorityError::InvalidKey)));
}

#[test]
fn the_certificate_of_a_hub_has_its_names_and_identity() {
    let installation = Installation::random().unwrap();
    let names = ["hub.example".to_owned(), "10.0.0.1".to_owned(), "*.peers.chandler.svc".to_owned()];
    let issued = authority().issue_hub(installation, &names, now()).unwrap();
    assert!(belong_together(&issued.certificate, &issued.key).unwrap());
    let facts = CertificateFacts::from_pem(&issued.certificate).unwrap();
    assert!(facts.is_hub_of(installation) && !facts.is_hub_of(Installation::random().unwrap()));
    assert!(facts.agent().is_err());
    assert_eq!(facts.names, names);
    assert!(facts.renew_hub_at() > now() + DAY * 59 && facts.renew_hub_at() < now() + DAY * 61);
    for name in ["", "a b", "ü.example", "a/b"] {
        let refused = authority().issue_hub(installation, &[name.to_owned()], now());
        assert!(matches!(refused, Err(AuthorityError::InvalidName { .. })), "{name}");
    }
}
