//! Resolves and fetches packages from every kind of source.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use chandler_core::{
    addresses::AllowFlag,
    digest::Digest,
    package_format::PackageFormat,
    quota::Quotas,
    release::PackageReference,
    source::{Bucket, RemoteRefs},
};
use chandler_telemetry::CacheHits;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use tokio::sync::watch;

use crate::{
    Access, AddressPolicy, Artifact, ArtifactFiles, BucketObjects, FilesOwner, GitCommit, GitRequest, Limits,
    PackedFiles, QuotaUsage, Retention, SourceError, SourceQuotas, SourceTree, Store, StoredPackage,
    StoredRevision,
    access::UrlLogin,
    access_digest::AccessDigest,
    bucket::Buckets,
    git::GitRepositories,
    http::HttpClient,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
    oci::{Layer, Registries},
    quotas::claim,
    repositories::Repositories,
    single_flight::SingleFlightCache,
    store::Claim,
    verification::Verification,
};

const GARBAGE_COLLECTION_INTERVAL: Duration = Duration::from_hours(1);
/// Number of packages that are downloaded at the same time. Namespaces share it fairly. It is large, because repositories that do not
/// answer must not delay the others of their namespace.
const CONCURRENT_DOWNLOADS: usize = 64;

/// A version of a package that exists in its source.
#[derive(Clone, Debug)]
pub struct ResolvedPackage {
    pub version: String,
    /// `None` if the source does not publish the digest. It is then only known after the download.
    pub digest: Option<Digest>,
    /// Selects the package tool.
    pub format: PackageFormat,
    pub(crate) location: Location,
}

impl ResolvedPackage {
    /// Returns the address of the archive that the index of a repository names. `None` for a package in a registry.
    pub fn archive_url(&self) -> Option<&str> {
        match &self.location {
            Location::Https { archive, .. } => Some(archive.as_str()),
            Location::Oci { .. } => None,
        }
    }

    /// Returns the access with the login of the repository's URL, if it has one.
    fn with_login<'a>(&self, access: &'a Access) -> Cow<'a, Access> {
        match &self.location {
            Location::Https { login: Some(login), .. } => Cow::Owned(login.add_to(access)),
            Location::Https { .. } | Location::Oci { .. } => Cow::Borrowed(access),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Location {
    Https { base_url: Url, archive: Url, login: Option<UrlLogin> },
    Oci { base_url: Url, manifest: Digest, layer: Box<Layer> },
}

/// How sources are accessed.
#[derive(Debug)]
pub struct SourceOptions {
    pub addresses: AddressPolicy,
    pub proxies: Matcher,
    pub limits: Limits,
    pub retention: Retention,
    pub quotas: SourceQuotas,
}

impl Default for SourceOptions {
    /// Uses the proxies of the environment: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`.
    fn default() -> Self {
        Self {
            addresses: AddressPolicy { flag: AllowFlag::SourceAddress, ..AddressPolicy::default() },
            proxies: Matcher::from_env(),
            limits: Limits::default(),
            retention: Retention::default(),
            quotas: SourceQuotas::default(),
        }
    }
}

/// A version of a package in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedVersion {
    pub version: String,
    /// The `kubeVersion` of the chart. `None` if it has none, or if the source does not publish it.
    pub kubernetes: Option<String>,
}

/// The packages of all sources, and the store of downloaded packages.
#[derive(Debug)]
pub struct Packages {
    pub(crate) store: Store,
    retention: Retention,
    pub(crate) repositories: Repositories,
    pub(crate) registries: Registries,
    git: GitRepositories,
    buckets: Buckets,
    downloads: SingleFlightCache<(Url, Option<Digest>, AccessDigest), Digest>,
    download_slots: NamespaceSemaphore,
    pub(crate) package_hits: CacheHits,
    pub(crate) verification: Verification,
}

impl Packages {
    pub fn new(store: Store, options: SourceOptions) -> Self {
        let SourceOptions { addresses, proxies, limits, retention, quotas } = options;
        let SourceQuotas { store_per_namespace, index_per_namespace, index_total } = quotas;
        store.set_quotas(Quotas { total: retention.bytes, per_namespace: store_per_namespace });
        let index_quotas = Quotas { total: index_total, per_namespace: index_per_namespace };
        let http = Arc::new(HttpClient::new(addresses, proxies, limits));
        Self {
            repositories: Repositories::new(http.clone(), store.clone(), index_quotas),
            registries: Registries::new(http.clone(), store.clone()),
            git: GitRepositories::new(http.clone(), store.clone()),
            buckets: Buckets::new(http),
            downloads: SingleFlightCache::new(limits.cache_ttl),
            download_slots: NamespaceSemaphore::new(CONCURRENT_DOWNLOADS),
            package_hits: CacheHits::default(),
            verification: Verification::new(limits.cache_ttl),
            retention,
            store,
        }
    }

