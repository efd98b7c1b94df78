//! Helm repositories over https: an index, and archives beside it or wherever it points.

use std::{
    fs::File,
    io::{BufReader, Seek as _, Write as _},
    sync::Arc,
    time::Duration,
};

use chandler_core::{digest::Digest, package_format::PackageFormat, release::PackageReference, version};
use reqwest::{
    StatusCode, Url,
    header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED},
};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::{
    Access, Resolved, SourceError, Store,
    changes::Changes,
    index::{Entry, Index, IndexError},
    packages::{Location, PublishedVersion},
    shared::Shared,
    web::{Answer, Ask, Web, shown},
};

/// An index so young is not asked for again on the word of one who does not find a version in it: a fleet that waits for
/// one asks often.
const JUST_READ: Duration = Duration::from_secs(5);

/// All https repositories, their indexes shared by whoever uses them.
#[derive(Debug)]
pub(crate) struct Repositories {
    web: Arc<Web>,
    store: Store,
    indexes: Shared<(Url, Access), Arc<Downloaded>>,
    changes: Changes,
}

/// An index, and what tells whether it is still the same.
#[derive(Debug)]
pub(crate) struct Downloaded {
    pub index: Index,
    pub digest: Digest,
    pub validators: HeaderMap,
}

impl Repositories {
    pub fn new(web: Arc<Web>, store: Store) -> Self {
        Self { indexes: Shared::new(web.limits.fresh), web, store, changes: Changes::default() }
    }

    /// Where a repository is.
    pub fn home(reference: &PackageReference) -> Result<Url, SourceError> {
        Ok(home(&reference.repository, &Access::default())?.0)
    }

    /// How often the index of a repository was found changed.
    pub fn changed(&self, repository: &str) -> u64 {
        home(repository, &Access::default()).map_or(0, |(home, _)| self.changes.count(&home))
    }

    /// How often a repository's index was known, and how often it had to be asked for.
    pub fn index_hits(&self) -> (u64, u64) {
        self.indexes.hits.counts()
    }

