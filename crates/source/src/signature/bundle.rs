//! Signatures as cosign 3 makes them: a statement about the manifest in an envelope, with all that vouches for it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::{Refusal, Signers, keyless, log::LogEntry};

const STATEMENT: &str = "application/vnd.in-toto+json";
/// What `cosign sign` states. Attestations come in the same form, and say other things.
const SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

/// A bundle, not looked into yet.
#[derive(Clone, Debug)]
pub(crate) struct Bundle(pub Vec<u8>);

impl Bundle {
    pub(super) fn check(&self, manifest: &Digest, signers: &Signers) -> Result<(), Refusal> {
        let document: Document = serde_json::from_slice(&self.0)
            .map_err(|_| Refusal::Unreadable("it is no bundle with an envelope".to_owned()))?;
        let Document { material, envelope } = document;
        let payload = decoded(&envelope.payload)?;
        check_statement(&envelope.payload_type, &payload, manifest)?;
        let message = signed_text(&envelope.payload_type, &payload);
        let mut closest = Refusal::NoSignature;
        for made in &envelope.signatures {
            match check_signature(&material, &payload, &message, &decoded(&made.sig)?, signers) {
                Ok(()) => return Ok(()),
                Err(refusal) => closest = closest.or_closer(refusal),
            }
        }
        Err(closest)
    }
}

fn check_signature(
    material: &Material,
    payload: &[u8],
    message: &[u8],
    signature: &[u8],
    signers: &Signers,
) -> Result<(), Refusal> {
    if signers.keys.iter().any(|key| key.signed(message, signature)) {
        return Ok(());
    }
    let Some(certificate) = material.certificate() else {
        return Err(if signers.keys.is_empty() { Refusal::NoCertificate } else { Refusal::OtherKey });
    };
    let certificate = CertificateDer::from(decoded(certificate)?);
    let entries: Result<Vec<_>, _> = material.entries.iter().filter_map(Entry::promised).collect();
    keyless::Claim {
        message,
        logged: Digest::of(payload),
        signature,
        certificate: &certificate,
        entries: &entries?,
    }
    .check(signers)
}

fn check_statement(kind: &str, payload: &[u8], manifest: &Digest) -> Result<(), Refusal> {
    let statement: Option<Statement> = serde_json::from_slice(payload).ok().filter(|_| kind == STATEMENT);
    let statement =
        statement.ok_or_else(|| Refusal::Unreadable("its envelope holds no statement".to_owned()))?;
    let is_about = |subject: &Subject| subject.digest.sha256.as_deref() == Some(manifest.hex());
    if statement.predicate_type == SIGNATURE && statement.subject.iter().any(is_about) {
        Ok(())
    } else {
        Err(Refusal::OtherContent)
    }
}

/// What is signed of an envelope: lengths before texts, so that no part can be taken for another.
fn signed_text(kind: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn decoded(text: &str) -> Result<Vec<u8>, Refusal> {
    BASE64_STANDARD.decode(text).map_err(|_| Refusal::Unreadable("it is not base64".to_owned()))
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
    entries: Vec<Entry>,
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
struct Entry {
    log_id: LogId,
    log_index: Option<String>,
    integrated_time: Option<String>,
    inclusion_promise: Option<Promise>,
    canonicalized_body: String,
}

impl Entry {
    /// None: the log gave no promise, as version 2 of Rekor does.
    fn promised(&self) -> Option<Result<LogEntry, Refusal>> {
        let promise = self.inclusion_promise.as_ref()?;
        let number = |text: &Option<String>| text.as_deref().unwrap_or("0").parse::<u64>();
        let bad = |_| Refusal::Unreadable("the entry of its log has no number or time".to_owned());
        let read = || {
            Ok(LogEntry {
                body: decoded(&self.canonicalized_body)?,
                time: number(&self.integrated_time).map_err(bad)?,
                index: number(&self.log_index).map_err(bad)?,
                log: decoded(&self.log_id.key_id)?,
                promise: decoded(&promise.signed_entry_timestamp)?,
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
struct Promise {
    signed_entry_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Made>,
}

#[derive(Deserialize)]
struct Made {
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
