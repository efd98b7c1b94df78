//! Signatures in the format of cosign 2: a signed payload that contains the digest of the manifest.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use serde::Deserialize;

use super::{Signers, VerificationError, certificate, keyless, log::LogEntry};

const TYPE: &str = "cosign container image signature";

/// A layer of the manifest of the signatures, and its annotations.
#[derive(Clone, Debug)]
pub(crate) struct SimpleSignature {
    pub payload: Vec<u8>,
    /// The signature in base64.
    pub signature: String,
    /// The certificate in PEM.
    pub certificate: Option<String>,
    /// The entry of the transparency log in JSON.
    pub bundle: Option<String>,
}

impl SimpleSignature {
    pub(super) fn verify(&self, manifest: &Digest, signers: &Signers) -> Result<(), VerificationError> {
        let signature = BASE64_STANDARD
            .decode(self.signature.trim())
            .map_err(|_| VerificationError::Invalid("it is not base64".to_owned()))?;
        self.verify_content(manifest)?;
        if signers.keys.iter().any(|key| key.verifies(&self.payload, &signature)) {
            return Ok(());
        }
        let certificate = match &self.certificate {
            Some(pem) if !signers.identities.is_empty() => certificate::from_pem(pem.as_bytes())?,
            None if signers.keys.is_empty() => return Err(VerificationError::NoCertificate),
            _ => return Err(VerificationError::UntrustedKey),
        };
        let certificate = certificate
            .first()
            .ok_or_else(|| VerificationError::Invalid("its certificate is not PEM".to_owned()))?;
        keyless::KeylessSignature {
            message: &self.payload,
            logged_digest: Digest::of(&self.payload),
            signature: &signature,
            certificate,
            entries: &self.entries()?,
        }
        .verify(signers)
    }

    fn verify_content(&self, manifest: &Digest) -> Result<(), VerificationError> {
        let payload: Payload = serde_json::from_slice(&self.payload)
            .map_err(|_| VerificationError::Invalid("it is not for a manifest".to_owned()))?;
        let Payload { critical: Critical { image, kind } } = payload;
        let same = kind == TYPE && Digest::parse(&image.digest).as_ref() == Some(manifest);
        if same { Ok(()) } else { Err(VerificationError::WrongContent) }
    }

    fn entries(&self) -> Result<Vec<LogEntry>, VerificationError> {
        let Some(bundle) = &self.bundle else { return Ok(Vec::new()) };
        let invalid =
            || VerificationError::Invalid("its log entry is not in the format of cosign".to_owned());
        let bundle: LogBundle = serde_json::from_str(bundle).map_err(|_| invalid())?;
        let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| invalid());
        let LogBundle { signed_entry_timestamp, payload } = bundle;
        Ok(vec![LogEntry {
            body: decoded(&payload.body)?,
            time: payload.time,
            index: payload.index,
            log_id: from_hex(&payload.log_id).ok_or_else(invalid)?,
            signed_entry_timestamp: decoded(&signed_entry_timestamp)?,
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
    signed_entry_timestamp: String,
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
    log_id: String,
}
