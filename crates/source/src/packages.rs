//! One door to every kind of source.

use std::path::PathBuf;

use chandler_core::{digest::Digest, release::PackageReference};
use oci_client::{Reference, manifest::OciDescriptor};
use reqwest::Url;

use crate::{Access, SourceError, Store, https::Repositories, oci, single_flight::SingleFlight};

/// A version that was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub version: String,
    /// None: the source announces none; it is known after the download.
    pub digest: Option<Digest>,
    pub(crate) location: Location,
}

#[derive(Clone, Debug)]
pub(crate) enum Location {
    Https(Url),
    Oci { image: Box<Reference>, layer: Box<OciDescriptor> },
}

impl Location {
    fn key(&self) -> String {
        match self {
            Self::Https(url) => url.to_string(),
            Self::Oci { layer, .. } => layer.digest.clone(),
        }
    }
}

/// Packages of all sources, and the store.
#[derive(Debug)]
pub struct Packages {
    store: Store,
    repositories: Repositories,
    fetching: SingleFlight<String>,
}

impl Packages {
    pub fn new(store: Store) -> Self {
        Self { store, repositories: Repositories::default(), fetching: SingleFlight::default() }
    }

    /// Finds the version that `reference` means.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<Resolved, SourceError> {
        if reference.repository.starts_with("oci://") {
            oci::resolve(reference, access).await
        } else {
            self.repositories.resolve(reference, access).await
        }
    }

    /// The package with this content, if it has been downloaded.
    pub fn stored(&self, digest: &Digest) -> Option<PathBuf> {
        self.store.get(digest)
    }

    /// The package on disk; downloaded once, whoever asks.
    pub async fn fetch(
        &self,
        resolved: &Resolved,
        access: &Access,
    ) -> Result<(Digest, PathBuf), SourceError> {
        self.fetching
            .run(resolved.location.key(), async {
                if let Some(found) = resolved.digest.as_ref().and_then(|digest| self.found(digest)) {
                    return Ok(found);
                }
                let digest = match &resolved.location {
                    Location::Https(url) => {
                        self.repositories.fetch(url, resolved.digest.as_ref(), access, &self.store).await?
                    }
                    Location::Oci { image, layer } => oci::fetch(image, layer, access, &self.store).await?,
                };
                self.found(&digest)
                    .ok_or_else(|| SourceError::Store(format!("{digest} vanished from the store")))
            })
            .await
    }

    fn found(&self, digest: &Digest) -> Option<(Digest, PathBuf)> {
        self.store.get(digest).map(|path| (digest.clone(), path))
    }
}
