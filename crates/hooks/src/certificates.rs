//! Certificates of our own, in memory only.
//!
//! Each has an authority of its own whose key is gone once it has signed, so there is nothing to keep and one way to
//! renew: make a new pair, have Cluster API trust both, serve the new one, have it trust that one only.

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

/// How long a certificate is good for.
pub const LIFETIME: Duration = Duration::from_hours(30 * 24);

/// Clocks differ: what is valid from now is not yet valid elsewhere.
const BACKDATED: Duration = Duration::from_hours(1);

/// A certificate, and the authority that vouches for it.
struct Issued {
    authority: String,
    served: Arc<CertifiedKey>,
    renew_at: Timestamp,
}

/// What is served, and what is trusted.
pub struct Certificates {
    host: String,
    lifetime: Duration,
    current: Issued,
    /// Trusted already, not yet served.
    next: Option<Issued>,
    serve: watch::Sender<Arc<CertifiedKey>>,
}

/// Hands out what is served at the moment.
#[derive(Debug)]
pub struct Served(watch::Receiver<Arc<CertifiedKey>>);

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.borrow().clone())
    }
}

impl Certificates {
    pub fn new(host: String, lifetime: Duration, now: Timestamp) -> Result<(Self, Served), Error> {
        let current = issue(&host, lifetime, now)?;
        let (serve, served) = watch::channel(current.served.clone());
        Ok((Self { host, lifetime, current, next: None, serve }, Served(served)))
    }

    /// The authorities to trust, PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.authority.as_str());
        [self.current.authority.as_str()].into_iter().chain(next).collect()
    }

    /// How long until [`Certificates::turn`] has something to do, if what is trusted is published now.
    pub fn rest(&self, now: Timestamp) -> Duration {
        match self.next {
            // Until Cluster API has taken note.
            Some(_) => (self.lifetime / 12).min(Duration::from_mins(1)),
            None => self.current.renew_at.duration_since(now).try_into().unwrap_or_default(),
        }
    }

    /// The next step of a renewal, if one is due. Call it only when the bundle has been published and had its rest.
    pub fn turn(&mut self, now: Timestamp) -> Result<(), Error> {
        if let Some(next) = self.next.take() {
            self.serve.send_replace(next.served.clone());
            self.current = next;
        } else if now >= self.current.renew_at {
            self.next = Some(issue(&self.host, self.lifetime, now)?);
        }
        Ok(())
    }
}

fn issue(host: &str, lifetime: Duration, now: Timestamp) -> Result<Issued, Error> {
    let authority_key = KeyPair::generate()?;
    let mut authority = valid(CertificateParams::default(), "chandler hooks authority", now, lifetime);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_certificate = authority.self_signed(&authority_key)?;

    let key = KeyPair::generate()?;
    let mut params = valid(CertificateParams::new([host.to_owned()])?, "chandler hooks", now, lifetime);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &Issuer::new(authority, authority_key))?;

    let provider = rustls::crypto::ring::default_provider();
    let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let served = CertifiedKey::from_der(vec![certificate.der().clone()], private, &provider)?;
    Ok(Issued {
        authority: authority_certificate.pem(),
        served: Arc::new(served),
        renew_at: now.saturating_add(lifetime * 2 / 3).unwrap_or(now),
    })
}

fn valid(mut params: CertificateParams, name: &str, now: Timestamp, lifetime: Duration) -> CertificateParams {
    let now = Duration::from_secs(now.as_second().try_into().unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
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

    fn made() -> (Certificates, Served) {
        Certificates::new("hooks.ships.svc".to_owned(), LIFETIME, at(0)).unwrap()
    }

    /// Whether someone who trusts the bundle accepts what is served.
    fn accepts(bundle: &str, served: &Served, name: &'static str, now: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
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
    fn what_is_served_is_trusted_for_its_name_and_its_time_alone() {
        let (certificates, served) = made();
        let bundle = certificates.bundle();
        assert!(accepts(&bundle, &served, "hooks.ships.svc", at(0)));
        assert!(accepts(&bundle, &served, "hooks.ships.svc", at(29)));
        assert!(!accepts(&bundle, &served, "hooks.ships.svc", at(31)));
        assert!(!accepts(&bundle, &served, "other.ships.svc", at(0)));
        let (another, _) = made();
        assert!(!accepts(&another.bundle(), &served, "hooks.ships.svc", at(0)));
    }

    #[test]
    fn over_a_renewal_the_published_bundle_always_trusts_what_is_served() {
        let (mut certificates, served) = made();
        let trusted = |bundle: &str, day| accepts(bundle, &served, "hooks.ships.svc", at(day));
        let first = certificates.bundle();
        assert_eq!(certificates.rest(at(0)), DAY * 20);
        certificates.turn(at(19)).unwrap();
        assert_eq!(certificates.bundle(), first);

        certificates.turn(at(20)).unwrap();
        let both = certificates.bundle();
        assert!(both.starts_with(&first) && both.len() > first.len());
        assert!(trusted(&first, 20) && trusted(&both, 20), "not served before it is trusted");
        assert_eq!(certificates.rest(at(20)), Duration::from_mins(1));

        certificates.turn(at(20)).unwrap();
        let second = certificates.bundle();
        assert!(trusted(&both, 40) && trusted(&second, 40) && !trusted(&first, 20));
        assert_eq!(certificates.rest(at(20)), DAY * 20);
        assert_eq!(both, format!("{first}{second}"));
    }
}
