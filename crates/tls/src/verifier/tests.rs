use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::ring;

use super::*;

const NAME: &str = "charts.example";

/// Returns what `openssl req -x509` creates: a certificate authority that is the certificate of a server.
fn openssl_like() -> CertificateParams {
    let mut params = CertificateParams::new(vec![NAME.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 1);
    params
}

fn self_signed(params: &CertificateParams) -> CertificateDer<'static> {
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

/// Verifies the certificate for a name, in a year, by a client that trusts the anchors.
fn verify(
    certificate: &CertificateDer<'_>,
    anchors: &[CertificateDer<'static>],
    name: &str,
    year: i32,
) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    for anchor in anchors {
        roots.add(anchor.clone()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = AnchorVerifier::new(roots, anchors.to_vec(), &[], provider).unwrap();
    let seconds = date_time_ymd(year, 6, 1).unix_timestamp().try_into().unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(certificate, &[], &name, &[], now).map(drop)
}

fn refusal(result: Result<(), Error>) -> CertificateError {
    match result.unwrap_err() {
        Error::InvalidCertificate(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_self_signed_authority_is_accepted_as_server_certificate_if_it_is_an_anchor() {
    let (server, other) = (self_signed(&openssl_like()), self_signed(&openssl_like()));
    for name in [NAME, "127.0.0.1"] {
        verify(&server, &[other.clone(), server.clone()], name, 2026).unwrap();
    }
}

#[test]
fn an_anchor_of_the_system_counts_like_a_configured_one() {
    let server = self_signed(&openssl_like());
    let anchors = Anchors { configured: Vec::new(), system: Vec::leak(vec![server.clone()]) };
    assert!(anchors.contain(&server));
}

#[test]
fn a_self_signed_authority_that_is_no_anchor_is_refused() {
    let (server, other) = (self_signed(&openssl_like()), self_signed(&openssl_like()));
    verify(&server, &[other], NAME, 2026).unwrap_err();
}

#[test]
fn another_certificate_with_the_key_of_an_anchor_is_refused() {
    let key = KeyPair::generate().unwrap();
    let anchor = openssl_like().self_signed(&key).unwrap().der().clone();
    let mut changed = openssl_like();
    changed.not_after = date_time_ymd(2031, 1, 1);
    let changed = changed.self_signed(&key).unwrap().der().clone();
    verify(&changed, &[anchor], NAME, 2026).unwrap_err();
}

#[test]
fn names_times_and_purposes_of_an_anchor_are_checked() {
    let server = self_signed(&openssl_like());
    let anchors = [server.clone()];
    let refused = |name, year| refusal(verify(&server, &anchors, name, year));
    for name in ["other.example", "127.0.0.2"] {
        let error = refused(name, 2026);
        assert!(matches!(error, CertificateError::NotValidForNameContext { .. }), "{error:?}");
    }
    let error = refused(NAME, 2031);
    assert!(matches!(error, CertificateError::ExpiredContext { .. }), "{error:?}");
    let error = refused(NAME, 2019);
    assert!(matches!(error, CertificateError::NotValidYetContext { .. }), "{error:?}");

    let mut params = openssl_like();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = self_signed(&params);
    let error = refusal(verify(&client, std::slice::from_ref(&client), NAME, 2026));
    assert_eq!(error, CertificateError::InvalidPurpose);
}

#[test]
fn certificates_that_an_anchor_issued_are_verified_as_before() {
    let key = KeyPair::generate().unwrap();
    let authority = openssl_like().self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(openssl_like(), key);
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2030, 1, 1));
    let server = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
    verify(&server, std::slice::from_ref(&authority), NAME, 2026).unwrap();
    verify(&server, std::slice::from_ref(&authority), "other.example", 2026).unwrap_err();
    verify(&server, &[authority], NAME, 2031).unwrap_err();
}
