//! Finds a version in an index, on a blocking thread if many versions have to be read.

use std::{io, sync::Arc};

use chandler_core::{package_format::PackageFormat, release::PackageReference};
use reqwest::Url;

use super::{Repositories, RepositoryIndex, archive_url, published_digest};
use crate::{ResolvedPackage, SourceError, access::UrlLogin, index::FoundVersion, packages::Location};

impl Repositories {
    /// Resolves `reference` in an index for a namespace.
    pub(super) async fn find_version(
        &self,
        base_url: &Url,
        repository: &Arc<RepositoryIndex>,
        reference: &PackageReference,
        namespace: &str,
    ) -> Result<ResolvedPackage, SourceError> {
        let found = self.find(repository, reference, namespace).await;
        let found = found.map_err(|error| SourceError::InvalidIndex {
            url: base_url.to_string(),
            reason: error.to_string(),
        })?;
        located(base_url, found, reference)
    }

    async fn find(
        &self,
        repository: &Arc<RepositoryIndex>,
        reference: &PackageReference,
        namespace: &str,
    ) -> io::Result<FoundVersion> {
        let (index, name, version) = (&repository.index, &reference.name, reference.version.as_deref());
        if !index.is_large(name) {
            return index.find(name, version);
        }
        if let Some(known) = index.known(name, version) {
            return Ok(known);
        }
        let slot = self.reads.wait(namespace).await;
        let (repository, reference) = (repository.clone(), reference.clone());
        let find = move || {
            let _slot = slot;
            repository.index.find(&reference.name, reference.version.as_deref())
        };
        tokio::task::spawn_blocking(find).await.map_err(io::Error::other)?
    }
}

/// Returns the package of a version that was found.
fn located(
    base_url: &Url,
    found: FoundVersion,
    reference: &PackageReference,
) -> Result<ResolvedPackage, SourceError> {
    let url = base_url.to_string();
    let invalid_index = |reason: String| SourceError::InvalidIndex { url: url.clone(), reason };
    let entry = match found {
        FoundVersion::Found(entry) => entry,
        FoundVersion::NoChart => {
            return Err(SourceError::PackageNotFound { url, name: reference.name.clone() });
        }
        FoundVersion::NoVersion { newest } => {
            return Err(SourceError::VersionNotFound {
                url,
                name: reference.name.clone(),
                version: reference.version.clone().unwrap_or_else(|| "latest".to_owned()),
                newest: newest.unwrap_or_else(|| "none".to_owned()),
            });
        }
    };
    let archive = archive_url(base_url, &entry)?;
    let digest = published_digest(&entry).map_err(|error| invalid_index(error.to_string()))?;
    Ok(ResolvedPackage {
        version: entry.version,
        digest,
        format: PackageFormat::default(),
        location: Location::Https {
            base_url: base_url.clone(),
            archive,
            login: Url::parse(&reference.repository).ok().and_then(|url| UrlLogin::of(&url)),
        },
    })
}
