//! Signatures for tests: a town with its own certificate authority and its own log.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::digest::Digest;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PublicKeyData as _, SanType, SigningKey as _,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Bundle, Found, SimpleSignature, log::LogEntry};

pub const ISSUER: &str = "https://accounts.example";
/// 2026-01-01T00:00:00Z
const NEW_YEAR: u64 = 1_767_225_600;

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

/// A certificate authority and a log.
pub struct Town {
    authority: (Vec<u8>, Issuer<'static, KeyPair>),
    pub log: std::sync::Arc<Key>,
}

#[derive(Clone, Copy)]
pub enum Form {
    Simple,
    Bundle,
}

/// A signature before it is written down.
pub struct Made {
    form: Form,
    payload: Vec<u8>,
    signature: Vec<u8>,
    certificate: rcgen::Certificate,
    pub entry: Option<LogEntry>,
}

impl Town {
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().to_vec();
        Self { authority: (root, Issuer::new(params, key)), log: std::sync::Arc::new(Key::new()) }
    }

    /// As `cosign trusted-root create` writes it.
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

    pub fn simple(&self, who: &str, manifest: &Digest, change: impl Fn(&mut Made)) -> Found {
        let mut made = self.made(who, manifest, Form::Simple);
        change(&mut made);
        made.found()
    }

    pub fn bundle(&self, who: &str, manifest: &Digest, change: impl Fn(&mut Made)) -> Found {
        let mut made = self.made(who, manifest, Form::Bundle);
        change(&mut made);
        made.found()
    }

    pub fn made(&self, who: &str, manifest: &Digest, form: Form) -> Made {
        let key = Key::new();
        let certificate = self.certificate(who, &key);
        let payload = match form {
            Form::Simple => payload(manifest),
            Form::Bundle => statement(manifest).to_string().into_bytes(),
        };
        let signature = match form {
            Form::Simple => key.sign(&payload),
            Form::Bundle => key.sign(&enveloped(&payload)),
        };
        let body = body(form, &payload, &signature, &certificate);
        let id = Sha256::digest(self.log.0.subject_public_key_info()).to_vec();
        let mut entry = LogEntry { body, time: NEW_YEAR, index: 7, log: id, promise: vec![] };
        self.promise(&mut entry);
        Made { form, payload, signature, certificate, entry: Some(entry) }
    }

    /// The log signs the entry, as it is.
    pub fn promise(&self, entry: &mut LogEntry) {
        let log = Digest::from_sha256(&entry.log.clone().try_into().unwrap()).hex().to_owned();
        let statement = format!(
            r#"{{"body":"{}","integratedTime":{},"logID":"{log}","logIndex":{}}}"#,
            BASE64_STANDARD.encode(&entry.body),
            entry.time,
            entry.index
        );
        entry.promise = self.log.sign(statement.as_bytes());
    }

    /// For ten minutes from New Year on.
    fn certificate(&self, who: &str, key: &Key) -> rcgen::Certificate {
        let mut params = CertificateParams::default();
        let start = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(NEW_YEAR);
        (params.not_before, params.not_after) = (start, start + Duration::from_mins(10));
        let name = who.try_into().unwrap();
        let name = if who.contains("://") { SanType::URI(name) } else { SanType::Rfc822Name(name) };
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let length = u8::try_from(ISSUER.len()).unwrap();
        let issuer = [&[0x0c, length], ISSUER.as_bytes()].concat();
        let issuer = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], issuer);
        params.custom_extensions = vec![issuer];
        params.signed_by(&key.0, &self.authority.1).unwrap()
    }
}

impl Made {
    pub fn entry(&mut self) -> &mut LogEntry {
        self.entry.as_mut().unwrap()
    }

    pub fn found(self) -> Found {
        let Self { form, payload, signature, certificate, entry } = self;
        match form {
            Form::Simple => Found::Simple(SimpleSignature {
                payload,
                signature: BASE64_STANDARD.encode(signature),
                certificate: Some(certificate.pem()),
                bundle: entry.map(|entry| simple_entry(&entry).to_string()),
            }),
            Form::Bundle => {
                let entries: Vec<Value> = entry.iter().map(bundle_entry).collect();
                let raw = BASE64_STANDARD.encode(certificate.der());
                let material = json!({"certificate": {"rawBytes": raw}, "tlogEntries": entries});
                written(&material, &payload, &signature)
            }
        }
    }
}

fn simple_entry(entry: &LogEntry) -> Value {
    let log = Digest::from_sha256(&entry.log.clone().try_into().unwrap()).hex().to_owned();
    json!({
        "SignedEntryTimestamp": BASE64_STANDARD.encode(&entry.promise),
        "Payload": {
            "body": BASE64_STANDARD.encode(&entry.body),
            "integratedTime": entry.time,
            "logIndex": entry.index,
            "logID": log,
        },
    })
}

fn bundle_entry(entry: &LogEntry) -> Value {
    json!({
        "logIndex": entry.index.to_string(),
        "logId": {"keyId": BASE64_STANDARD.encode(&entry.log)},
        "integratedTime": entry.time.to_string(),
        "inclusionPromise": {"signedEntryTimestamp": BASE64_STANDARD.encode(&entry.promise)},
        "canonicalizedBody": BASE64_STANDARD.encode(&entry.body),
    })
}

/// What the log keeps.
fn body(form: Form, payload: &[u8], signature: &[u8], certificate: &rcgen::Certificate) -> Vec<u8> {
    let hash = json!({"algorithm": "sha256", "value": Digest::of(payload).hex()});
    let signature = BASE64_STANDARD.encode(signature);
    let pem = BASE64_STANDARD.encode(certificate.pem());
    let body = match form {
        Form::Simple => json!({
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {"data": {"hash": hash}, "signature": {"content": signature, "publicKey": {"content": pem}}},
        }),
        Form::Bundle => json!({
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

fn enveloped(payload: &[u8]) -> Vec<u8> {
    let kind = "application/vnd.in-toto+json";
    [format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).as_bytes(), payload].concat()
}

fn written(material: &Value, payload: &[u8], signature: &[u8]) -> Found {
    let envelope = json!({
        "payload": BASE64_STANDARD.encode(payload),
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"sig": BASE64_STANDARD.encode(signature)}],
    });
    let bundle = json!({"verificationMaterial": material, "dsseEnvelope": envelope});
    Found::Bundle(Bundle(bundle.to_string().into_bytes()))
}

pub fn simple_by_key(key: &Key, manifest: &Digest) -> Found {
    let payload = payload(manifest);
    let signature = BASE64_STANDARD.encode(key.sign(&payload));
    Found::Simple(SimpleSignature { payload, signature, certificate: None, bundle: None })
}

pub fn bundle_by_key(key: &Key, manifest: &Digest) -> Found {
    bundle_of(key, &statement(manifest))
}

pub fn bundle_of(key: &Key, statement: &Value) -> Found {
    let payload = statement.to_string().into_bytes();
    let signature = key.sign(&enveloped(&payload));
    written(&json!({"publicKey": {"hint": "x"}}), &payload, &signature)
}
