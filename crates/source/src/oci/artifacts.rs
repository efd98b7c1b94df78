//! Files in artifacts: a layer with an archive, as `flux push artifact`, `oras push` and `helm push` create it.

use std::{
    fs::File,
    io::{BufReader, Seek as _, Write as _},
    sync::Arc,
    time::Duration,
};

use chandler_core::{
    digest::Digest,
    release::PackageReference,
    source::{Ignore, SourceRevisionRecord, artifact_record},
};
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use super::{CHART_LAYER, Layer, Manifest, Registries, repository_url};
use crate::{
    Access, SourceError, SourceTree,
    access_digest::AccessDigest,
    archive::read_files,
    http::Deadline,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
    shared_fetches::SharedFetches,
    single_flight::SingleFlightCache,
    tree::link_remarks,
};

const FLUX_LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
/// The ends of the media types of compressed archives, in the OCI and in the Docker format.
const ARCHIVES: [&str; 2] = ["tar+gzip", "tar.gzip"];
/// How long a manifest or a list of tags can be used by callers that accept one of that age.
const TTL: Duration = Duration::from_hours(1);
/// Number of repositories whose tags are listed at the same time. It limits memory. Namespaces share it fairly.
const CONCURRENT_LISTS: usize = 16;

/// An artifact in a registry.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The digest of its manifest, and what its annotations say.
    pub record: SourceRevisionRecord,
    pub(crate) digest: Digest,
    pub(crate) base_url: Url,
    layer: Layer,
}

/// The files of an artifact.
#[derive(Clone, Debug)]
pub struct ArtifactFiles {
    pub tree: SourceTree,
    /// What was left out of the files. Empty if nothing was.
    pub remarks: String,
}

impl AsRef<SourceTree> for ArtifactFiles {
    fn as_ref(&self) -> &SourceTree {
        &self.tree
    }
}

/// The repository, a tag or digest, and the access.
type ArtifactKey = (Url, String, AccessDigest);
/// The repository, the digest of the manifest, the patterns of files to leave out, and the access.
type FilesKey = (Url, Digest, Vec<String>, AccessDigest);

/// Memory for lists of tags.
const TAGS_CACHE_BYTES: usize = 16 << 20;

/// Returns the approximate size of a key in memory.
fn key_size((url, _): &(Url, AccessDigest)) -> usize {
    url.as_str().len()
}

/// Returns the approximate size of a list of tags in memory.
fn tags_size(tags: &Arc<Vec<String>>) -> usize {
    tags.iter().map(|tag| size_of::<String>() + tag.len()).sum()
}

/// What callers with the same URL and credentials share.
#[derive(Debug)]
pub(super) struct Artifacts {
    manifests: SingleFlightCache<ArtifactKey, Arc<Artifact>>,
    tags: SingleFlightCache<(Url, AccessDigest), Arc<Vec<String>>>,
    files: SharedFetches<FilesKey, ArtifactFiles>,
    permits: NamespaceSemaphore,
}

impl Artifacts {
    pub fn new() -> Self {
        Self {
            manifests: SingleFlightCache::new(TTL),
            tags: SingleFlightCache::with_size_limit(TTL, TAGS_CACHE_BYTES, key_size, tags_size),
            files: SharedFetches::new(),
            permits: NamespaceSemaphore::new(CONCURRENT_LISTS),
        }
    }
}

impl Registries {
    /// Returns the artifact with a tag or digest, unless one that is not older than `max_age` is known.
    pub async fn artifact(
        &self,
        url: &str,
        reference: &str,
        access: &Access,
        max_age: Duration,
    ) -> Result<Arc<Artifact>, SourceError> {
        let base_url = artifact_url(url)?;
        let key = (base_url.clone(), reference.to_owned(), AccessDigest::from(access));
        let read = |_| self.read_artifact(&base_url, url, reference, access);
        self.artifacts.manifests.get_with_max_age(max_age, key, read).await
    }

