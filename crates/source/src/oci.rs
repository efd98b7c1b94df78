//! Charts and artifacts with files in OCI registries.
//!
//! No registry crate is used, because all requests have to go through [`crate::http`], which restricts addresses, credentials,
//! size and time.

mod artifacts;
mod challenge;
mod listing;
mod session;
mod signatures;

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{digest::Digest, package_format::PackageFormat, release::PackageReference, version};
use reqwest::{
    Url,
    header::{ACCEPT, HeaderMap, HeaderValue},
};
use serde::Deserialize;

pub(crate) use self::artifacts::artifact_url;
pub use self::artifacts::{Artifact, ArtifactFiles};
use self::{artifacts::Artifacts, session::Session};
use crate::{
    Access, ResolvedPackage, SourceError, Store,
    access_digest::AccessDigest,
    http::HttpClient,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
    packages::Location,
    single_flight::SingleFlightCache,
    store::Claim,
};

const SCHEME: &str = "oci://";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const PAGE_SIZE: &str = "1000";
const MAX_PAGES: usize = 100;
/// Limit of all pages of a list together, in bytes.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// Number of packages that are resolved, of lists of versions, and of catalogs that are read at the same time. Namespaces share it
/// fairly. It is large, because registries that do not answer must not delay the others of their namespace.
const CONCURRENT_REQUESTS: usize = 128;

/// All registries.
#[derive(Debug)]
pub(crate) struct Registries {
    http: Arc<HttpClient>,
    store: Store,
    resolved: SingleFlightCache<(PackageReference, AccessDigest), ResolvedPackage>,
    artifacts: Artifacts,
    requests: NamespaceSemaphore,
}

/// A layer of a manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Layer {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
    config: Option<Layer>,
    #[serde(default)]
    artifact_type: String,
    annotations: Option<BTreeMap<String, String>>,
}

impl Manifest {
    /// Returns the format of the package: the artifact type, or the media type of the configuration. A manifest with a
    /// chart layer is a Helm chart, whatever else it declares.
    fn format(&self) -> PackageFormat {
        let config = self.config.as_ref().map(|config| config.media_type.as_str()).unwrap_or_default();
        let has_chart = self.layers.iter().any(|layer| layer.media_type == CHART_LAYER);
        match (self.artifact_type.as_str(), config) {
            _ if has_chart => PackageFormat::default(),
            ("", "" | IMAGE_CONFIG) => PackageFormat::default(),
            ("", config) => PackageFormat::new(config),
            (artifact_type, _) => PackageFormat::new(artifact_type),
        }
    }

    /// Returns the layer that is the package.
    fn package(self, format: &PackageFormat) -> Result<Layer, &'static str> {
        let mut layers = self.layers;
        if format.is_helm_chart() {
            let chart = layers.into_iter().find(|layer| layer.media_type == CHART_LAYER);
            return chart.ok_or("its manifest has no chart layer");
        }
        match (layers.pop(), layers.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err("its manifest must have exactly one layer, which is the package"),
        }
    }
}

impl Registries {
    pub fn new(http: Arc<HttpClient>, store: Store) -> Self {
        let resolved = SingleFlightCache::new(http.limits.cache_ttl);
        let requests = NamespaceSemaphore::new(CONCURRENT_REQUESTS);
        Self { resolved, artifacts: Artifacts::new(), requests, http, store }
    }

    /// Returns the base URL of the repository of a chart.
    pub fn base_url(reference: &PackageReference) -> Result<Url, SourceError> {
        repository_url(reference)
    }

