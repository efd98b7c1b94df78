//! Signatures for tests, by a Sigstore with its own certificate authority and transparency log.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PublicKeyData as _, SanType, SigningKey as _,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Bundle, Signature, SimpleSignature, log::LogEntry};

pub const ISSUER: &str = "https://accounts.example";
/// 2026-01-01T00:00:00Z
const SIGNING_TIME: u64 = 1_767_225_600;

pub struct Key(KeyPair);

impl Key {
    pub fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.public_key_pem()
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).unwrap()
    }
}

/// A certificate authority and a transparency log.
pub struct TestSigstore {
    authority: (Vec<u8>, Issuer<'static, KeyPair>),
    pub log: std::sync::Arc<Key>,
}

#[derive(Clone, Copy)]
pub enum Format {
    Simple,
    Bundle,
}

/// A signature that is not serialized yet.
pub struct TestSignature {
    format: Format,
    payload: Vec<u8>,
    signature: Vec<u8>,
    certificate: rcgen::Certificate,
    pub entry: Option<LogEntry>,
}

impl TestSigstore {
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().to_vec();
        Self { authority: (root, Issuer::new(params, key)), log: std::sync::Arc::new(Key::new()) }
    }

    /// Returns the trusted root as `cosign trusted-root create` writes it.
    pub fn trusted_root(&self) -> String {
        let valid = json!({"start": "2025-01-01T00:00:00Z"});
        let log = self.log.0.subject_public_key_info();
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "certificateAuthorities": [{
                "certChain": {"certificates": [{"rawBytes": BASE64_STANDARD.encode(&self.authority.0)}]},
                "validFor": valid,
            }],
            "tlogs": [{
                "hashAlgorithm": "SHA2_256",
                "publicKey": {"rawBytes": BASE64_STANDARD.encode(&log), "validFor": valid},
                "logId": {"keyId": BASE64_STANDARD.encode(Sha256::digest(&log))},
            }],
        })
        .to_string()
    }

    pub fn simple(&self, subject: &str, manifest: &Digest, change: impl Fn(&mut TestSignature)) -> Signature {
        let mut signature = self.sign(subject, manifest, Format::Simple);
        change(&mut signature);
        signature.serialize()
    }

    pub fn bundle(&self, subject: &str, manifest: &Digest, change: impl Fn(&mut TestSignature)) -> Signature {
        let mut signature = self.sign(subject, manifest, Format::Bundle);
        change(&mut signature);
        signature.serialize()
    }

    pub fn sign(&self, subject: &str, manifest: &Digest, format: Format) -> TestSignature {
        let key = Key::new();
        let certificate = self.certificate(subject, &key);
        let payload = match format {
            Format::Simple => payload(manifest),
            Format::Bundle => statement(manifest).to_string().into_bytes(),
        };
        let signature = match format {
            Format::Simple => key.sign(&payload),
            Format::Bundle => key.sign(&pre_authentication_encoding(&payload)),
        };
        let body = body(format, &payload, &signature, &certificate);
        let id = Sha256::digest(self.log.0.subject_public_key_info()).to_vec();
        let mut entry =
            LogEntry { body, time: SIGNING_TIME, index: 7, log_id: id, signed_entry_timestamp: vec![] };
        self.sign_entry(&mut entry);
        TestSignature { format, payload, signature, certificate, entry: Some(entry) }
    }

    /// Signs the entry with the key of the log.
    pub fn sign_entry(&self, entry: &mut LogEntry) {
        let log_id = Digest::from_sha256(&entry.log_id.clone().try_into().unwrap()).hex().to_owned();
        let message = format!(
            r#"{{"body":"{}","integratedTime":{},"logID":"{log_id}","logIndex":{}}}"#,
            BASE64_STANDARD.encode(&entry.body),
            entry.time,
            entry.index
        );
        entry.signed_entry_timestamp = self.log.sign(message.as_bytes());
    }

    /// Issues a certificate that is valid for ten minutes from the signing time on.
    fn certificate(&self, subject: &str, key: &Key) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        let start = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(SIGNING_TIME);
        (params.not_before, params.not_after) = (start, start + Duration::from_mins(10));
        let name = subject.try_into().unwrap();
        let name = if subject.contains("://") { SanType::URI(name) } else { SanType::Rfc822Name(name) };
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let length = u8::try_from(ISSUER.len()).unwrap();
        let issuer = [&[0x0c, length], ISSUER.as_bytes()].concat();
        let issuer = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], issuer);
        params.custom_extensions = vec![issuer];
        params.signed_by(&key.0, &self.authority.1).unwrap()
    }
}

