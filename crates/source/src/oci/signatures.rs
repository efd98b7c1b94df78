//! Fetches the signatures of a chart: from a tag that contains the digest of the manifest, or from its referrers.

use std::collections::BTreeMap;

use chandler_core::digest::Digest;
use reqwest::{
    Url,
    header::{ACCEPT, HeaderMap, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{MANIFEST, Registries, endpoint_url, not_a_chart, session::Session};
use crate::{
    SourceError,
    signature::{Bundle, Signature, SimpleSignature},
};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
/// Limits the work that a user with write access to the registry can cause. Of more bundles, the newest are used, so that a chart
/// can be signed again.
const MAX_SIGNATURES: usize = 32;
const MAX_SIGNATURE_BYTES: u64 = 256 << 10;
/// Statuses of registries without the referrers API.
const NO_REFERRERS: [u16; 4] = [400, 404, 405, 501];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct SignatureManifest {
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Referrers {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

impl Registries {
    /// Returns the signatures in the format of cosign 2.
    pub async fn simple_signatures(
        &self,
        session: &mut Session<'_>,
        manifest: &Digest,
    ) -> Result<Vec<Signature>, SourceError> {
        let url = endpoint_url(session.base_url, &["manifests", &format!("sha256-{}.sig", manifest.hex())])?;
        let Some(signatures) = self.get_json::<SignatureManifest>(session, url, MANIFEST, &[404]).await?
        else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for mut layer in
            signatures.layers.into_iter().filter(|layer| layer.media_type == SIMPLE).take(MAX_SIGNATURES)
        {
            let Some(signature) = layer.annotations.remove(SIGNATURE) else { continue };
            found.push(Signature::Simple(SimpleSignature {
                payload: self.blob(session, &layer.digest).await?,
                signature,
                certificate: layer.annotations.remove(CERTIFICATE).filter(|pem| !pem.is_empty()),
                bundle: layer.annotations.remove(LOG_ENTRY).filter(|json| !json.is_empty()),
            }));
        }
        Ok(found)
    }

    /// Returns the signatures in the format of cosign 3.
    pub async fn bundles(
        &self,
        session: &mut Session<'_>,
        manifest: &Digest,
    ) -> Result<Vec<Signature>, SourceError> {
        let referrers = self.referrers(session, manifest).await?;
        let mut found = Vec::new();
        let bundles = referrers.iter().rev().filter(|referrer| referrer.artifact_type.starts_with(BUNDLE));
        for referrer in bundles.take(MAX_SIGNATURES) {
            let url = endpoint_url(session.base_url, &["manifests", &referrer.digest])?;
            let Some(manifest) = self.get_json::<SignatureManifest>(session, url, MANIFEST, &[404]).await?
            else {
                continue;
            };
            for layer in manifest.layers.iter().filter(|layer| layer.media_type.starts_with(BUNDLE)).take(1) {
                found.push(Signature::Bundle(Bundle(self.blob(session, &layer.digest).await?)));
            }
        }
        Ok(found)
    }

    /// Returns the referrers of a manifest, from the referrers API or from the fallback tag.
    async fn referrers(
        &self,
        session: &mut Session<'_>,
        manifest: &Digest,
    ) -> Result<Vec<Descriptor>, SourceError> {
        let url = endpoint_url(session.base_url, &["referrers", manifest.as_str()])?;
        let index = self.get_json::<Referrers>(session, url, INDEX, &NO_REFERRERS).await?;
        let mut referrers = index.map(|index| index.manifests).unwrap_or_default();
        if referrers.is_empty() {
            let tag = endpoint_url(session.base_url, &["manifests", &format!("sha256-{}", manifest.hex())])?;
            let index = self.get_json::<Referrers>(session, tag, INDEX, &[404]).await?;
            referrers = index.map(|index| index.manifests).unwrap_or_default();
        }
        Ok(referrers)
    }

    /// Returns a JSON document, or `None` if the status is one of `absent`.
    async fn get_json<D: DeserializeOwned>(
        &self,
        session: &mut Session<'_>,
        url: Url,
        kind: &'static str,
        absent: &[u16],
    ) -> Result<Option<D>, SourceError> {
        let accept = [(ACCEPT, HeaderValue::from_static(kind))].into_iter().collect();
        let response = session.get(url.clone(), accept).await?;
        if absent.contains(&response.status().as_u16()) {
            return Ok(None);
        }
        let body = response.error_for_status()?.bytes(self.http.limits.document_bytes).await?;
        let document = serde_json::from_slice(&body);
        document.map(Some).map_err(|_| not_a_chart(&url, "the list of its signatures is invalid"))
    }

    async fn blob(&self, session: &mut Session<'_>, digest: &str) -> Result<Vec<u8>, SourceError> {
        let expected = Digest::parse(digest)
            .ok_or_else(|| not_a_chart(session.base_url, "the digest of a signature is not a sha256"))?;
        let url = endpoint_url(session.base_url, &["blobs", expected.as_str()])?;
        let body = session
            .get(url.clone(), HeaderMap::new())
            .await?
            .error_for_status()?
            .bytes(MAX_SIGNATURE_BYTES)
            .await?;
        let actual = Digest::of(&body);
        if actual == expected {
            return Ok(body);
        }
        let (expected, actual) = (expected.to_string(), actual.to_string());
        Err(SourceError::DigestMismatch { url: url.to_string(), expected, actual })
    }
}
