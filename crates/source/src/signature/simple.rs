//! Signatures as cosign 2 makes them: a document that names the manifest, and beside it what was made of it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use serde::Deserialize;

use super::{Refusal, Signers, certificate, keyless, log::LogEntry};

const TYPE: &str = "cosign container image signature";

/// A layer of the signatures' manifest.
#[derive(Clone, Debug)]
pub(crate) struct SimpleSignature {
    pub payload: Vec<u8>,
    /// Base64.
    pub signature: String,
    /// PEM.
    pub certificate: Option<String>,
    /// The entry of the log, JSON.
    pub bundle: Option<String>,
}

impl SimpleSignature {
    pub(super) fn check(&self, manifest: &Digest, signers: &Signers) -> Result<(), Refusal> {
        let signature = BASE64_STANDARD
            .decode(self.signature.trim())
            .map_err(|_| Refusal::Unreadable("it is not base64".to_owned()))?;
        self.check_content(manifest)?;
        if signers.keys.iter().any(|key| key.signed(&self.payload, &signature)) {
            return Ok(());
        }
        let certificate = match &self.certificate {
            Some(pem) if !signers.identities.is_empty() => certificate::from_pem(pem.as_bytes())?,
            None if signers.keys.is_empty() => return Err(Refusal::NoCertificate),
            _ => return Err(Refusal::OtherKey),
        };
        let certificate = certificate
            .first()
            .ok_or_else(|| Refusal::Unreadable("its certificate is not PEM".to_owned()))?;
        keyless::Claim {
            message: &self.payload,
            logged: Digest::of(&self.payload),
            signature: &signature,
            certificate,
            entries: &self.entries()?,
        }
        .check(signers)
    }

    fn check_content(&self, manifest: &Digest) -> Result<(), Refusal> {
        let payload: Payload = serde_json::from_slice(&self.payload)
            .map_err(|_| Refusal::Unreadable("it is not for a manifest".to_owned()))?;
        let Payload { critical: Critical { image, kind } } = payload;
        let same = kind == TYPE && Digest::parse(&image.digest).as_ref() == Some(manifest);
        if same { Ok(()) } else { Err(Refusal::OtherContent) }
    }

    fn entries(&self) -> Result<Vec<LogEntry>, Refusal> {
        let Some(bundle) = &self.bundle else { return Ok(Vec::new()) };
        let bad = || Refusal::Unreadable("the entry of its log is not as cosign writes it".to_owned());
        let bundle: LogBundle = serde_json::from_str(bundle).map_err(|_| bad())?;
        let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| bad());
        let LogBundle { promise, payload } = bundle;
        Ok(vec![LogEntry {
            body: decoded(&payload.body)?,
            time: payload.time,
            index: payload.index,
            log: from_hex(&payload.log).ok_or_else(bad)?,
            promise: decoded(&promise)?,
        }])
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digest = Digest::parse(text)?;
    let byte = |at: usize| u8::from_str_radix(digest.hex().get(at..at + 2)?, 16).ok();
    (0..digest.hex().len()).step_by(2).map(byte).collect()
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

#[derive(Deserialize)]
struct LogBundle {
    #[serde(rename = "SignedEntryTimestamp")]
    promise: String,
    #[serde(rename = "Payload")]
    payload: LogPayload,
}

#[derive(Deserialize)]
struct LogPayload {
    body: String,
    #[serde(rename = "integratedTime")]
    time: u64,
    #[serde(rename = "logIndex")]
    index: u64,
    #[serde(rename = "logID")]
    log: String,
}