    async fn read_artifact(
        &self,
        base_url: &Url,
        url: &str,
        reference: &str,
        access: &Access,
    ) -> Result<Arc<Artifact>, SourceError> {
        let unusable = |revision: &str, reason: &str| SourceError::UnusableRevision {
            url: url.to_owned(),
            revision: revision.to_owned(),
            reason: reason.to_owned(),
        };
        let mut session = self.session(base_url, access)?;
        let found = self.manifest(&mut session, reference).await;
        let (digest, manifest) = found.map_err(|error| match error {
            SourceError::Status { status: 404, .. } => {
                SourceError::ArtifactNotFound { url: url.to_owned(), reference: reference.to_owned() }
            }
            SourceError::NotAChart { reason, .. } => unusable(reference, &reason),
            other => other,
        })?;
        // The registry must not answer a digest with another manifest.
        if let Some(expected) = Digest::parse(reference).filter(|expected| *expected != digest) {
            return Err(SourceError::DigestMismatch {
                url: url.to_owned(),
                expected: expected.to_string(),
                actual: digest.to_string(),
            });
        }
        let record = artifact_record(digest.as_str(), &manifest.annotations.clone().unwrap_or_default());
        let layer = manifest.archive().map_err(|reason| unusable(digest.as_str(), reason))?;
        Ok(Arc::new(Artifact { record, digest, base_url: base_url.clone(), layer }))
    }

    /// For a namespace, returns the tags of a repository, unless a list that is not older than `max_age` is known.
    pub async fn artifact_tags(
        &self,
        url: &str,
        access: &Access,
        max_age: Duration,
        namespace: &str,
    ) -> Result<Arc<Vec<String>>, SourceError> {
        let base_url = artifact_url(url)?;
        let key = (base_url.clone(), AccessDigest::from(access));
        let list = |_, permit: NamespacePermit| async {
            let _permit = permit;
            let mut session = self.session(&base_url, access)?;
            // Each page has a time limit of its own, but a list has many pages.
            let deadline = Deadline::after(self.http.limits.git.timeout);
            deadline.run(&base_url, self.tags(&mut session)).await?.map(Arc::new)
        };
        let Artifacts { tags, permits, .. } = &self.artifacts;
        tags.get_with_slot(permits, namespace, max_age, key, list).await
    }

    /// Downloads an artifact and reads its files. Concurrent callers share the download.
    pub async fn artifact_files(
        &self,
        artifact: &Artifact,
        access: &Access,
        ignore: &[String],
        namespace: &str,
    ) -> Result<Arc<ArtifactFiles>, SourceError> {
        let Artifact { digest, base_url, .. } = artifact;
        let key = (base_url.clone(), digest.clone(), ignore.to_vec(), AccessDigest::from(access));
        let read = |permit| async move {
            let _permit = permit;
            self.read_files(artifact, access, ignore).await
        };
        self.artifacts.files.get(namespace, key, read).await
    }

    async fn read_files(
        &self,
        artifact: &Artifact,
        access: &Access,
        ignore: &[String],
    ) -> Result<ArtifactFiles, SourceError> {
        let file = self.download_archive(artifact, access).await?;
        let (limits, ignore, size) = (self.http.limits.tree, Ignore::new(ignore), artifact.layer.size);
        let read = move || read_files(BufReader::new(file), size, limits, &ignore);
        let read = tokio::task::spawn_blocking(read).await;
        let read = read.map_err(|error| SourceError::Store(error.to_string()))?;
        let revision = artifact.digest.to_string();
        let unusable = |reason: String| SourceError::UnusableRevision {
            url: artifact.base_url.to_string(),
            revision: revision.clone(),
            reason,
        };
        let found = read.map_err(|error| unusable(error.to_string()))?;
        if found.files.is_empty() {
            return Err(unusable("it contains no files, or spec.ignore leaves all of them out".to_owned()));
        }
        let remarks = link_remarks(&found.links);
        Ok(ArtifactFiles { tree: SourceTree { revision, files: found.files }, remarks })
    }