    /// Creates a session, which authenticates once for all its requests.
    pub fn session<'a>(&'a self, base_url: &'a Url, access: &'a Access) -> Result<Session<'a>, SourceError> {
        Session::new(&self.http, base_url, access)
    }

    /// Waits for a slot of the namespace that owns a source, but not for long.
    pub async fn slot(&self, access: &Access) -> Result<NamespacePermit, SourceError> {
        self.requests.acquire(&access.namespace).await
    }

    /// Resolves `reference` to a version and its layer.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<ResolvedPackage, SourceError> {
        let key = (reference.clone(), AccessDigest::from(access));
        let resolve = |_, slot: NamespacePermit| async {
            let _slot = slot;
            self.resolve_uncached(reference, access).await
        };
        let (namespace, max_age) = (&access.namespace, self.http.limits.cache_ttl);
        self.resolved.get_with_slot(&self.requests, namespace, max_age, key, resolve).await
    }

    async fn resolve_uncached(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<ResolvedPackage, SourceError> {
        let base_url = repository_url(reference)?;
        let mut session = self.session(&base_url, access)?;
        let tag = self.tag(&mut session, reference).await?;
        let (manifest, format, layer) = self.layer(&mut session, &tag).await?;
        let digest = Digest::parse(&layer.digest)
            .ok_or_else(|| not_a_chart(&base_url, "the digest of its layer is not a sha256"))?;
        let location = Location::Oci { layer: Box::new(layer), manifest, base_url: base_url.clone() };
        Ok(ResolvedPackage { version: from_tag(&tag), digest: Some(digest), format, location })
    }

    /// Downloads the layer of a package into the store.
    pub async fn fetch(
        &self,
        base_url: &Url,
        layer: &Layer,
        format: &PackageFormat,
        access: &Access,
        claim: Claim,
    ) -> Result<Digest, SourceError> {
        let mut writer = self.store.create(claim)?;
        let url = self.download(base_url, layer, access, |chunk| writer.write(chunk)).await?;
        writer.commit(url.as_str(), Digest::parse(&layer.digest).as_ref(), format).await
    }

    /// Calls `consume` with each chunk of a layer, whose digest is not checked. Returns its URL.
    async fn download(
        &self,
        base_url: &Url,
        layer: &Layer,
        access: &Access,
        mut consume: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<Url, SourceError> {
        let limit = self.http.limits.package_bytes;
        let url = endpoint_url(base_url, &["blobs", &layer.digest])?;
        if layer.size > limit {
            return Err(SourceError::TooLarge { url: url.to_string(), limit });
        }
        let mut session = self.session(base_url, access)?;
        let response = session.get(url.clone(), HeaderMap::new()).await?.error_for_status()?;
        let mut actual = 0;
        let count = |chunk: &[u8]| {
            actual += chunk.len() as u64;
            consume(chunk)
        };
        response.for_each_chunk(limit, count).await?;
        if actual != layer.size {
            return Err(SourceError::SizeMismatch { url: url.to_string(), expected: layer.size, actual });
        }
        Ok(url)
    }

    /// Returns the digest of the manifest, the format of the package and its layer.
    async fn layer(
        &self,
        session: &mut Session<'_>,
        tag: &str,
    ) -> Result<(Digest, PackageFormat, Layer), SourceError> {
        let (digest, manifest) = self.manifest(session, tag).await?;
        let format = manifest.format();
        let layer = manifest.package(&format).map_err(|reason| not_a_chart(session.base_url, reason))?;
        Ok((digest, format, layer))
    }

    async fn manifest(
        &self,
        session: &mut Session<'_>,
        tag: &str,
    ) -> Result<(Digest, Manifest), SourceError> {
        let url = endpoint_url(session.base_url, &["manifests", tag])?;
        let accept = [(ACCEPT, HeaderValue::from_static(MANIFEST))].into_iter().collect();
        let response = session.get(url.clone(), accept).await?.error_for_status()?;
        let header = response.header("docker-content-digest").and_then(Digest::parse);
        let body = response.bytes(self.http.limits.document_bytes).await?;
        let actual = Digest::of(&body);
        if let Some(expected) = header.filter(|header| *header != actual) {
            return Err(SourceError::DigestMismatch {
                url: url.to_string(),
                expected: expected.to_string(),
                actual: actual.to_string(),
            });
        }
        let manifest = serde_json::from_slice(&body);
        Ok((actual, manifest.map_err(|_| not_a_chart(&url, "its manifest cannot be read"))?))
    }

    /// Returns the tag of the requested version. The tags are only listed if the version is not pinned.
    async fn tag(
        &self,
        session: &mut Session<'_>,
        reference: &PackageReference,
    ) -> Result<String, SourceError> {
        if let Some(exact) = reference.version.as_deref().filter(|version| is_exact(version)) {
            return Ok(to_tag(exact));
        }
        let versions = self.versions(session).await?;
        let candidates = || versions.iter().map(String::as_str);
        let chosen = version::choose(reference.version.as_deref(), candidates());
        chosen.map(to_tag).ok_or_else(|| SourceError::VersionNotFound {
            url: reference.repository.clone(),
            name: reference.name.clone(),
            version: reference.version.clone().unwrap_or_else(|| "latest".to_owned()),
            newest: version::choose(None, candidates()).unwrap_or("none").to_owned(),
        })
    }
}

fn is_exact(version: &str) -> bool {
    version::choose(Some(version), [version]).is_some()
        && !version.contains(['*', '^', '~', '<', '>', '=', ' ', ','])
}

/// Returns the tag of a version. Tags cannot contain a plus sign, so Helm replaces it by an underscore.
fn to_tag(version: &str) -> String {
    version.replace('+', "_")
}

fn from_tag(tag: &str) -> String {
    tag.replace('_', "+")
}

/// Returns the URL of a repository in the registry, such as `https://registry.example/v2/charts/hello/`.
fn repository_url(reference: &PackageReference) -> Result<Url, SourceError> {
    let invalid = || SourceError::invalid_url(&reference.repository);
    let rest = reference.repository.strip_prefix(SCHEME).ok_or_else(invalid)?.trim_end_matches('/');
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = format!("{path}/{}", reference.name);
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_valid = |part: &&str| part.chars().all(is_allowed) && !part.chars().all(|c| c == '.');
    if host.is_empty() || host.contains('@') || !parts.iter().all(is_valid) {
        return Err(invalid());
    }
    let (host, library) = match (host, parts.len()) {
        ("docker.io", 1) => ("registry-1.docker.io", "library/"),
        ("docker.io", _) => ("registry-1.docker.io", ""),
        _ => (host, ""),
    };
    let url = Url::parse(&format!("https://{host}/v2/{library}{}/", parts.join("/")));
    url.ok().filter(Url::has_host).ok_or_else(invalid)
}

fn endpoint_url(base_url: &Url, segments: &[&str]) -> Result<Url, SourceError> {
    let mut url = base_url.clone();
    let invalid = |()| SourceError::InvalidUrl { url: base_url.to_string() };
    url.path_segments_mut().map_err(invalid)?.pop_if_empty().extend(segments);
    Ok(url)
}

fn not_a_chart(url: &Url, reason: &str) -> SourceError {
    SourceError::NotAChart { reference: url.to_string(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_artifact_type_is_the_format() {
        let other = "application/vnd.example.v1+yaml";
        let layer = |media_type: &str| json!({"mediaType": media_type, "digest": "d", "size": 1});
        let rows = [
            ("", PackageFormat::HELM_CHART, vec![CHART_LAYER], Ok(PackageFormat::HELM_CHART)),
            ("", "application/json", vec![CHART_LAYER], Ok(PackageFormat::HELM_CHART)),
            (other, "application/vnd.oci.empty.v1+json", vec![CHART_LAYER], Ok(PackageFormat::HELM_CHART)),
            (other, PackageFormat::HELM_CHART, vec!["text/yaml"], Ok(other)),
            ("", other, vec!["text/yaml"], Ok(other)),
            (other, other, vec!["text/yaml", "text/yaml"], Err("exactly one layer")),
            (other, other, vec![], Err("exactly one layer")),
            ("", IMAGE_CONFIG, vec!["application/vnd.oci.image.layer.v1.tar+gzip"], Err("no chart layer")),
        ];
        for (artifact_type, config, layers, expected) in rows {
            let layers: Vec<_> = layers.into_iter().map(layer).collect();
            let manifest: Manifest = serde_json::from_value(
                json!({"artifactType": artifact_type, "config": layer(config), "layers": layers}),
            )
            .unwrap();
            let format = manifest.format();
            match (manifest.package(&format), expected) {
                (Ok(_), Ok(expected)) => assert_eq!(format.as_str(), expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (found, expected) => panic!("{found:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn versions_are_converted_to_tags() {
        assert_eq!(to_tag("1.0.0+build.1"), "1.0.0_build.1");
        assert_eq!(from_tag("1.0.0_build.1"), "1.0.0+build.1");
        for (version, exact) in [("1.2.3", true), ("v1.2.3", true), ("^1.2", false), (">=1, <2", false)] {
            assert_eq!(is_exact(version), exact, "{version}");
        }
    }

    #[test]
    fn repository_urls_end_with_the_chart() {
        let url = |repository: &str, name: &str| {
            let (repository, name) = (repository.to_owned(), name.to_owned());
            repository_url(&PackageReference { repository, name, version: None })
                .map(|url| url.to_string())
                .ok()
        };
        let rows = [
            (
                "oci://registry.example:5000/charts/",
                "hello",
                "https://registry.example:5000/v2/charts/hello/",
            ),
            ("oci://registry.example", "hello", "https://registry.example/v2/hello/"),
            ("oci://docker.io/team", "hello", "https://registry-1.docker.io/v2/team/hello/"),
            ("oci://docker.io", "hello", "https://registry-1.docker.io/v2/library/hello/"),
        ];
        for (repository, name, expected) in rows {
            assert_eq!(url(repository, name).as_deref(), Some(expected));
        }
        for (repository, name) in [
            ("https://registry.example", "hello"),
            ("oci://user:word@registry.example", "hello"),
            ("oci://registry.example/a/../b", "hello"),
            ("oci://registry.example/charts", "hello?x=y"),
            ("oci://", "hello"),
        ] {
            assert_eq!(url(repository, name), None, "{repository} {name}");
        }
    }
}