    /// Told whenever an index is found changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Finds the version that `reference` means, and where it is. One that is not there may have been published since
    /// the index was read, so that is asked about again before it is said.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<Resolved, SourceError> {
        let (home, access) = home(&reference.repository, access)?;
        let known = self.known(self.web.limits.fresh, &home, &access).await?;
        match found(&home, &known, reference) {
            Err(SourceError::NoSuchPackage { .. } | SourceError::NoSuchVersion { .. }) => {
                let newer = self.known(JUST_READ, &home, &access).await?;
                found(&home, &newer, reference)
            }
            answer => answer,
        }
    }

    /// The index as it was at most so long ago.
    async fn known(
        &self,
        age: Duration,
        home: &Url,
        access: &Access,
    ) -> Result<Arc<Downloaded>, SourceError> {
        let key = (home.clone(), access.clone());
        self.indexes.get_within(age, key, |last| self.index(home, access, last, None)).await
    }

    /// The versions of a chart.
    pub async fn published(
        &self,
        repository: &str,
        chart: &str,
        access: &Access,
    ) -> Result<Vec<PublishedVersion>, SourceError> {
        let (home, access) = home(repository, access)?;
        let downloaded = self.known(self.web.limits.fresh, &home, &access).await?;
        let versions = downloaded.index.published(chart).map(|entry| {
            let entry = entry.map_err(|error| SourceError::BadIndex {
                url: home.to_string(),
                reason: error.to_string(),
            })?;
            Ok(PublishedVersion { version: entry.version, kubernetes: entry.kube_version })
        });
        versions.collect()
    }

    /// All that a repository offers now: who asks has a pace of its own. None: it has not changed since it gave these
    /// validators.
    pub async fn offered(
        &self,
        repository: &str,
        access: &Access,
        known: HeaderMap,
    ) -> Result<Option<Arc<Downloaded>>, SourceError> {
        let (home, access) = home(repository, access)?;
        let key = (home.clone(), access.clone());
        let mut answer = None;
        if !known.is_empty() && !self.indexes.knows(&key).await {
            let asked = self.ask_index(&home, &access, known).await?;
            if asked.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            answer = Some(asked);
        }
        let index = |last| self.index(&home, &access, last, answer);
        self.indexes.get_within(Duration::ZERO, key, index).await.map(Some)
    }

    /// Downloads an archive into the store.
    pub async fn fetch(
        &self,
        home: &Url,
        archive: &Url,
        expected: Option<&Digest>,
        access: &Access,
    ) -> Result<Digest, SourceError> {
        let answer = self.ask(home, archive.clone(), access, HeaderMap::new()).await?.good()?;
        let mut incoming = self.store.begin()?;
        answer.each(self.web.limits.package_bytes, |chunk| incoming.write(chunk)).await?;
        incoming.keep(archive.as_str(), expected, &PackageFormat::default()).await
    }

    /// The index as it is now; `answer` has come already, if there is one.
    async fn index(
        &self,
        home: &Url,
        access: &Access,
        last: Option<Arc<Downloaded>>,
        answer: Option<Answer>,
    ) -> Result<Arc<Downloaded>, SourceError> {
        let answer = if let Some(answer) = answer {
            answer
        } else {
            let known = last.as_ref().map(|last| last.validators.clone()).unwrap_or_default();
            self.ask_index(home, access, known).await?
        };
        if let Some(last) = last.clone().filter(|_| answer.status() == StatusCode::NOT_MODIFIED) {
            return Ok(last);
        }
        let answer = answer.good()?;
        let validators = validators(&answer);
        let (text, digest) = self.download(answer).await?;
        let was_there = last.is_some();
        if let Some(last) = last.filter(|last| last.digest == digest) {
            return Ok(last);
        }
        let index = self.read(home, text).await?;
        if was_there {
            self.changes.note(home);
        }
        Ok(Arc::new(Downloaded { index, digest, validators }))
    }

    async fn ask_index(&self, home: &Url, access: &Access, known: HeaderMap) -> Result<Answer, SourceError> {
        let url = home.join("index.yaml").map_err(|_| bad_address(home.as_str()))?;
        self.ask(home, url, access, known).await
    }

    async fn download(&self, answer: Answer) -> Result<(File, Digest), SourceError> {
        let (mut text, mut hash) = (self.store.scratch()?, Sha256::new());
        let failed = |error: std::io::Error| SourceError::Store(error.to_string());
        let limit = self.web.limits.index_bytes;
        answer
            .each(limit, |chunk| {
                hash.update(chunk);
                text.write_all(chunk).map_err(failed)
            })
            .await?;
        text.rewind().map_err(failed)?;
        Ok((text, Digest::from_sha256(&hash.finalize().into())))
    }

    /// Takes seconds for a large one, so not where others wait.
    async fn read(&self, home: &Url, text: File) -> Result<Index, SourceError> {
        let versions = self.store.scratch()?;
        let read = tokio::task::spawn_blocking(move || Index::read(BufReader::new(text), versions)).await;
        let bad = |reason| SourceError::BadIndex { url: home.to_string(), reason };
        read.map_err(|error| bad(error.to_string()))?.map_err(|error| bad(error.to_string()))
    }

    async fn ask(
        &self,
        home: &Url,
        url: Url,
        access: &Access,
        headers: HeaderMap,
    ) -> Result<Answer, SourceError> {
        let authorization = access.authorization(home)?.and_then(|authorization| authorization.header());
        self.web.get(Ask { url, home, access, authorization, headers }).await
    }
}

/// The version that `reference` means, in an index.
fn found(home: &Url, downloaded: &Downloaded, reference: &PackageReference) -> Result<Resolved, SourceError> {
    let url = home.to_string();
    let bad_index = |reason: String| SourceError::BadIndex { url: url.clone(), reason };
    let entries = downloaded.index.versions(&reference.name);
    let entries = entries
        .map_err(|error| bad_index(error.to_string()))?
        .ok_or_else(|| SourceError::NoSuchPackage { url: url.clone(), name: reference.name.clone() })?;
    let published = || entries.iter().map(|entry| entry.version.as_str());
    let chosen = version::choose(reference.version.as_deref(), published());
    let entry = entries.iter().find(|entry| chosen == Some(entry.version.as_str()));
    let entry = entry.ok_or_else(|| SourceError::NoSuchVersion {
        url: url.clone(),
        name: reference.name.clone(),
        version: reference.version.clone().unwrap_or_else(|| "latest".to_owned()),
        newest: version::choose(None, published()).unwrap_or("none").to_owned(),
    })?;
    let archive = archive(home, entry)?;
    let digest = announced(entry).map_err(|error| bad_index(error.to_string()))?;
    Ok(Resolved {
        version: entry.version.clone(),
        digest,
        format: PackageFormat::default(),
        location: Location::Https { home: home.clone(), archive },
    })
}

