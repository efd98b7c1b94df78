//! Who may vouch for signers and for time: the file that `cosign trusted-root create` writes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::key::{BadKey, PublicKey};

/// Why a trusted root cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTrustedRoot {
    #[error("it is no trusted root in JSON: {0}")]
    NotJson(String),
    #[error("it has no certificate authority or no transparency log")]
    Incomplete,
    #[error("a certificate authority has no certificate")]
    NoCertificate,
    #[error("the root of a certificate authority cannot be used: {0}")]
    Root(String),
    #[error("the key of a transparency log cannot be used: {0}")]
    LogKey(BadKey),
    #[error("`{0}` is not a time")]
    Time(String),
    #[error("what should be base64 is not")]
    NotBase64,
}

/// Certificate authorities and transparency logs.
#[derive(Clone, Debug)]
pub(super) struct TrustedRoot {
    pub authorities: Vec<Authority>,
    pub logs: Vec<Log>,
}

/// Who vouches for signers.
#[derive(Clone, Debug)]
pub(super) struct Authority {
    pub root: CertificateDer<'static>,
    pub intermediates: Vec<CertificateDer<'static>>,
    pub valid: Period,
}

/// A transparency log.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub id: Vec<u8>,
    pub key: PublicKey,
    pub valid: Period,
}

/// From a second to another, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    start: u64,
    end: Option<u64>,
}

impl Period {
    pub fn contains(self, seconds: u64) -> bool {
        self.start <= seconds && self.end.is_none_or(|end| seconds <= end)
    }
}

impl TrustedRoot {
    pub fn parse(json: &str) -> Result<Self, BadTrustedRoot> {
        let document: Document =
            serde_json::from_str(json).map_err(|error| BadTrustedRoot::NotJson(error.to_string()))?;
        let authorities: Result<Vec<_>, _> =
            document.certificate_authorities.into_iter().map(authority).collect();
        let logs: Result<Vec<_>, _> = document.tlogs.into_iter().map(log).collect();
        let root = Self { authorities: authorities?, logs: logs? };
        if root.authorities.is_empty() || root.logs.is_empty() {
            return Err(BadTrustedRoot::Incomplete);
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

fn authority(document: AuthorityDocument) -> Result<Authority, BadTrustedRoot> {
    let chain = document.cert_chain.certificates.into_iter();
    let chain: Result<Vec<_>, _> =
        chain.map(|raw| decoded(&raw.raw_bytes).map(CertificateDer::from)).collect();
    let mut intermediates = chain?;
    // The one who vouches for itself comes last.
    let root = intermediates.pop().ok_or(BadTrustedRoot::NoCertificate)?;
    webpki::anchor_from_trusted_cert(&root).map_err(|error| BadTrustedRoot::Root(error.to_string()))?;
    Ok(Authority { root, intermediates, valid: period(&document.valid_for)? })
}

fn log(document: LogDocument) -> Result<Log, BadTrustedRoot> {
    let LogDocument { public_key: KeyDocument { raw_bytes, valid_for }, log_id } = document;
    let key = PublicKey::from_der(decoded(&raw_bytes)?).map_err(BadTrustedRoot::LogKey)?;
    Ok(Log { id: decoded(&log_id.key_id)?, key, valid: period(&valid_for)? })
}

fn period(document: &PeriodDocument) -> Result<Period, BadTrustedRoot> {
    let seconds = |text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let time: Timestamp = text.parse().map_err(|_| BadTrustedRoot::Time(text.clone()))?;
        Ok::<_, BadTrustedRoot>(Some(u64::try_from(time.as_second()).unwrap_or_default()))
    };
    Ok(Period { start: seconds(&document.start)?.unwrap_or_default(), end: seconds(&document.end)? })
}

fn decoded(text: &str) -> Result<Vec<u8>, BadTrustedRoot> {
    BASE64_STANDARD.decode(text).map_err(|_| BadTrustedRoot::NotBase64)
}
