//! Helm repositories over https: an index, and archives next to it or at the URLs that it contains.

mod find;

use std::{
    fs::File,
    io::{BufReader, Seek as _, Write as _},
    sync::Arc,
    time::Duration,
};

use chandler_core::{
    digest::Digest, package_format::PackageFormat, quota::Quotas, release::PackageReference,
};
use reqwest::{
    StatusCode, Url,
    header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED},
};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::{
    Access, ResolvedPackage, SourceError, Store,
    access::UrlLogin,
    access_digest::AccessDigest,
    http::{HttpClient, HttpRequest, HttpResponse, shown},
    index::{ArchiveEntry, Index, IndexError},
    index_budget::{IndexBudget, IndexKey},
    index_changes::IndexChanges,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
    packages::PublishedVersion,
    single_flight::SingleFlightCache,
    store::{Claim, Reservation},
};

/// Minimum age of an index before it is requested again because a version is missing in it. It limits the requests of a fleet
/// that waits for a version.
const MIN_REFRESH_AGE: Duration = Duration::from_secs(5);

/// Number of indexes that are requested at the same time. Namespaces share it fairly. It is large, because repositories that do not
/// answer must not delay the others of their namespace.
const CONCURRENT_REQUESTS: usize = 128;
/// Number of indexes that are parsed at the same time. Each occupies a processor. Namespaces share it fairly.
const CONCURRENT_READS: usize = 4;

/// All https repositories. Their indexes are cached and shared.
#[derive(Debug)]
pub(crate) struct Repositories {
    http: Arc<HttpClient>,
    store: Store,
    indexes: SingleFlightCache<IndexKey, Arc<RepositoryIndex>>,
    budget: IndexBudget,
    requests: NamespaceSemaphore,
    reads: NamespaceSemaphore,
    changes: IndexChanges,
}

/// An index, and the headers that revalidate it.
#[derive(Debug)]
pub(crate) struct RepositoryIndex {
    pub index: Index,
    pub digest: Digest,
    pub validators: HeaderMap,
    /// The space of its file in the store.
    _space: Reservation,
}

impl RepositoryIndex {
    pub fn new(index: Index, digest: Digest, validators: HeaderMap, space: Reservation) -> Self {
        Self { index, digest, validators, _space: space }
    }
}

impl Repositories {
    /// `quotas` limit the memory of cached indexes.
    pub fn new(http: Arc<HttpClient>, store: Store, quotas: Quotas) -> Self {
        Self {
            indexes: SingleFlightCache::new(http.limits.cache_ttl),
            budget: IndexBudget::new(quotas),
            requests: NamespaceSemaphore::new(CONCURRENT_REQUESTS),
            reads: NamespaceSemaphore::new(CONCURRENT_READS),
            http,
            store,
            changes: IndexChanges::default(),
        }
    }

    /// Returns the memory that the indexes of each namespace use, and how often a quota was exceeded.
    pub fn index_usage(&self) -> (Vec<(String, u64)>, u64) {
        self.budget.usage()
    }

    /// Returns the base URL of a repository.
    pub fn base_url(reference: &PackageReference) -> Result<Url, SourceError> {
        Ok(parse_repository(&reference.repository, &Access::default())?.0)
    }

    /// Returns how often the index of a repository has changed.
    pub fn change_count(&self, repository: &str) -> u64 {
        parse_repository(repository, &Access::default())
            .map_or(0, |(base_url, _)| self.changes.count(&base_url))
    }

    /// Returns the hits and misses of the index cache.
    pub fn index_hits(&self) -> (u64, u64) {
        self.indexes.hits.counts()
    }

