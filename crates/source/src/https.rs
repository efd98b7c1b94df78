//! Helm repositories over https: an index, and archives beside it or wherever it points.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chandler_core::{digest::Digest, failure::innermost, release::PackageReference, version};
use reqwest::{Certificate, Client, Url, redirect};
use serde::Deserialize;

use crate::{
    Access, Resolved, SourceError,
    packages::Location,
    single_flight::SingleFlight,
    store::{Incoming, Store},
};

const INDEX_LIMIT: usize = 64 << 20;
const PACKAGE_LIMIT: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const TOTAL_TIMEOUT: Duration = Duration::from_mins(2);
const REDIRECTS: usize = 5;
/// An index younger than this is not fetched again, whoever asks.
const INDEX_FRESH: Duration = Duration::from_mins(1);

/// What Chandler reads of an index.
#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    entries: HashMap<String, Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    version: String,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    urls: Vec<String>,
}

type IndexKey = (String, Access);

/// Clients and indexes of all https repositories, shared by whoever uses them.
#[derive(Debug, Default)]
pub struct Repositories {
    clients: Mutex<HashMap<Access, Client>>,
    indexes: Mutex<HashMap<IndexKey, (Instant, Arc<Index>)>>,
    fetching: SingleFlight<IndexKey>,
}

impl Repositories {
    /// Finds the version that `reference` means, and where it is.
    pub async fn resolve(
        &self,
        reference: &PackageReference,
        access: &Access,
    ) -> Result<Resolved, SourceError> {
        let base = base(&reference.repository)?;
        let index = self.index(&base, access).await?;
        let url = reference.repository.clone();
        let name = reference.name.clone();
        let entries =
            index.entries.get(&name).ok_or(SourceError::NoSuchPackage { url: url.clone(), name })?;
        let published = || entries.iter().map(|entry| entry.version.as_str());
        let chosen = version::choose(reference.version.as_deref(), published());
        let entry = entries.iter().find(|entry| chosen == Some(entry.version.as_str()));
        let entry = entry.ok_or_else(|| SourceError::NoSuchVersion {
            url,
            name: reference.name.clone(),
            version: reference.version.clone().unwrap_or_else(|| "latest".to_owned()),
            newest: version::choose(None, published()).unwrap_or("none").to_owned(),
        })?;
        let location = archive(&base, entry)?;
        let digest = entry.digest.as_deref().and_then(Digest::parse);
        Ok(Resolved { version: entry.version.clone(), digest, location: Location::Https(location) })
    }

    /// Downloads an archive into the store.
    pub async fn fetch(
        &self,
        url: &Url,
        expected: Option<&Digest>,
        access: &Access,
        store: &Store,
    ) -> Result<Digest, SourceError> {
        let mut incoming = store.begin()?;
        self.stream(url, access, |chunk| write(&mut incoming, url, chunk)).await?;
        incoming.keep(expected)?.map_err(|actual| SourceError::DigestMismatch {
            url: url.to_string(),
            expected: expected.map(ToString::to_string).unwrap_or_default(),
            actual: actual.to_string(),
        })
    }

    async fn index(&self, base: &Url, access: &Access) -> Result<Arc<Index>, SourceError> {
        let key = (base.to_string(), access.clone());
        self.fetching
            .run(key.clone(), async {
                if let Some(index) = self.fresh(&key) {
                    return Ok(index);
                }
                let url = base.join("index.yaml").map_err(|_| bad_address(base.as_str()))?;
                let index = Arc::new(self.download_index(&url, access).await?);
                lock(&self.indexes).insert(key, (Instant::now(), index.clone()));
                Ok(index)
            })
            .await
    }

    fn fresh(&self, key: &IndexKey) -> Option<Arc<Index>> {
        lock(&self.indexes)
            .get(key)
            .filter(|(at, _)| at.elapsed() < INDEX_FRESH)
            .map(|(_, index)| index.clone())
    }