/// What to show the server next time, so that it need not send the same again.
fn validators(answer: &Answer) -> HeaderMap {
    let pair = |asked: HeaderName, given: HeaderName| {
        Some((asked, answer.header(given).and_then(|text| HeaderValue::from_str(text).ok())?))
    };
    [pair(IF_NONE_MATCH, ETAG), pair(IF_MODIFIED_SINCE, LAST_MODIFIED)].into_iter().flatten().collect()
}

/// The address that the index and relative archives are resolved against, without the login it may carry.
fn home(repository: &str, access: &Access) -> Result<(Url, Access), SourceError> {
    let mut url = Url::parse(&format!("{}/", repository.trim_end_matches('/')))
        .ok()
        .filter(|url| url.scheme() == "https" && url.has_host())
        .ok_or_else(|| bad_address(repository))?;
    if url.username().is_empty() && url.password().is_none() {
        return Ok((url, access.clone()));
    }
    let access = access.with_login(url.username(), url.password());
    let stripped = url.set_username("").and_then(|()| url.set_password(None));
    stripped.map_err(|()| bad_address(repository))?;
    Ok((url, access))
}

fn archive(home: &Url, entry: &Entry) -> Result<Url, SourceError> {
    let text = entry.urls.first().map_or("", String::as_str);
    let url = home.join(text).ok().filter(|url| url.scheme() == "https" && url != home);
    url.ok_or_else(|| bad_address(text))
}

fn announced(entry: &Entry) -> Result<Option<Digest>, IndexError> {
    let Some(text) = entry.digest.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let digest = Digest::parse(text).ok_or_else(|| IndexError::Digest { version: entry.version.clone() })?;
    Ok(Some(digest))
}

fn bad_address(text: &str) -> SourceError {
    let url = Url::parse(text).map_or_else(|_| text.to_owned(), |url| shown(&url));
    SourceError::BadAddress { url }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str) -> Entry {
        Entry { version: "1.0.0".to_owned(), digest: None, urls: vec![url.to_owned()] }
    }

    #[test]
    fn archives_are_beside_the_index_or_where_it_points() {
        let (home, _) = home("https://charts.example/stable", &Access::default()).unwrap();
        let rows = [
            ("hello-1.0.0.tgz", "https://charts.example/stable/hello-1.0.0.tgz"),
            ("https://cdn.example/hello.tgz", "https://cdn.example/hello.tgz"),
        ];
        for (url, expected) in rows {
            assert_eq!(archive(&home, &entry(url)).unwrap().as_str(), expected);
        }
        for url in ["http://cdn.example/hello.tgz", "file:///etc/passwd", ""] {
            assert!(archive(&home, &entry(url)).is_err(), "{url}");
        }
    }

    #[test]
    fn only_https_repositories() {
        for url in ["http://charts.example", "ftp://x", "charts.example", "https://"] {
            assert!(home(url, &Access::default()).is_err(), "{url}");
        }
    }

    #[test]
    fn a_login_in_the_address_is_a_credential_and_never_shown() {
        let (home, access) = home("https://user:canary@charts.example", &Access::default()).unwrap();
        assert_eq!(home.as_str(), "https://charts.example/");
        assert!(access.authorization(&home).unwrap().is_some());
        assert!(!bad_address("http://user:canary@charts.example").to_string().contains("canary"));
    }

    #[test]
    fn a_digest_is_a_sha256_or_absent() {
        let with = |digest: &str| announced(&Entry { digest: Some(digest.to_owned()), ..entry("x") });
        assert_eq!(with("").unwrap(), None);
        assert_eq!(with(Digest::of("x").hex()).unwrap(), Some(Digest::of("x")));
        assert!(with("md5:1234").is_err());
    }
}