    /// Downloads the archive of an artifact to a file without a name.
    async fn download_archive(&self, artifact: &Artifact, access: &Access) -> Result<File, SourceError> {
        let Artifact { base_url, layer, .. } = artifact;
        let (mut file, mut hash) = (self.store.temp_file()?, Sha256::new());
        let write = |chunk: &[u8]| {
            hash.update(chunk);
            file.write_all(chunk).map_err(|error| SourceError::Store(error.to_string()))
        };
        let url = self.download(base_url, layer, access, write).await?;
        let actual = Digest::from_sha256(&hash.finalize().into());
        if actual.as_str() != layer.digest {
            return Err(SourceError::DigestMismatch {
                url: url.to_string(),
                expected: layer.digest.clone(),
                actual: actual.to_string(),
            });
        }
        file.rewind().map_err(|error| SourceError::Store(error.to_string()))?;
        Ok(file)
    }
}

impl Manifest {
    /// Returns the layer with the files: the one of Flux or Helm, otherwise the only archive.
    fn archive(self) -> Result<Layer, &'static str> {
        let known = |layer: &&Layer| [FLUX_LAYER, CHART_LAYER].contains(&layer.media_type.as_str());
        if let Some(layer) = self.layers.iter().find(known) {
            return Ok(layer.clone());
        }
        let is_archive = |layer: &Layer| ARCHIVES.iter().any(|end| layer.media_type.ends_with(end));
        let mut archives = self.layers.into_iter().filter(is_archive);
        match (archives.next(), archives.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(
                "its manifest has no layer of a type tar+gzip; push a folder with `flux push artifact` or `oras push`",
            ),
            (Some(_), Some(_)) => {
                Err("its manifest has several layers of a type tar+gzip; push one layer with all files")
            }
        }
    }
}

/// Returns the URL of a repository in the registry, such as `https://registry.example/v2/platform/fleet/`.
pub(crate) fn artifact_url(url: &str) -> Result<Url, SourceError> {
    let reference = PackageReference { repository: url.to_owned(), name: String::new(), version: None };
    let found = repository_url(&reference)?;
    if found.path().ends_with("//") {
        return Err(SourceError::invalid_url(url));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layer_with_the_files_is_found() {
        let image = "application/vnd.oci.image.layer.v1.tar+gzip";
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let rows: [(&[&str], Result<&str, &str>); 7] = [
            (&[FLUX_LAYER], Ok(FLUX_LAYER)),
            (&["application/vnd.cncf.helm.chart.provenance.v1.prov", CHART_LAYER], Ok(CHART_LAYER)),
            (&[image, FLUX_LAYER], Ok(FLUX_LAYER)),
            (&["text/plain", image], Ok(image)),
            (&[docker], Ok(docker)),
            (&["text/plain"], Err("no layer of a type tar+gzip")),
            (&[image, image], Err("several layers")),
        ];
        for (layers, expected) in rows {
            let layers: Vec<_> = layers
                .iter()
                .map(|media_type| json!({"mediaType": media_type, "digest": "d", "size": 1}))
                .collect();
            let manifest: Manifest = serde_json::from_value(json!({"layers": layers})).unwrap();
            match (manifest.archive(), expected) {
                (Ok(layer), Ok(expected)) => assert_eq!(layer.media_type, expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (found, expected) => panic!("{found:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn artifacts_have_a_repository() {
        let url = |text: &str| artifact_url(text).map(|url| url.to_string()).ok();
        let expected = "https://registry.example:5000/v2/platform/fleet/";
        assert_eq!(url("oci://registry.example:5000/platform/fleet").as_deref(), Some(expected));
        for invalid in ["oci://registry.example", "oci://registry.example/", "https://registry.example/a"] {
            assert_eq!(url(invalid), None, "{invalid}");
        }
    }
}