impl TestSignature {
    pub fn entry(&mut self) -> &mut LogEntry {
        self.entry.as_mut().unwrap()
    }

    pub fn serialize(self) -> Signature {
        let Self { format, payload, signature, certificate, entry } = self;
        match format {
            Format::Simple => Signature::Simple(SimpleSignature {
                payload,
                signature: BASE64_STANDARD.encode(signature),
                certificate: Some(certificate.pem()),
                bundle: entry.map(|entry| simple_entry(&entry).to_string()),
            }),
            Format::Bundle => {
                let entries: Vec<Value> = entry.iter().map(bundle_entry).collect();
                let raw = BASE64_STANDARD.encode(certificate.der());
                let material = json!({"certificate": {"rawBytes": raw}, "tlogEntries": entries});
                bundle(&material, &payload, &signature)
            }
        }
    }
}

fn simple_entry(entry: &LogEntry) -> Value {
    let log_id = Digest::from_sha256(&entry.log_id.clone().try_into().unwrap()).hex().to_owned();
    json!({
        "SignedEntryTimestamp": BASE64_STANDARD.encode(&entry.signed_entry_timestamp),
        "Payload": {
            "body": BASE64_STANDARD.encode(&entry.body),
            "integratedTime": entry.time,
            "logIndex": entry.index,
            "logID": log_id,
        },
    })
}

fn bundle_entry(entry: &LogEntry) -> Value {
    json!({
        "logIndex": entry.index.to_string(),
        "logId": {"keyId": BASE64_STANDARD.encode(&entry.log_id)},
        "integratedTime": entry.time.to_string(),
        "inclusionPromise": {"signedEntryTimestamp": BASE64_STANDARD.encode(&entry.signed_entry_timestamp)},
        "canonicalizedBody": BASE64_STANDARD.encode(&entry.body),
    })
}

/// Returns the body of the log entry.
fn body(format: Format, payload: &[u8], signature: &[u8], certificate: &rcgen::Certificate) -> Vec<u8> {
    let hash = json!({"algorithm": "sha256", "value": Digest::of(payload).hex()});
    let signature = BASE64_STANDARD.encode(signature);
    let pem = BASE64_STANDARD.encode(certificate.pem());
    let body = match format {
        Format::Simple => json!({
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {"data": {"hash": hash}, "signature": {"content": signature, "publicKey": {"content": pem}}},
        }),
        Format::Bundle => json!({
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {"payloadHash": hash, "signatures": [{"signature": signature, "verifier": pem}]},
        }),
    };
    body.to_string().into_bytes()
}

pub fn payload(manifest: &Digest) -> Vec<u8> {
    let image = json!({"docker-manifest-digest": manifest.as_str()});
    let critical = json!({"identity": {}, "image": image, "type": "cosign container image signature"});
    json!({"critical": critical, "optional": null}).to_string().into_bytes()
}

pub fn statement(manifest: &Digest) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": manifest.hex()}}],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    })
}

fn pre_authentication_encoding(payload: &[u8]) -> Vec<u8> {
    let kind = "application/vnd.in-toto+json";
    [format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).as_bytes(), payload].concat()
}

fn bundle(material: &Value, payload: &[u8], signature: &[u8]) -> Signature {
    let envelope = json!({
        "payload": BASE64_STANDARD.encode(payload),
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"sig": BASE64_STANDARD.encode(signature)}],
    });
    let bundle = json!({"verificationMaterial": material, "dsseEnvelope": envelope});
    Signature::Bundle(Bundle(bundle.to_string().into_bytes()))
}

pub fn simple_by_key(key: &Key, manifest: &Digest) -> Signature {
    let payload = payload(manifest);
    let signature = BASE64_STANDARD.encode(key.sign(&payload));
    Signature::Simple(SimpleSignature { payload, signature, certificate: None, bundle: None })
}

pub fn bundle_by_key(key: &Key, manifest: &Digest) -> Signature {
    bundle_of(key, &statement(manifest))
}

pub fn bundle_of(key: &Key, statement: &Value) -> Signature {
    let payload = statement.to_string().into_bytes();
    let signature = key.sign(&pre_authentication_encoding(&payload));
    bundle(&json!({"publicKey": {"hint": "x"}}), &payload, &signature)
}
