//! Entries of a transparency log (Rekor, version 1), which tell what was signed and when.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::{Refusal, certificate, trusted_root::Log};

/// An entry, and the promise of the log to keep it.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub body: Vec<u8>,
    pub time: u64,
    pub index: u64,
    pub log: Vec<u8>,
    pub promise: Vec<u8>,
}

/// What an entry has to be about.
pub(super) struct Recorded<'a> {
    /// Digest of what was signed.
    pub content: &'a Digest,
    pub signature: &'a [u8],
    pub certificate: &'a CertificateDer<'a>,
}

impl LogEntry {
    /// When it was signed, in seconds since 1970, if a log that is known promises so.
    pub fn signed_at(&self, recorded: &Recorded<'_>, logs: &[Log]) -> Result<u64, Refusal> {
        let refused = |why: &str| Refusal::NotLogged(why.to_owned());
        let mut known = logs.iter().filter(|log| log.id == self.log && log.valid.contains(self.time));
        let statement = self.statement();
        if !known.any(|log| log.key.signed(statement.as_bytes(), &self.promise)) {
            return Err(refused("the log is unknown, or the entry is not its"));
        }
        if !self.is_about(recorded) {
            return Err(refused("the entry is about another signature"));
        }
        Ok(self.time)
    }

    /// What the log signed: JSON in its canonical form.
    fn statement(&self) -> String {
        let body = BASE64_STANDARD.encode(&self.body);
        let log = self.log.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let (time, index) = (self.time, self.index);
        format!(r#"{{"body":"{body}","integratedTime":{time},"logID":"{log}","logIndex":{index}}}"#)
    }

    fn is_about(&self, recorded: &Recorded<'_>) -> bool {
        let Ok(Body { spec }) = serde_json::from_slice(&self.body) else { return false };
        let (hash, made) = match spec {
            Spec::Simple { data, signature } => {
                (data.hash, vec![(signature.content, signature.public_key.content)])
            }
            Spec::Envelope { payload_hash, signatures } => {
                let made = signatures.into_iter().map(|made| (made.signature, made.verifier));
                (payload_hash, made.collect())
            }
        };
        let same_content = hash.algorithm == "sha256" && hash.value == recorded.content.hex();
        same_content && made.iter().any(|(signature, pem)| is_same(signature, pem, recorded))
    }
}

fn is_same(signature: &str, pem: &str, recorded: &Recorded<'_>) -> bool {
    let certificates = BASE64_STANDARD.decode(pem).ok().and_then(|pem| certificate::from_pem(&pem).ok());
    let same_certificate = certificates.is_some_and(|found| found.first() == Some(recorded.certificate));
    same_certificate && BASE64_STANDARD.decode(signature).is_ok_and(|found| found == recorded.signature)
}

#[derive(Deserialize)]
struct Body {
    spec: Spec,
}

/// Of the kinds `hashedrekord` and `dsse`.
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