    /// Resolves `reference` to a version that exists.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<ResolvedPackage, SourceError> {
        if reference.repository.starts_with("oci://") {
            self.registries.resolve(reference, access).await
        } else {
            self.repositories.resolve(reference, access).await
        }
    }

    /// Returns the versions of a package in a source, in any order.
    pub async fn versions(
        &self,
        repository: &str,
        name: &str,
        access: &Access,
    ) -> Result<Vec<PublishedVersion>, SourceError> {
        if repository.starts_with("oci://") {
            let _slot = self.registries.slot(access).await?;
            let versions = self.registries.chart_versions(repository, name, access).await?;
            Ok(versions.into_iter().map(|version| PublishedVersion { version, kubernetes: None }).collect())
        } else {
            self.repositories.chart_versions(repository, name, access).await
        }
    }

    /// Returns how often the index of a Helm repository has changed. Always 0 for a registry, which has no index.
    pub fn change_count(&self, repository: &str) -> u64 {
        self.repositories.change_count(repository)
    }

    /// Returns a receiver that is notified when the index of any repository changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.repositories.changes()
    }

    /// Returns the hits and misses of each cache.
    pub fn cache_hits(&self) -> [(&'static str, (u64, u64)); 2] {
        [("index", self.repositories.index_hits()), ("package", self.package_hits.counts())]
    }

    /// Returns what namespaces use of the resources that have quotas.
    pub fn quota_usage(&self) -> [QuotaUsage; 2] {
        let (store, index) = (self.store.usage(), self.repositories.index_usage());
        let usage = |resource, (used, refusals)| QuotaUsage { resource, used, refusals };
        [usage("store", store), usage("index", index)]
    }

    /// Returns the package from the store, and downloads it first if needed: also if it is stored, but neither the namespace nor the
    /// login has proved that it can read it. Concurrent callers share the download. Fails if the package does not have the required
    /// signatures.
    pub async fn fetch(
        &self,
        resolved: &ResolvedPackage,
        access: &Access,
    ) -> Result<StoredPackage, SourceError> {
        let access = resolved.with_login(access);
        let access = &*access;
        self.verify(resolved, access).await?;
        let claim = claim(resolved, access);
        let find = |digest: &Digest| self.store.get_proven(digest, &resolved.format, &claim);
        let stored = resolved.digest.as_ref().and_then(find);
        self.package_hits.record(stored.is_some());
        if let Some(stored) = stored {
            return Ok(stored);
        }
        let source = match &resolved.location {
            Location::Https { archive: url, .. } | Location::Oci { base_url: url, .. } => url.clone(),
        };
        let key = (source, resolved.digest.clone(), AccessDigest::from(access));
        let (namespace, max_age) = (&access.namespace, Duration::MAX);
        let download = |_, slot| self.download(resolved, access, claim.clone(), slot);
        let downloads = &self.downloads;
        let digest = downloads.get_with_slot(&self.download_slots, namespace, max_age, key, download).await?;
        // The cached result of an earlier download does not prove that the file still exists.
        if let Some(stored) = find(&digest) {
            return Ok(stored);
        }
        let slot = self.download_slots.acquire(namespace).await?;
        let digest = self.download(resolved, access, claim.clone(), slot).await?;
        find(&digest).ok_or_else(|| SourceError::Store(format!("{digest} disappeared from the store")))
    }

    async fn download(
        &self,
        resolved: &ResolvedPackage,
        access: &Access,
        claim: Claim,
        slot: NamespacePermit,
    ) -> Result<Digest, SourceError> {
        let _slot = slot;
        match &resolved.location {
            Location::Https { base_url, archive, .. } => {
                self.repositories.fetch(base_url, archive, resolved.digest.as_ref(), access, claim).await
            }
            Location::Oci { base_url, layer, .. } => {
                self.registries.fetch(base_url, layer, &resolved.format, access, claim).await
            }
        }
    }

    /// Stores a package that was made of files. `origin` names them in messages. Must not be called in an async task.
    pub fn store_files(
        &self,
        packed: PackedFiles,
        owner: FilesOwner<'_>,
        origin: &str,
    ) -> Result<StoredPackage, SourceError> {
        packed.store(&self.store, owner.claim(), origin)
    }

    /// Returns the package with this digest, if it is in the store and was made of files of a Source of this owner. Fails as
    /// [`Packages::check_files`] does.
    pub fn stored_files(
        &self,
        owner: FilesOwner<'_>,
        signers: Option<&str>,
        digest: &Digest,
        format: &PackageFormat,
    ) -> Result<Option<StoredPackage>, SourceError> {
        self.check_files(owner.url, signers)?;
        let stored = self.store.get_proven(digest, format, &owner.claim());
        self.package_hits.record(stored.is_some());
        Ok(stored)
    }

    /// Lists the branches and tags of a Git repository for a namespace, unless a list that is not older than `max_age` is known.
    /// Callers with the same URL and access share it.
    pub async fn git_refs(
        &self,
        url: &str,
        access: &Access,
        max_age: Duration,
        namespace: &str,
    ) -> Result<Arc<RemoteRefs>, SourceError> {
        self.git.refs(url, access, max_age, namespace).await
    }

    /// Fetches the files of a commit. Concurrent callers share the fetch.
    pub async fn git_commit(&self, request: GitRequest<'_>) -> Result<Arc<GitCommit>, SourceError> {
        self.git.commit(request).await
    }

    /// Returns the artifact with a tag or digest, unless one that is not older than `max_age` is known. Callers with the same
    /// URL and access share it.
    pub async fn artifact(
        &self,
        url: &str,
        reference: &str,
        access: &Access,
        max_age: Duration,
    ) -> Result<Arc<Artifact>, SourceError> {
        self.registries.artifact(url, reference, access, max_age).await
    }

    /// For a namespace, lists the tags of a repository of artifacts, unless a list that is not older than `max_age` is known.
    /// Callers with the same URL and access share it.
    pub async fn artifact_tags(
        &self,
        url: &str,
        access: &Access,
        max_age: Duration,
        namespace: &str,
    ) -> Result<Arc<Vec<String>>, SourceError> {
        self.registries.artifact_tags(url, access, max_age, namespace).await
    }

    /// Verifies the required signatures of an artifact, and fetches its files for a namespace. Concurrent callers share the
    /// fetch.
    pub async fn artifact_files(
        &self,
        artifact: &Artifact,
        access: &Access,
        ignore: &[String],
        namespace: &str,
    ) -> Result<Arc<ArtifactFiles>, SourceError> {
        self.verify_artifact(artifact, access).await?;
        self.registries.artifact_files(artifact, access, ignore, namespace).await
    }

    /// For a namespace, lists the objects of a bucket that `ignore` does not leave out, unless a list that is not older than
    /// `max_age` is known. Callers with the same bucket and access share it.
    pub async fn bucket_objects(
        &self,
        bucket: &Bucket,
        access: &Access,
        ignore: &[String],
        max_age: Duration,
        namespace: &str,
    ) -> Result<BucketObjects, SourceError> {
        self.buckets.objects(bucket, access, ignore, max_age, namespace).await
    }

    /// Fetches the objects of a bucket for a namespace. Concurrent callers share the fetch.
    pub async fn bucket_files(
        &self,
        objects: &BucketObjects,
        access: &Access,
        namespace: &str,
    ) -> Result<Arc<SourceTree>, SourceError> {
        self.buckets.files(objects, access, namespace).await
    }

    /// Returns the revision whose files are stored under `key`.
    pub fn stored_revision(&self, key: &str) -> Option<StoredRevision> {
        self.store.stored_revision(key)
    }

    /// Reads the files that are stored under `key`. `None` means that there are none.
    pub async fn stored_tree(&self, key: &str) -> Result<Option<(StoredRevision, SourceTree)>, SourceError> {
        let (store, key) = (self.store.clone(), key.to_owned());
        let read = tokio::task::spawn_blocking(move || store.stored_tree(&key)).await;
        read.map_err(|error| SourceError::Store(error.to_string()))
    }

    /// Stores the files of a revision under `key` and replaces older ones. Fails if that would exceed a quota.
    pub async fn store_tree(
        &self,
        key: &str,
        revision: StoredRevision,
        tree: SourceTree,
    ) -> Result<(), SourceError> {
        let (store, key) = (self.store.clone(), key.to_owned());
        let write = move || store.store_tree(&key, &revision, &tree);
        let write = tokio::task::spawn_blocking(write).await;
        write.map_err(|error| SourceError::Store(error.to_string()))?
    }

    /// Removes the files that are stored under `key`.
    pub fn remove_tree(&self, key: &str) {
        self.store.remove_tree(key);
    }

    /// Removes unused packages and catalogs from the store periodically. Runs until the future is dropped.
    pub async fn collect_garbage(&self) {
        let mut interval = tokio::time::interval(GARBAGE_COLLECTION_INTERVAL);
        loop {
            interval.tick().await;
            let (store, retention) = (self.store.clone(), self.retention);
            let collect = move || {
                let now = SystemTime::now();
                Ok::<_, std::io::Error>(
                    store.remove_unused(retention, now)?
                        + store.remove_unused_catalogs(retention.age, now)?
                        + store.remove_unused_trees(retention.age, now)?,
                )
            };
            match tokio::task::spawn_blocking(collect).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(files)) => tracing::info!(files, "removed unused packages and catalogs"),
                Ok(Err(error)) => tracing::warn!(%error, "cannot remove unused packages"),
            }
        }
    }
}
