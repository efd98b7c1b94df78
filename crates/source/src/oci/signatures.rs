//! Signatures beside a chart: at a tag that is made of the manifest's digest, or listed as what refers to it.

use std::collections::BTreeMap;

use chandler_core::digest::Digest;
use reqwest::{
    Url,
    header::{ACCEPT, HeaderMap, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{MANIFEST, Registries, below, not_a_package, session::Session};
use crate::{
    SourceError,
    signature::{Bundle, Found, SimpleSignature},
};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
/// Whoever may write to the registry could publish many to keep us busy. Of bundles the newest count: a re-signed chart
/// must not be kept back by old ones.
const MOST: usize = 32;
const LARGEST: u64 = 256 << 10;
/// Answers of registries that do not tell what refers to a manifest.
const NO_REFERRERS: [u16; 4] = [400, 404, 405, 501];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Signatures {
    #[serde(default)]
    layers: Vec<Described>,
}

#[derive(Deserialize)]
struct Referrers {
    #[serde(default)]
    manifests: Vec<Described>,
}

impl Registries {
    /// Signatures in the form of cosign 2.
    pub async fn simple_signatures(
        &self,
        session: &mut Session<'_>,
        manifest: &Digest,
    ) -> Result<Vec<Found>, SourceError> {
        let url = below(session.home, &["manifests", &format!("sha256-{}.sig", manifest.hex())])?;
        let Some(signatures) = self.document::<Signatures>(session, url, MANIFEST, &[404]).await? else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for mut layer in signatures.layers.into_iter().filter(|layer| layer.media_type == SIMPLE).take(MOST) {
            let Some(signature) = layer.annotations.remove(SIGNATURE) else { continue };
            found.push(Found::Simple(SimpleSignature {
                payload: self.blob(session, &layer.digest).await?,
                signature,
                certificate: layer.annotations.remove(CERTIFICATE).filter(|pem| !pem.is_empty()),
                bundle: layer.annotations.remove(LOG_ENTRY).filter(|json| !json.is_empty()),
            }));
        }
        Ok(found)
    }

    /// Signatures in the form of cosign 3.
    pub async fn bundles(
        &self,
        session: &mut Session<'_>,
        manifest: &Digest,
    ) -> Result<Vec<Found>, SourceError> {
        let listed = self.referrers(session, manifest).await?;
        let mut found = Vec::new();
        for referrer in listed.iter().rev().filter(|one| one.artifact_type.starts_with(BUNDLE)).take(MOST) {
            let url = below(session.home, &["manifests", &referrer.digest])?;
            let Some(holder) = self.document::<Signatures>(session, url, MANIFEST, &[404]).await? else {
                continue;
            };
            for layer in holder.layers.iter().filter(|layer| layer.media_type.starts_with(BUNDLE)).take(1) {
                found.push(Found::Bundle(Bundle(self.blob(session, &layer.digest).await?)));
            }
        }
        Ok(found)
    }

    /// What refers to a manifest: as the registry tells, or as those who signed wrote it down at a tag.
    async fn referrers(
        &self,
        session: &mut Session<'_>,
        manifest: &Digest,
    ) -> Result<Vec<Described>, SourceError> {
        let told = below(session.home, &["referrers", manifest.as_str()])?;
        let told = self.document::<Referrers>(session, told, INDEX, &NO_REFERRERS).await?;
        let mut all = told.map(|told| told.manifests).unwrap_or_default();
        if all.is_empty() {
            let tag = below(session.home, &["manifests", &format!("sha256-{}", manifest.hex())])?;
            let written = self.document::<Referrers>(session, tag, INDEX, &[404]).await?;
            all = written.map(|written| written.manifests).unwrap_or_default();
        }
        Ok(all)
    }

    /// None: the answer is one of those that mean there is nothing.
    async fn document<D: DeserializeOwned>(
        &self,
        session: &mut Session<'_>,
        url: Url,
        kind: &'static str,
        nothing: &[u16],
    ) -> Result<Option<D>, SourceError> {
        let accept = [(ACCEPT, HeaderValue::from_static(kind))].into_iter().collect();
        let answer = session.get(url.clone(), accept).await?;
        if nothing.contains(&answer.status().as_u16()) {
            return Ok(None);
        }
        let body = answer.good()?.whole(self.web.limits.document_bytes).await?;
        let document = serde_json::from_slice(&body);
        document.map(Some).map_err(|_| not_a_package(&url, "the list of its signatures cannot be read"))
    }

    async fn blob(&self, session: &mut Session<'_>, digest: &str) -> Result<Vec<u8>, SourceError> {
        let expected = Digest::parse(digest)
            .ok_or_else(|| not_a_package(session.home, "the digest of a signature is not a sha256"))?;
        let url = below(session.home, &["blobs", expected.as_str()])?;
        let body = session.get(url.clone(), HeaderMap::new()).await?.good()?.whole(LARGEST).await?;
        let actual = Digest::of(&body);
        if actual == expected {
            return Ok(body);
        }
        let (expected, actual) = (expected.to_string(), actual.to_string());
        Err(SourceError::DigestMismatch { url: url.to_string(), expected, actual })
    }
}