    async fn download_index(&self, url: &Url, access: &Access) -> Result<Index, SourceError> {
        let mut text = Vec::new();
        self.stream(url, access, |chunk| {
            text.extend_from_slice(chunk);
            within(url, text.len(), INDEX_LIMIT)
        })
        .await?;
        serde_saphyr::from_slice(&text).map_err(|error| SourceError::BadIndex {
            url: url.to_string(),
            reason: first_line(&error.to_string()),
        })
    }

    async fn stream(
        &self,
        url: &Url,
        access: &Access,
        mut take: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let failed =
            |error: reqwest::Error| SourceError::Get { url: url.to_string(), reason: innermost(&error) };
        let client = self.client(url, access)?;
        let mut response = client
            .get(url.clone())
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(failed)?;
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            take(&chunk)?;
        }
        Ok(())
    }

    fn client(&self, url: &Url, access: &Access) -> Result<Client, SourceError> {
        if let Some(client) = lock(&self.clients).get(access) {
            return Ok(client.clone());
        }
        let mut builder = Client::builder()
            .https_only(true)
            .redirect(redirect::Policy::limited(REDIRECTS))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .timeout(TOTAL_TIMEOUT)
            .tls_danger_accept_invalid_certs(access.insecure_skip_tls_verify)
            .user_agent(concat!("chandler/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &access.ca_pem {
            let bad = |_| SourceError::BadCertificate { url: url.to_string() };
            builder = builder.tls_certs_merge(Certificate::from_pem_bundle(pem).map_err(bad)?);
        }
        let client = builder
            .build()
            .map_err(|error| SourceError::Get { url: url.to_string(), reason: innermost(&error) })?;
        lock(&self.clients).insert(access.clone(), client.clone());
        Ok(client)
    }
}

fn write(incoming: &mut Incoming, url: &Url, chunk: &[u8]) -> Result<(), SourceError> {
    if incoming.write(chunk, PACKAGE_LIMIT)? { Ok(()) } else { within(url, PACKAGE_LIMIT + 1, PACKAGE_LIMIT) }
}

fn within(url: &Url, size: usize, limit: usize) -> Result<(), SourceError> {
    if size > limit { Err(SourceError::TooLarge { url: url.to_string(), limit }) } else { Ok(()) }
}

/// The address that the index and relative archives are resolved against.
fn base(repository: &str) -> Result<Url, SourceError> {
    Url::parse(&format!("{}/", repository.trim_end_matches('/')))
        .ok()
        .filter(|url| url.scheme() == "https" && url.has_host())
        .ok_or_else(|| bad_address(repository))
}

fn archive(base: &Url, entry: &Entry) -> Result<Url, SourceError> {
    let text = entry.urls.first().map_or("", String::as_str);
    base.join(text).ok().filter(|url| url.scheme() == "https" && url != base).ok_or_else(|| bad_address(text))
}

fn bad_address(url: &str) -> SourceError {
    SourceError::BadAddress { url: url.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str) -> Entry {
        Entry { version: "1.0.0".to_owned(), digest: None, urls: vec![url.to_owned()] }
    }

    #[test]
    fn archives_are_beside_the_index_or_where_it_points() {
        let base = base("https://charts.example/stable").unwrap();
        let rows = [
            ("hello-1.0.0.tgz", "https://charts.example/stable/hello-1.0.0.tgz"),
            ("https://cdn.example/hello.tgz", "https://cdn.example/hello.tgz"),
        ];
        for (url, expected) in rows {
            assert_eq!(archive(&base, &entry(url)).unwrap().as_str(), expected);
        }
        for url in ["http://cdn.example/hello.tgz", "file:///etc/passwd", ""] {
            assert!(archive(&base, &entry(url)).is_err(), "{url}");
        }
    }

    #[test]
    fn only_https_repositories() {
        for url in ["http://charts.example", "ftp://x", "charts.example", "https://"] {
            assert!(base(url).is_err(), "{url}");
        }
    }
}
