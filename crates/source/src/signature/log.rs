//! Entries of a transparency log (Rekor 1), which prove what was signed and when.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::{VerificationError, certificate, trusted_root::TransparencyLog};

/// A log entry and its inclusion promise.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub body: Vec<u8>,
    pub time: u64,
    pub index: u64,
    pub log_id: Vec<u8>,
    /// The signature of the log, which is the inclusion promise.
    pub signed_entry_timestamp: Vec<u8>,
}

/// The content that an entry must have.
pub(super) struct ExpectedEntry<'a> {
    /// Digest of the signed content.
    pub content: &'a Digest,
    pub signature: &'a [u8],
    pub certificate: &'a CertificateDer<'a>,
}

impl LogEntry {
    /// Returns the time of the signature in seconds since 1970, if the entry is from a trusted log and has the expected content.
    pub fn signed_at(
        &self,
        expected: &ExpectedEntry<'_>,
        logs: &[TransparencyLog],
    ) -> Result<u64, VerificationError> {
        let not_logged = |reason: &str| VerificationError::NotLogged(reason.to_owned());
        let mut trusted = logs.iter().filter(|log| log.id == self.log_id && log.valid.contains(self.time));
        let message = self.signed_message();
        if !trusted.any(|log| log.key.verifies(message.as_bytes(), &self.signed_entry_timestamp)) {
            return Err(not_logged("the log is not trusted, or the entry is not signed by it"));
        }
        if !self.matches(expected) {
            return Err(not_logged("the entry is for another signature"));
        }
        Ok(self.time)
    }

    /// Returns the message that the log signed: canonical JSON.
    fn signed_message(&self) -> String {
        let body = BASE64_STANDARD.encode(&self.body);
        let log_id = self.log_id.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let (time, index) = (self.time, self.index);
        format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{log_id}","logIndex":{index}}}"#)
    }

    fn matches(&self, expected: &ExpectedEntry<'_>) -> bool {
        let Ok(Body { spec }) = serde_json::from_slice(&self.body) else { return false };
        let (hash, signatures) = match spec {
            Spec::Simple { data, signature } => {
                (data.hash, vec![(signature.content, signature.public_key.content)])
            }
            Spec::Envelope { payload_hash, signatures } => {
                let signatures = signatures.into_iter().map(|entry| (entry.signature, entry.verifier));
                (payload_hash, signatures.collect())
            }
        };
        let same_content = hash.algorithm == "sha256" && hash.value == expected.content.hex();
        same_content && signatures.iter().any(|(signature, pem)| is_same(signature, pem, expected))
    }
}

fn is_same(signature: &str, pem: &str, expected: &ExpectedEntry<'_>) -> bool {
    let certificates = BASE64_STANDARD.decode(pem).ok().and_then(|pem| certificate::from_pem(&pem).ok());
    let same_certificate = certificates.is_some_and(|found| found.first() == Some(expected.certificate));
    same_certificate && BASE64_STANDARD.decode(signature).is_ok_and(|found| found == expected.signature)
}

#[derive(Deserialize)]
struct Body {
    spec: Spec,
}

/// The spec of an entry of kind `hashedrekord` or `dsse`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Spec {
    Simple {
        data: Data,
        signature: SimpleEntry,
    },
    Envelope {
        #[serde(rename = "payloadHash")]
        payload_hash: Hash,
        signatures: Vec<EnvelopeEntry>,
    },
}

#[derive(Deserialize)]
struct Data {
    hash: Hash,
}

#[derive(Deserialize)]
struct Hash {
    algorithm: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SimpleEntry {
    content: String,
    public_key: Content,
}

#[derive(Deserialize)]
struct Content {
    content: String,
}

#[derive(Deserialize)]
struct EnvelopeEntry {
    signature: String,
    verifier: String,
}
