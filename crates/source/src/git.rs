//! Git repositories over https: lists refs, and fetches the files of one commit without its history.
//!
//! Objects are read from the received pack. Nothing is checked out, no program runs, and no configuration is read.

mod commit;
mod exchange;
mod objects;
mod pack_check;
mod session;
mod signature;
mod transport;
mod tree_reader;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chandler_core::source::{Ignore, RemoteRef, RemoteRefs, SelectedCommit};
use reqwest::Url;

pub use self::{
    commit::GitCommit,
    signature::{GitKeyError, GitKeys},
};
use self::{exchange::Connection, session::Fetch};
use crate::{
    Access, SourceError, Store,
    fair_slots::FairSlots,
    http::{Deadline, HttpClient, redacted},
    shared_fetches::SharedFetches,
    single_flight::SingleFlightCache,
};

/// Number of repositories whose refs are listed at the same time. Each occupies a thread, and other work needs some, too.
/// Namespaces share it fairly.
const CONCURRENT_LISTS: usize = 32;
/// How long a list of refs can be used by callers that accept one of that age.
const REFS_TTL: Duration = Duration::from_hours(1);
/// Memory for lists of refs. A large repository has tens of thousands of refs, of about 200 bytes each.
const REFS_CACHE_BYTES: usize = 64 << 20;

/// A commit to fetch.
#[derive(Clone, Copy, Debug)]
pub struct GitRequest<'a> {
    /// The namespace that asks for it.
    pub namespace: &'a str,
    pub url: &'a str,
    pub access: &'a Access,
    pub selected: &'a SelectedCommit,
    /// Files to leave out.
    pub ignore: &'a [String],
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CommitKey {
    url: Url,
    access: Access,
    commit: String,
    tag: Option<String>,
    ignore: Vec<String>,
}

/// All Git repositories. Callers with the same URL and credentials share requests.
#[derive(Debug)]
pub(crate) struct GitRepositories {
    http: Arc<HttpClient>,
    store: Store,
    refs: SingleFlightCache<(Url, Access), Arc<RemoteRefs>>,
    commits: SharedFetches<CommitKey, GitCommit>,
    lists: FairSlots,
}

impl GitRepositories {
    pub fn new(http: Arc<HttpClient>, store: Store) -> Self {
        Self {
            http,
            store,
            refs: SingleFlightCache::with_size_limit(REFS_TTL, REFS_CACHE_BYTES, refs_size),
            commits: SharedFetches::new(),
            lists: FairSlots::new(CONCURRENT_LISTS),
        }
    }

    /// Lists the branches and tags of a repository, unless a list that is not older than `max_age` is known.
    pub async fn refs(
        &self,
        url: &str,
        access: &Access,
        max_age: Duration,
        namespace: &str,
    ) -> Result<Arc<RemoteRefs>, SourceError> {
        let url = parse(url)?;
        let key = (url.clone(), access.clone());
        self.refs.get_with_max_age(max_age, key, |_| self.list(&url, access, namespace)).await
    }

    async fn list(
        &self,
        url: &Url,
        access: &Access,
        namespace: &str,
    ) -> Result<Arc<RemoteRefs>, SourceError> {
        let _slot = self.lists.acquire(namespace).await?;
        let limits = self.http.limits;
        let connection = self.connect(url, access, limits.git.refs_bytes, limits.total_timeout)?;
        let list = move || session::list_refs(&connection);
        let listed = tokio::task::spawn_blocking(list).await;
        listed.map_err(|error| broken(url, &error.to_string()))?.map(Arc::new)
    }

    /// Fetches the files of a commit. Concurrent callers share the fetch.
    pub async fn commit(&self, request: GitRequest<'_>) -> Result<Arc<GitCommit>, SourceError> {
        let url = parse(request.url)?;
        let key = CommitKey {
            url: url.clone(),
            access: request.access.clone(),
            commit: request.selected.commit.clone(),
            tag: request.selected.tag.as_ref().map(|tag| tag.id.clone()),
            ignore: request.ignore.to_vec(),
        };
        self.commits.get(request.namespace, key, || self.fetch(&url, request)).await
    }

    async fn fetch(&self, url: &Url, request: GitRequest<'_>) -> Result<GitCommit, SourceError> {
        let limits = self.http.limits.git;
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let fetch = Fetch {
            connection: self.connect(url, request.access, limits.pack_bytes, limits.timeout)?,
            selected: request.selected.clone(),
            ignore: Ignore::new(request.ignore),
            limits,
            tree: self.http.limits.tree,
            folder: self.store.temp_folder()?,
            interrupt: interrupt.0.clone(),
        };
        let fetched = tokio::task::spawn_blocking(move || fetch.run());
        // A caller that goes away, or the end of the time limit, interrupts the fetch.
        let fetched = tokio::time::timeout(limits.timeout, fetched).await;
        let timeout = |_| SourceError::Timeout { url: url.to_string(), limit: limits.timeout };
        fetched.map_err(timeout)?.map_err(|error| broken(url, &error.to_string()))?
    }

    /// `limit` is that of a response, in bytes.
    fn connect(
        &self,
        url: &Url,
        access: &Access,
        limit: u64,
        timeout: Duration,
    ) -> Result<Arc<Connection>, SourceError> {
        let authorization = access.authorization(url)?.and_then(|authorization| authorization.header());
        Ok(Arc::new(Connection::new(
            self.http.clone(),
            url.clone(),
            access.clone(),
            authorization,
            Deadline::after(timeout),
            limit,
        )))
    }
}

/// Returns the approximate size of a list of refs in memory.
fn refs_size(refs: &Arc<RemoteRefs>) -> usize {
    let size = |one: &RemoteRef| {
        let texts = one.name.len() + one.commit.len() + one.tag.as_ref().map_or(0, String::len);
        size_of::<RemoteRef>() + texts
    };
    refs.0.iter().map(size).sum()
}

/// Interrupts a fetch when it is dropped.
struct Interrupt(Arc<AtomicBool>);

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Parses the URL of a repository. It must be https without a login.
fn parse(text: &str) -> Result<Url, SourceError> {
    let invalid = |url: String| SourceError::InvalidUrl { url };
    let url: Url = text.parse().map_err(|_| invalid("the URL of the repository".to_owned()))?;
    let has_login = !url.username().is_empty() || url.password().is_some();
    if url.scheme() != "https" || has_login || url.host_str().is_none() {
        return Err(invalid(redacted(&url)));
    }
    Ok(url)
}

fn broken(url: &Url, reason: &str) -> SourceError {
    SourceError::Git { url: url.to_string(), reason: reason.to_owned() }
}
