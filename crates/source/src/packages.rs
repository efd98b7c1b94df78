//! One door to every kind of source.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use chandler_core::{digest::Digest, package_format::PackageFormat, release::PackageReference};
use chandler_telemetry::Hits;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use tokio::sync::watch;

use crate::{
    Access, AddressPolicy, Limits, Retention, SourceError, Store, StoredPackage,
    https::Repositories,
    oci::{Layer, Registries},
    shared::Shared,
    verified::Verified,
    web::Web,
};

const COLLECT_EVERY: Duration = Duration::from_hours(1);

/// A version that was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub version: String,
    /// None: the source announces none; it is known after the download.
    pub digest: Option<Digest>,
    /// Selects the package tool.
    pub format: PackageFormat,
    pub(crate) location: Location,
}

#[derive(Clone, Debug)]
pub(crate) enum Location {
    Https { home: Url, archive: Url },
    Oci { home: Url, manifest: Digest, layer: Box<Layer> },
}

/// How sources are asked.
#[derive(Debug)]
pub struct SourceOptions {
    pub addresses: AddressPolicy,
    pub proxies: Matcher,
    pub limits: Limits,
    pub retention: Retention,
}

impl Default for SourceOptions {
    /// Proxies are those of the environment: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`.
    fn default() -> Self {
        Self {
            addresses: AddressPolicy::default(),
            proxies: Matcher::from_env(),
            limits: Limits::default(),
            retention: Retention::default(),
        }
    }
}

/// A version that a source offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedVersion {
    pub version: String,
    /// The Kubernetes versions that the package states. None: it states none, or the source does not tell.
    pub kubernetes: Option<String>,
}

/// Packages of all sources, and the store.
#[derive(Debug)]
pub struct Packages {
    pub(crate) store: Store,
    retention: Retention,
    pub(crate) repositories: Repositories,
    pub(crate) registries: Registries,
    fetched: Shared<(Url, Option<Digest>, Access), Digest>,
    pub(crate) found: Hits,
    pub(crate) verified: Verified,
}

impl Packages {
    pub fn new(store: Store, options: SourceOptions) -> Self {
        let SourceOptions { addresses, proxies, limits, retention } = options;
        let web = Arc::new(Web::new(addresses, proxies, limits));
        Self {
            repositories: Repositories::new(web.clone(), store.clone()),
            registries: Registries::new(web, store.clone()),
            fetched: Shared::new(limits.fresh),
            found: Hits::default(),
            verified: Verified::new(limits.fresh),
            retention,
            store,
        }
    }

    /// Finds the version that `reference` means.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<Resolved, SourceError> {
        if reference.repository.starts_with("oci://") {
            self.registries.resolve(reference, access).await
        } else {
            self.repositories.resolve(reference, access).await
        }
    }

    /// The versions of a package that a source offers, in any order.
    pub async fn versions(
        &self,
        repository: &str,
        name: &str,
        access: &Access,
    ) -> Result<Vec<PublishedVersion>, SourceError> {
        if repository.starts_with("oci://") {
            let versions = self.registries.published(repository, name, access).await?;
            Ok(versions.into_iter().map(|version| PublishedVersion { version, kubernetes: None }).collect())
        } else {
            self.repositories.published(repository, name, access).await
        }
    }

    /// How often what a repository offers was found changed. Registries are asked anew each time: always 0.
    pub fn changed(&self, repository: &str) -> u64 {
        self.repositories.changed(repository)
    }

    /// Told whenever what some repository offers is found changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.repositories.changes()
    }

    /// How often each cache had the answer, and how often not.
    pub fn cache_hits(&self) -> [(&'static str, (u64, u64)); 2] {
        [("index", self.repositories.index_hits()), ("package", self.found.counts())]
    }

    /// The package on disk; downloaded and verified once, whoever asks. What is not signed as it has to be does not
    /// come out of here.
    pub async fn fetch(&self, resolved: &Resolved, access: &Access) -> Result<StoredPackage, SourceError> {
        self.verify(resolved, access).await?;
        let found = resolved.digest.as_ref().and_then(|digest| self.store.get(digest, &resolved.format));
        self.found.note(found.is_some());
        if let Some(found) = found {
            return Ok(found);
        }
        let source = match &resolved.location {
            Location::Https { archive: url, .. } | Location::Oci { home: url, .. } => url.clone(),
        };
        let key = (source, resolved.digest.clone(), access.clone());
        let digest = self.fetched.get(key, |_| self.download(resolved, access)).await?;
        // A file that went since is fetched anew: the answer of a minute ago says nothing about the disk.
        if let Some(found) = self.store.get(&digest, &resolved.format) {
            return Ok(found);
        }
        let digest = self.download(resolved, access).await?;
        self.store
            .get(&digest, &resolved.format)
            .ok_or_else(|| SourceError::Store(format!("{digest} vanished from the store")))
    }

    async fn download(&self, resolved: &Resolved, access: &Access) -> Result<Digest, SourceError> {
        match &resolved.location {
            Location::Https { home, archive } => {
                self.repositories.fetch(home, archive, resolved.digest.as_ref(), access).await
            }
            Location::Oci { home, layer, .. } => {
                self.registries.fetch(home, layer, &resolved.format, access).await
            }
        }
    }

    /// Keeps the store within its bounds, for as long as it is polled.
    pub async fn collect_regularly(&self) {
        let mut clock = tokio::time::interval(COLLECT_EVERY);
        loop {
            clock.tick().await;
            let (store, retention) = (self.store.clone(), self.retention);
            let collect = move || {
                let now = SystemTime::now();
                Ok::<_, std::io::Error>(
                    store.collect(retention, now)? + store.collect_catalogs(retention.age, now)?,
                )
            };
            match tokio::task::spawn_blocking(collect).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(files)) => tracing::info!(files, "collected packages and catalogs that nobody used"),
                Ok(Err(error)) => tracing::warn!(%error, "cannot collect unused packages"),
            }
        }
    }
}
