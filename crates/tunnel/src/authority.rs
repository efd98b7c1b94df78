//! The certificate authority of an installation: it signs the certificates of its hubs and agents.

mod facts;

use std::{fmt, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};

pub use self::facts::CertificateFacts;
use crate::{
    identity::{CertificateIdentity, Installation, TunnelIdentity},
    random::{RandomError, random_bytes},
};

/// Validity of the authority itself.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);
/// Validity of the certificates of agents.
pub const AGENT_LIFETIME: Duration = Duration::from_hours(90 * 24);
/// Validity of the certificates of hubs.
pub const HUB_LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Certificates are backdated by this time, because clocks may be slow.
const CLOCK_SKEW: Duration = Duration::from_hours(1);
/// The length of an uncompressed point on the curve P-256.
const P256_POINT_BYTES: usize = 65;

/// Why the authority cannot be used, or does not sign. The messages contain nothing of the keys.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the certificate cannot be read")]
    InvalidCertificate,
    #[error("the private key is not a PKCS #8 key of the curve P-256 in PEM")]
    InvalidKey,
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    #[error("the certificate signing request cannot be read, or its signature is invalid")]
    InvalidRequest,
    #[error("the certificate signing request has a key that is not ECDSA with the curve P-256")]
    UnsupportedKey,
    #[error("{name:?} is neither a DNS name nor an IP address")]
    InvalidName { name: String },
    #[error("the certificate contains no identity of Chandler, or more than one")]
    NoIdentity,
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("a certificate cannot be created: {0}")]
    Create(#[source] rcgen::Error),
}

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct CertificateAndKey {
    pub certificate: String,
    pub key: SecretString,
}

/// The certificate authority of an installation.
pub struct CertificateAuthority {
    pem: CertificateAndKey,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    pub fn generate(installation: Installation, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = generate_key()?;
        let mut params = params("chandler tunnel authority", now, AUTHORITY_LIFETIME)?;
        // The name distinguishes the authorities of two installations, both of which an agent may trust.
        params.distinguished_name.push(DnType::OrganizationName, installation.to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(AuthorityError::Create)?;
        let pem = CertificateAndKey { certificate: certificate.pem(), key: key.serialize_pem().into() };
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    /// Reads a stored authority, and verifies that key and certificate belong together.
    pub fn from_pem(certificate: &str, key: &SecretString) -> Result<Self, AuthorityError> {
        let der = read_pem(certificate)?;
        let key_pair = read_key(key)?;
        if CertificateFacts::read(&der)?.public_key != key_pair.public_key_raw() {
            return Err(AuthorityError::KeyMismatch);
        }
        let issuer =
            Issuer::from_ca_cert_der(&der, key_pair).map_err(|_| AuthorityError::InvalidCertificate)?;
        let pem = CertificateAndKey { certificate: certificate.to_owned(), key: key.clone() };
        Ok(Self { pem, issuer })
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.pem.certificate
    }

    /// Returns the private key of the authority, in PEM.
    pub fn key_pem(&self) -> &SecretString {
        &self.pem.key
    }

    /// Signs a certificate for exactly this identity, and returns it in PEM.
    ///
    /// Only the public key of the request is used: the names and usages that it asks for are ignored.
    pub fn sign_agent(
        &self,
        request: &str,
        identity: TunnelIdentity,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        let request = CertificateSigningRequestParams::from_pem(request)
            .map_err(|_| AuthorityError::InvalidRequest)?
            .public_key;
        // The algorithm is the one of the signature; the length of the key identifies the curve.
        let is_p256 =
            request.algorithm() == &PKCS_ECDSA_P256_SHA256 && request.der_bytes().len() == P256_POINT_BYTES;
        if !is_p256 {
            return Err(AuthorityError::UnsupportedKey);
        }
        let mut params = params("chandler agent", now, AGENT_LIFETIME)?;
        params.subject_alt_names = vec![uri(CertificateIdentity::Agent(identity))?];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, &request)
    }

    /// Generates a key, and signs a certificate with which a hub serves these names and connects to its peers.
    pub fn issue_hub(
        &self,
        installation: Installation,
        names: &[String],
        now: Timestamp,
    ) -> Result<CertificateAndKey, AuthorityError> {
        let key = generate_key()?;
        let mut params = params("chandler hub", now, HUB_LIFETIME)?;
        params.subject_alt_names = names.iter().map(|name| host(name)).collect::<Result<_, _>>()?;
        params.subject_alt_names.push(uri(CertificateIdentity::Hub(installation))?);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = self.sign(params, &key)?;
        Ok(CertificateAndKey { certificate, key: key.serialize_pem().into() })
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<String, AuthorityError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, &self.issuer).map_err(AuthorityError::Create)?;
        Ok(certificate.pem())
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateAuthority(..)")
    }
}

/// Generates a private key, as an agent does, and returns it in PEM.
pub fn generate_key_pem() -> Result<SecretString, AuthorityError> {
    Ok(generate_key()?.serialize_pem().into())
}

/// Creates a certificate signing request for a private key in PEM. It contains nothing but the key.
pub fn certificate_request(key: &SecretString) -> Result<String, AuthorityError> {
    let request =
        CertificateParams::default().serialize_request(&read_key(key)?).map_err(AuthorityError::Create)?;
    request.pem().map_err(AuthorityError::Create)
}

/// Returns whether a private key belongs to a certificate, both in PEM.
pub(crate) fn belong_together(certificate: &str, key: &SecretString) -> Result<bool, AuthorityError> {
    let facts = CertificateFacts::from_pem(certificate)?;
    Ok(facts.public_key == read_key(key)?.public_key_raw())
}

fn read_pem(certificate: &str) -> Result<CertificateDer<'static>, AuthorityError> {
    CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| AuthorityError::InvalidCertificate)
}

fn generate_key() -> Result<KeyPair, AuthorityError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Create)
}

fn read_key(key: &SecretString) -> Result<KeyPair, AuthorityError> {
    KeyPair::from_pkcs8_pem_and_sign_algo(key.expose_secret(), &PKCS_ECDSA_P256_SHA256)
        .map_err(|_| AuthorityError::InvalidKey)
}

fn params(name: &str, now: Timestamp, lifetime: Duration) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    let now = Duration::from_secs(now.as_second().try_into().unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + now.saturating_add(lifetime);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let mut serial = random_bytes::<16>()?;
    // A serial number is positive.
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn uri(identity: CertificateIdentity) -> Result<SanType, AuthorityError> {
    let uri = identity.to_uri().try_into().map_err(AuthorityError::Create)?;
    Ok(SanType::URI(uri))
}

fn host(name: &str) -> Result<SanType, AuthorityError> {
    if let Ok(address) = name.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let valid =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.*".contains(&byte));
    match name.to_owned().try_into() {
        Ok(dns) if valid => Ok(SanType::DnsName(dns)),
        _ => Err(AuthorityError::InvalidName { name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