    /// Returns a receiver that is notified when an index changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Resolves `reference` to a version and its archive. If the cached index does not contain the version, it may have been
    /// published since, so the index is requested again before the resolution fails.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<ResolvedPackage, SourceError> {
        let (base_url, access) = parse_repository(&reference.repository, access)?;
        let cached = self.cached_index(self.http.limits.cache_ttl, &base_url, &access).await?;
        match self.find_version(&base_url, &cached, reference, &access.namespace).await {
            Err(SourceError::PackageNotFound { .. } | SourceError::VersionNotFound { .. }) => {
                let newer = self.cached_index(MIN_REFRESH_AGE, &base_url, &access).await?;
                self.find_version(&base_url, &newer, reference, &access.namespace).await
            }
            result => result,
        }
    }

    /// Returns the index, from the cache if it is not older than `max_age`.
    async fn cached_index(
        &self,
        max_age: Duration,
        base_url: &Url,
        access: &Access,
    ) -> Result<Arc<RepositoryIndex>, SourceError> {
        let key = (base_url.clone(), AccessDigest::from(access));
        let refresh = |last, slot: NamespacePermit| async move {
            let _slot = slot;
            self.refresh_index(base_url, access, last, None).await
        };
        self.budget.touch(&key);
        self.indexes.get_with_slot(&self.requests, &access.namespace, max_age, key, refresh).await
    }

    /// Returns the versions of a chart.
    pub async fn chart_versions(
        &self,
        repository: &str,
        chart: &str,
        access: &Access,
    ) -> Result<Vec<PublishedVersion>, SourceError> {
        let (base_url, access) = parse_repository(repository, access)?;
        let cached = self.cached_index(self.http.limits.cache_ttl, &base_url, &access).await?;
        let versions = cached.index.chart_versions(chart).map(|version| {
            let version = version.map_err(|error| SourceError::InvalidIndex {
                url: base_url.to_string(),
                reason: error.to_string(),
            })?;
            Ok(PublishedVersion { version: version.version, kubernetes: version.kube_version })
        });
        versions.collect()
    }

    /// Returns the current index of a repository, regardless of the cache TTL. Returns `None` if the repository responds that it
    /// has not changed since it sent `validators`.
    pub async fn current_index(
        &self,
        repository: &str,
        access: &Access,
        validators: HeaderMap,
    ) -> Result<Option<Arc<RepositoryIndex>>, SourceError> {
        let (base_url, access) = parse_repository(repository, access)?;
        let key = (base_url.clone(), AccessDigest::from(&access));
        if validators.is_empty() || self.indexes.has_value(&key).await {
            return self.cached_index(Duration::ZERO, &base_url, &access).await.map(Some);
        }
        let _slot = self.requests.acquire(&access.namespace).await?;
        let response = self.request_index(&base_url, &access, validators).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let refresh = |last| self.refresh_index(&base_url, &access, last, Some(response));
        self.indexes.get_for_namespace(&access.namespace, Duration::ZERO, key, refresh).await.map(Some)
    }

    /// Downloads an archive into the store.
    pub async fn fetch(
        &self,
        base_url: &Url,
        archive: &Url,
        expected: Option<&Digest>,
        access: &Access,
        claim: Claim,
    ) -> Result<Digest, SourceError> {
        let response =
            self.request(base_url, archive.clone(), access, HeaderMap::new()).await?.error_for_status()?;
        let mut writer = self.store.create(claim)?;
        response.for_each_chunk(self.http.limits.package_bytes, |chunk| writer.write(chunk)).await?;
        writer.commit(&shown(archive), expected, &PackageFormat::default()).await
    }

    /// Returns the current index. Reads it from `response` if that is given, and otherwise requests it. Returns `last` if it has
    /// not changed.
    async fn refresh_index(
        &self,
        base_url: &Url,
        access: &Access,
        last: Option<Arc<RepositoryIndex>>,
        response: Option<HttpResponse>,
    ) -> Result<Arc<RepositoryIndex>, SourceError> {
        let response = if let Some(response) = response {
            response
        } else {
            let validators = last.as_ref().map(|last| last.validators.clone()).unwrap_or_default();
            self.request_index(base_url, access, validators).await?
        };
        if let Some(last) = last.clone().filter(|_| response.status() == StatusCode::NOT_MODIFIED) {
            return Ok(last);
        }
        let response = response.error_for_status()?;
        let validators = validators(&response);
        let mut space = self.store.reservation(&access.namespace);
        let (yaml, digest) = self.download(response, &mut space).await?;
        let is_update = last.is_some();
        if let Some(last) = last.filter(|last| last.digest == digest) {
            return Ok(last);
        }
        let index = self.read(base_url, yaml, &mut space, &access.namespace).await?;
        let index = Arc::new(RepositoryIndex::new(index, digest, validators, space));
        let key = (base_url.clone(), AccessDigest::from(access));
        for removed in self.budget.insert(&key, &access.namespace, &index)? {
            self.indexes.remove(&removed);
        }
        if is_update {
            self.changes.record(base_url);
        }
        Ok(index)
    }

    async fn request_index(
        &self,
        base_url: &Url,
        access: &Access,
        validators: HeaderMap,
    ) -> Result<HttpResponse, SourceError> {
        let url = base_url.join("index.yaml").map_err(|_| SourceError::invalid_url(base_url.as_str()))?;
        self.request(base_url, url, access, validators).await
    }

    /// Downloads an index to a file without a name, and reserves space for it.
    async fn download(
        &self,
        response: HttpResponse,
        space: &mut Reservation,
    ) -> Result<(File, Digest), SourceError> {
        let (mut file, mut hash) = (self.store.temp_file()?, Sha256::new());
        let failed = |error: std::io::Error| SourceError::Store(error.to_string());
        let limit = self.http.limits.index_bytes;
        response
            .for_each_chunk(limit, |chunk| {
                // Twice, because the versions are written to another file while it is parsed.
                space.grow(2 * chunk.len() as u64)?;
                hash.update(chunk);
                file.write_all(chunk).map_err(failed)
            })
            .await?;
        file.rewind().map_err(failed)?;
        Ok((file, Digest::from_sha256(&hash.finalize().into())))
    }

    /// Parses the index on a blocking thread, because a large one takes seconds. Then only the versions need space.
    async fn read(
        &self,
        base_url: &Url,
        yaml: File,
        space: &mut Reservation,
        namespace: &str,
    ) -> Result<Index, SourceError> {
        let versions = self.store.temp_file()?;
        let slot = self.reads.wait(namespace).await;
        let read = move || {
            let _slot = slot;
            Index::read(BufReader::new(yaml), versions)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let invalid = |reason| SourceError::InvalidIndex { url: base_url.to_string(), reason };
        let index = read.map_err(|error| invalid(error.to_string()))?;
        let index = index.map_err(|error| invalid(error.to_string()))?;
        space.set(index.file_bytes().map_err(|error| SourceError::Store(error.to_string()))?);
        Ok(index)
    }

    async fn request(
        &self,
        base_url: &Url,
        url: Url,
        access: &Access,
        headers: HeaderMap,
    ) -> Result<HttpResponse, SourceError> {
        let authorization = access.authorization(base_url)?.and_then(|authorization| authorization.header());
        self.http.get(HttpRequest { url, base_url, access, authorization, headers }).await
    }
}

