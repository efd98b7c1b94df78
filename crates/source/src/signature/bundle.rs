//! Signatures in the format of cosign 3: a Sigstore bundle with a DSSE envelope, which contains a statement about the manifest.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::{Signers, VerificationError, keyless, log::LogEntry};

const STATEMENT: &str = "application/vnd.in-toto+json";
/// Predicate type of `cosign sign`. Attestations have the same format, but other predicate types.
const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

/// An unparsed bundle.
#[derive(Clone, Debug)]
pub(crate) struct Bundle(pub Vec<u8>);

impl Bundle {
    pub(super) fn verify(&self, manifest: &Digest, signers: &Signers) -> Result<(), VerificationError> {
        let document: Document = serde_json::from_slice(&self.0)
            .map_err(|_| VerificationError::Invalid("it is not a bundle with an envelope".to_owned()))?;
        let Document { material, envelope } = document;
        let payload = decoded(&envelope.payload)?;
        verify_statement(&envelope.payload_type, &payload, manifest)?;
        let message = pre_authentication_encoding(&envelope.payload_type, &payload);
        let mut most_specific = VerificationError::NoSignature;
        for signature in &envelope.signatures {
            match verify_signature(&material, &payload, &message, &decoded(&signature.sig)?, signers) {
                Ok(()) => return Ok(()),
                Err(error) => most_specific = most_specific.or_more_specific(error),
            }
        }
        Err(most_specific)
    }
}

fn verify_signature(
    material: &Material,
    payload: &[u8],
    message: &[u8],
    signature: &[u8],
    signers: &Signers,
) -> Result<(), VerificationError> {
    if signers.keys.iter().any(|key| key.verifies(message, signature)) {
        return Ok(());
    }
    let Some(certificate) = material.certificate() else {
        return Err(if signers.keys.is_empty() {
            VerificationError::NoCertificate
        } else {
            VerificationError::UntrustedKey
        });
    };
    let certificate = CertificateDer::from(decoded(certificate)?);
    let entries: Result<Vec<_>, _> = material.entries.iter().filter_map(TlogEntry::log_entry).collect();
    keyless::KeylessSignature {
        message,
        logged_digest: Digest::of(payload),
        signature,
        certificate: &certificate,
        entries: &entries?,
    }
    .verify(signers)
}

fn verify_statement(kind: &str, payload: &[u8], manifest: &Digest) -> Result<(), VerificationError> {
    let statement: Option<Statement> = serde_json::from_slice(payload).ok().filter(|_| kind == STATEMENT);
    let statement = statement
        .ok_or_else(|| VerificationError::Invalid("its envelope contains no statement".to_owned()))?;
    let is_about = |subject: &Subject| subject.digest.sha256.as_deref() == Some(manifest.hex());
    if statement.predicate_type == SIGNATURE && statement.subject.iter().any(is_about) {
        Ok(())
    } else {
        Err(VerificationError::WrongContent)
    }
}

/// Returns the signed bytes of a DSSE envelope.
fn pre_authentication_encoding(kind: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn decoded(text: &str) -> Result<Vec<u8>, VerificationError> {
    BASE64_STANDARD.decode(text).map_err(|_| VerificationError::Invalid("it is not base64".to_owned()))
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "verificationMaterial")]
    material: Material,
    #[serde(rename = "dsseEnvelope")]
    envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    certificate: Option<Raw>,
    x509_certificate_chain: Option<Chain>,
    #[serde(default, rename = "tlogEntries")]
    entries: Vec<TlogEntry>,
}

impl Material {
    fn certificate(&self) -> Option<&str> {
        let first = self.x509_certificate_chain.as_ref().and_then(|chain| chain.certificates.first());
        self.certificate.as_ref().or(first).map(|raw| raw.raw_bytes.as_str())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    raw_bytes: String,
}

#[derive(Deserialize)]
struct Chain {
    certificates: Vec<Raw>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TlogEntry {
    log_id: LogId,
    log_index: Option<String>,
    integrated_time: Option<String>,
    inclusion_promise: Option<InclusionPromise>,
    canonicalized_body: String,
}

impl TlogEntry {
    /// Returns `None` if the entry has no inclusion promise, like entries of Rekor 2.
    fn log_entry(&self) -> Option<Result<LogEntry, VerificationError>> {
        let promise = self.inclusion_promise.as_ref()?;
        let number = |text: &Option<String>| text.as_deref().unwrap_or("0").parse::<u64>();
        let invalid = |_| VerificationError::Invalid("its log entry has an invalid index or time".to_owned());
        let read = || {
            Ok(LogEntry {
                body: decoded(&self.canonicalized_body)?,
                time: number(&self.integrated_time).map_err(invalid)?,
                index: number(&self.log_index).map_err(invalid)?,
                log_id: decoded(&self.log_id.key_id)?,
                signed_entry_timestamp: decoded(&promise.signed_entry_timestamp)?,
            })
        };
        Some(read())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogId {
    key_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InclusionPromise {
    signed_entry_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}
