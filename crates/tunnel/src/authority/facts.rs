//! What Chandler reads out of certificates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, parse_x509_certificate};

use super::{AuthorityError, read_pem};
use crate::identity::{CertificateIdentity, Installation, TunnelIdentity};

/// What a certificate says. Its signature is not verified here: TLS does that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// `None` if the certificate contains no identity of Chandler, or more than one URI.
    pub identity: Option<CertificateIdentity>,
    /// The DNS names and IP addresses that it is valid for.
    pub names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The distinguished name of the issuer.
    pub issuer: String,
    pub(super) public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Reads the first certificate of a PEM text.
    pub fn from_pem(text: &str) -> Result<Self, AuthorityError> {
        Self::read(&read_pem(text)?)
    }

    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, AuthorityError> {
        let (_, parsed) =
            parse_x509_certificate(certificate).map_err(|_| AuthorityError::InvalidCertificate)?;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| AuthorityError::InvalidCertificate);
        let (uris, names) = alternative_names(&parsed)?;
        let identity = match &uris[..] {
            [uri] => CertificateIdentity::from_uri(uri).ok(),
            _ => None,
        };
        Ok(Self {
            identity,
            names,
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            issuer: parsed.issuer().to_string(),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// Returns the identity of an agent's certificate.
    pub fn agent(&self) -> Result<TunnelIdentity, AuthorityError> {
        match self.identity {
            Some(CertificateIdentity::Agent(identity)) => Ok(identity),
            _ => Err(AuthorityError::NoIdentity),
        }
    }

    /// Returns whether this is the certificate of a hub of the installation.
    pub fn is_hub_of(&self, installation: Installation) -> bool {
        self.identity == Some(CertificateIdentity::Hub(installation))
    }

    /// Returns the time at which an agent renews its certificate: after a third of its life.
    pub fn renew_agent_at(&self) -> Timestamp {
        self.after_thirds(1)
    }

    /// Returns the time at which the certificate of a hub is renewed: when a third of its life is left.
    pub fn renew_hub_at(&self) -> Timestamp {
        self.after_thirds(2)
    }

    fn after_thirds(&self, thirds: i64) -> Timestamp {
        let (from, until) = (self.not_before.as_second(), self.not_after.as_second());
        let second = from.saturating_add(until.saturating_sub(from) / 3 * thirds);
        Timestamp::from_second(second).unwrap_or(self.not_after)
    }
}

/// Returns the URIs, and the DNS names and IP addresses.
fn alternative_names(
    certificate: &X509Certificate<'_>,
) -> Result<(Vec<String>, Vec<String>), AuthorityError> {
    let extension = certificate.subject_alternative_name().map_err(|_| AuthorityError::InvalidCertificate)?;
    let (mut uris, mut names) = (Vec::new(), Vec::new());
    for name in extension.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::URI(uri) => uris.push((*uri).to_owned()),
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => names.extend(address(bytes).map(|ip| ip.to_string())),
            _ => {}
        }
    }
    Ok((uris, names))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = || <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    v4.or_else(|_| v6()).ok()
}