/// Returns the headers of the next conditional request.
fn validators(response: &HttpResponse) -> HeaderMap {
    let pair = |condition: HeaderName, validator: HeaderName| {
        let value = response.header(validator).and_then(|text| HeaderValue::from_str(text).ok())?;
        Some((condition, value))
    };
    [pair(IF_NONE_MATCH, ETAG), pair(IF_MODIFIED_SINCE, LAST_MODIFIED)].into_iter().flatten().collect()
}

/// Returns the base URL of a repository, without credentials, and the access with the credentials of the URL.
fn parse_repository(repository: &str, access: &Access) -> Result<(Url, Access), SourceError> {
    let mut url = Url::parse(&format!("{}/", repository.trim_end_matches('/')))
        .ok()
        .filter(|url| url.scheme() == "https" && url.has_host())
        .ok_or_else(|| SourceError::invalid_url(repository))?;
    let Some(login) = UrlLogin::of(&url) else { return Ok((url, access.clone())) };
    let access = login.add_to(access);
    let stripped = url.set_username("").and_then(|()| url.set_password(None));
    stripped.map_err(|()| SourceError::invalid_url(repository))?;
    Ok((url, access))
}

fn archive_url(base_url: &Url, entry: &ArchiveEntry) -> Result<Url, SourceError> {
    let text = entry.urls.first().map_or("", String::as_str);
    let url = base_url.join(text).ok().filter(|url| url.scheme() == "https" && url != base_url);
    url.ok_or_else(|| SourceError::invalid_url(text))
}

fn published_digest(entry: &ArchiveEntry) -> Result<Option<Digest>, IndexError> {
    let Some(text) = entry.digest.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let digest = Digest::parse(text).ok_or_else(|| IndexError::Digest { version: entry.version.clone() })?;
    Ok(Some(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str) -> ArchiveEntry {
        ArchiveEntry { version: "1.0.0".to_owned(), digest: None, urls: vec![url.to_owned()] }
    }

    #[test]
    fn archive_urls_are_relative_or_absolute() {
        let (base_url, _) = parse_repository("https://charts.example/stable", &Access::default()).unwrap();
        let rows = [
            ("hello-1.0.0.tgz", "https://charts.example/stable/hello-1.0.0.tgz"),
            ("https://cdn.example/hello.tgz", "https://cdn.example/hello.tgz"),
        ];
        for (url, expected) in rows {
            assert_eq!(archive_url(&base_url, &entry(url)).unwrap().as_str(), expected);
        }
        for url in ["http://cdn.example/hello.tgz", "file:///etc/passwd", ""] {
            assert!(archive_url(&base_url, &entry(url)).is_err(), "{url}");
        }
    }

    #[test]
    fn only_https_repositories_are_accepted() {
        for url in ["http://charts.example", "ftp://x", "charts.example", "https://"] {
            assert!(parse_repository(url, &Access::default()).is_err(), "{url}");
        }
    }

    #[test]
    fn credentials_in_the_url_are_used_and_redacted() {
        let (base_url, access) =
            parse_repository("https://user:canary@charts.example", &Access::default()).unwrap();
        assert_eq!(base_url.as_str(), "https://charts.example/");
        assert!(access.authorization(&base_url).unwrap().is_some());
        assert!(
            !SourceError::invalid_url("http://user:canary@charts.example").to_string().contains("canary")
        );
    }

    #[test]
    fn digests_are_sha256_or_absent() {
        let with =
            |digest: &str| published_digest(&ArchiveEntry { digest: Some(digest.to_owned()), ..entry("x") });
        assert_eq!(with("").unwrap(), None);
        assert_eq!(with(Digest::of("x").hex()).unwrap(), Some(Digest::of("x")));
        assert!(with("md5:1234").is_err());
    }
}
