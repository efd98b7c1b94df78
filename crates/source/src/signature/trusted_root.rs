//! The trusted certificate authorities and transparency logs: the file that `cosign trusted-root create` writes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::key::{KeyError, PublicKey};

/// A trusted root is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustedRootError {
    #[error("it is not a trusted root in JSON: {0}")]
    NotJson(String),
    #[error("it has no certificate authority or no transparency log")]
    Incomplete,
    #[error("a certificate authority has no certificate")]
    NoCertificate,
    #[error("the root certificate of a certificate authority is invalid: {0}")]
    Root(String),
    #[error("the key of a transparency log is invalid: {0}")]
    LogKey(KeyError),
    #[error("`{0}` is not a timestamp")]
    Time(String),
    #[error("a key, an ID or a certificate is not base64")]
    NotBase64,
}

/// Certificate authorities and transparency logs.
#[derive(Clone, Debug)]
pub(super) struct TrustedRoot {
    pub authorities: Vec<CertificateAuthority>,
    pub logs: Vec<TransparencyLog>,
}

/// A certificate authority that issues certificates to signers.
#[derive(Clone, Debug)]
pub(super) struct CertificateAuthority {
    pub root: CertificateDer<'static>,
    pub intermediates: Vec<CertificateDer<'static>>,
    pub valid: ValidityPeriod,
}

/// A transparency log.
#[derive(Clone, Debug)]
pub(super) struct TransparencyLog {
    pub id: Vec<u8>,
    pub key: PublicKey,
    pub valid: ValidityPeriod,
}

/// A period in seconds since 1970. Without `end`, it does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValidityPeriod {
    start: u64,
    end: Option<u64>,
}

impl ValidityPeriod {
    pub fn contains(self, seconds: u64) -> bool {
        self.start <= seconds && self.end.is_none_or(|end| seconds <= end)
    }
}

impl TrustedRoot {
    pub fn parse(json: &str) -> Result<Self, TrustedRootError> {
        let document: Document =
            serde_json::from_str(json).map_err(|error| TrustedRootError::NotJson(error.to_string()))?;
        let authorities: Result<Vec<_>, _> =
            document.certificate_authorities.into_iter().map(authority).collect();
        let logs: Result<Vec<_>, _> = document.tlogs.into_iter().map(log).collect();
        let root = Self { authorities: authorities?, logs: logs? };
        if root.authorities.is_empty() || root.logs.is_empty() {
            return Err(TrustedRootError::Incomplete);
        }
        Ok(root)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    certificate_authorities: Vec<AuthorityDocument>,
    #[serde(default)]
    tlogs: Vec<LogDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorityDocument {
    cert_chain: Chain,
    #[serde(default)]
    valid_for: PeriodDocument,
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<Raw>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    raw_bytes: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogDocument {
    public_key: KeyDocument,
    log_id: LogId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyDocument {
    raw_bytes: String,
    #[serde(default)]
    valid_for: PeriodDocument,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    key_id: String,
}

#[derive(Default, Deserialize)]
struct PeriodDocument {
    start: Option<String>,
    end: Option<String>,
}

fn authority(document: AuthorityDocument) -> Result<CertificateAuthority, TrustedRootError> {
    let chain = document.cert_chain.certificates.into_iter();
    let chain: Result<Vec<_>, _> =
        chain.map(|raw| decoded(&raw.raw_bytes).map(CertificateDer::from)).collect();
    let mut intermediates = chain?;
    // The root certificate is the last one.
    let root = intermediates.pop().ok_or(TrustedRootError::NoCertificate)?;
    webpki::anchor_from_trusted_cert(&root).map_err(|error| TrustedRootError::Root(error.to_string()))?;
    Ok(CertificateAuthority { root, intermediates, valid: period(&document.valid_for)? })
}

fn log(document: LogDocument) -> Result<TransparencyLog, TrustedRootError> {
    let LogDocument { public_key: KeyDocument { raw_bytes, valid_for }, log_id } = document;
    let key = PublicKey::from_der(decoded(&raw_bytes)?).map_err(TrustedRootError::LogKey)?;
    Ok(TransparencyLog { id: decoded(&log_id.key_id)?, key, valid: period(&valid_for)? })
}

fn period(document: &PeriodDocument) -> Result<ValidityPeriod, TrustedRootError> {
    let seconds = |text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let time: Timestamp = text.parse().map_err(|_| TrustedRootError::Time(text.clone()))?;
        Ok::<_, TrustedRootError>(Some(u64::try_from(time.as_second()).unwrap_or_default()))
    };
    Ok(ValidityPeriod { start: seconds(&document.start)?.unwrap_or_default(), end: seconds(&document.end)? })
}

fn decoded(text: &str) -> Result<Vec<u8>, TrustedRootError> {
    BASE64_STANDARD.decode(text).map_err(|_| TrustedRootError::NotBase64)
}
