//! Self-managed certificates, in memory only.
//!
//! Each certificate has its own CA, whose key is dropped after it signs the certificate, so nothing has to be stored. A
//! renewal issues a new CA and certificate, publishes both CAs, serves the new certificate, and then publishes only its CA.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::sync::watch;

use crate::Error;

/// Validity of a certificate.
pub const CERTIFICATE_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// Certificates are backdated by this time, because the clocks of clients may be slow.
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// A certificate and its CA.
struct IssuedCertificate {
    ca_pem: String,
    certified_key: Arc<CertifiedKey>,
    renew_at: Timestamp,
}

/// The certificate that is served, and the CAs that clients trust.
pub struct Certificates {
    host: String,
    lifetime: Duration,
    current: IssuedCertificate,
    /// Its CA is published, but it is not served yet.
    next: Option<IssuedCertificate>,
    served: watch::Sender<Arc<CertifiedKey>>,
}

/// Resolves to the certificate that is currently served.
#[derive(Debug)]
pub struct CertificateResolver(watch::Receiver<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.borrow().clone())
    }
}

impl Certificates {
    pub fn new(
        host: String,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(Self, CertificateResolver), Error> {
        let current = issue(&host, lifetime, now)?;
        let (served, receiver) = watch::channel(current.certified_key.clone());
        Ok((Self { host, lifetime, current, next: None, served }, CertificateResolver(receiver)))
    }

    /// Returns the CAs to trust, in PEM.
    pub fn ca_bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.ca_pem.as_str());
        [self.current.ca_pem.as_str()].into_iter().chain(next).collect()
    }

    /// Returns the time until [`Certificates::rotate`] should be called, if the CA bundle is published now.
    pub fn until_next_rotation(&self, now: Timestamp) -> Duration {
        match self.next {
            // Gives Cluster API time to read the new bundle.
            Some(_) => (self.lifetime / 12).min(Duration::from_mins(1)),
            None => self.current.renew_at.duration_since(now).try_into().unwrap_or_default(),
        }
    }

    /// Returns whether a renewal has begun and is not complete.
    pub fn is_renewing(&self) -> bool {
        self.next.is_some()
    }

    /// Takes the next step of a renewal, if one is due. Must be called after the CA bundle is published and
    /// [`Certificates::until_next_rotation`] has elapsed.
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), Error> {
        if let Some(next) = self.next.take() {
            self.served.send_replace(next.certified_key.clone());
            self.current = next;
        } else if now >= self.current.renew_at {
            self.next = Some(issue(&self.host, self.lifetime, now)?);
        }
        Ok(())
    }
}

fn issue(host: &str, lifetime: Duration, now: Timestamp) -> Result<IssuedCertificate, Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = with_validity(CertificateParams::default(), "chandler hooks authority", now, lifetime);
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca.self_signed(&ca_key)?;

    let key = KeyPair::generate()?;
    let mut params =
        with_validity(CertificateParams::new([host.to_owned()])?, "chandler hooks", now, lifetime);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key))?;

    let provider = rustls::crypto::ring::default_provider();
    let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let certified_key = CertifiedKey::from_der(vec![certificate.der().clone()], private, &provider)?;
    Ok(IssuedCertificate {
        ca_pem: ca_certificate.pem(),
        certified_key: Arc::new(certified_key),
        renew_at: now.saturating_add(lifetime * 2 / 3).unwrap_or(now),
    })
}

fn with_validity(
    mut params: CertificateParams,
    name: &str,
    now: Timestamp,
    lifetime: Duration,
) -> CertificateParams {
    let now = Duration::from_secs(now.as_second().try_into().unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now.saturating_add(lifetime);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

#[cfg(test)]
mod tests {
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    };
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn at(days: u32) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + DAY * days
    }

    fn new_certificates() -> (Certificates, CertificateResolver) {
        Certificates::new("hooks.ships.svc".to_owned(), CERTIFICATE_LIFETIME, at(0)).unwrap()
    }

    /// Returns whether a client that trusts the bundle accepts the served certificate.
    fn accepts(bundle: &str, served: &CertificateResolver, name: &'static str, now: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(ca.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap()));
        let certified = served.0.borrow().clone();
        verifier.verify_server_cert(&certified.cert[0], &[], &name, &[], now).is_ok()
    }

    #[test]
    fn certificate_is_only_trusted_for_its_name_and_validity() {
        let (certificates, served) = new_certificates();
        let bundle = certificates.ca_bundle();
        assert!(accepts(&bundle, &served, "hooks.ships.svc", at(0)));
        assert!(accepts(&bundle, &served, "hooks.ships.svc", at(29)));
        assert!(!accepts(&bundle, &served, "hooks.ships.svc", at(31)));
        assert!(!accepts(&bundle, &served, "other.ships.svc", at(0)));
        let (another, _) = new_certificates();
        assert!(!accepts(&another.ca_bundle(), &served, "hooks.ships.svc", at(0)));
    }

    #[test]
    fn published_bundle_trusts_the_served_certificate_during_rotation() {
        let (mut certificates, served) = new_certificates();
        let trusted = |bundle: &str, day| accepts(bundle, &served, "hooks.ships.svc", at(day));
        let first = certificates.ca_bundle();
        assert_eq!(certificates.until_next_rotation(at(0)), DAY * 20);
        certificates.rotate(at(19)).unwrap();
        assert_eq!(certificates.ca_bundle(), first);

        certificates.rotate(at(20)).unwrap();
        let both = certificates.ca_bundle();
        assert!(both.starts_with(&first) && both.len() > first.len());
        assert!(
            trusted(&first, 20) && trusted(&both, 20),
            "the new certificate is not served before it is trusted"
        );
        assert_eq!(certificates.until_next_rotation(at(20)), Duration::from_mins(1));

        certificates.rotate(at(20)).unwrap();
        let second = certificates.ca_bundle();
        assert!(trusted(&both, 40) && trusted(&second, 40) && !trusted(&first, 20));
        assert_eq!(certificates.until_next_rotation(at(20)), DAY * 20);
        assert_eq!(both, format!("{first}{second}"));
    }
}
