//! Git repositories over https and ssh: lists refs, and fetches the files of one commit without its history.
//!
//! Objects are read from the received pack. Nothing is checked out, no program runs, and no configuration is read.

mod commit;
mod connection;
mod exchange;
mod objects;
mod pack_check;
mod remote;
mod session;
mod signature;
mod ssh;
mod transport;
mod tree_reader;
mod url;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chandler_core::source::{Ignore, RemoteRef, RemoteRefs, SelectedRevision};
use reqwest::Url;

pub use self::{
    commit::GitCommit,
    signature::{GitKeyError, GitKeys},
};
use self::{
    connection::Connection, exchange::HttpsRemote, remote::Remote, session::Fetch, ssh::SshRemote, url::parse,
};
use crate::{
    Access, SourceError, Store,
    access_digest::AccessDigest,
    http::{Deadline, HttpClient},
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
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
    pub selected: &'a SelectedRevision,
    /// Files to leave out.
    pub ignore: &'a [String],
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CommitKey {
    url: Url,
    access: AccessDigest,
    commit: String,
    tag: Option<String>,
    ignore: Vec<String>,
}

/// All Git repositories. Callers with the same URL and credentials share requests.
#[derive(Debug)]
pub(crate) struct GitRepositories {
    http: Arc<HttpClient>,
    store: Store,
    refs: SingleFlightCache<(Url, AccessDigest), Arc<RemoteRefs>>,
    commits: SharedFetches<CommitKey, GitCommit>,
    lists: NamespaceSemaphore,
}

impl GitRepositories {
    pub fn new(http: Arc<HttpClient>, store: Store) -> Self {
        Self {
            http,
            store,
            refs: SingleFlightCache::with_size_limit(REFS_TTL, REFS_CACHE_BYTES, key_size, refs_size),
            commits: SharedFetches::new(),
            lists: NamespaceSemaphore::new(CONCURRENT_LISTS),
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
        let key = (url.clone(), AccessDigest::from(access));
        let list = |_, permit| self.list(&url, access, permit);
        self.refs.get_with_slot(&self.lists, namespace, max_age, key, list).await
    }

    async fn list(
        &self,
        url: &Url,
        access: &Access,
        permit: NamespacePermit,
    ) -> Result<Arc<RemoteRefs>, SourceError> {
        let limits = self.http.limits;
        let remote = self.remote(url, access, limits.git.refs_bytes, limits.total_timeout)?;
        let list = move || {
            let _permit = permit;
            session::list_refs(&remote)
        };
        let listed = tokio::task::spawn_blocking(list).await;
        listed.map_err(|error| broken(url, &error.to_string()))?.map(Arc::new)
    }

    /// Fetches the files of a commit. Concurrent callers share the fetch.
    pub async fn commit(&self, request: GitRequest<'_>) -> Result<Arc<GitCommit>, SourceError> {
        let url = parse(request.url)?;
        let key = CommitKey {
            url: url.clone(),
            access: request.access.into(),
            commit: request.selected.id.clone(),
            tag: request.selected.tag.as_ref().map(|tag| tag.id.clone()),
            ignore: request.ignore.to_vec(),
        };
        self.commits.get(request.namespace, key, |permit| self.fetch(&url, request, permit)).await
    }

    async fn fetch(
        &self,
        url: &Url,
        request: GitRequest<'_>,
        permit: NamespacePermit,
    ) -> Result<GitCommit, SourceError> {
        let limits = self.http.limits.git;
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let fetch = Fetch {
            remote: self.remote(url, request.access, limits.pack_bytes, limits.timeout)?,
            selected: request.selected.clone(),
            ignore: Ignore::new(request.ignore),
            limits,
            tree: self.http.limits.tree,
            folder: self.store.temp_folder()?,
            interrupt: interrupt.0.clone(),
        };
        let fetched = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            fetch.run()
        });
        // A caller that goes away, or the end of the time limit, interrupts the fetch.
        let fetched = tokio::time::timeout(limits.timeout, fetched).await;
        let timeout = |_| SourceError::Timeout { url: url.to_string(), limit: limits.timeout };
        fetched.map_err(timeout)?.map_err(|error| broken(url, &error.to_string()))?
    }

    /// `limit` is that of a response, in bytes.
    fn remote(
        &self,
        url: &Url,
        access: &Access,
        limit: u64,
        timeout: Duration,
    ) -> Result<Remote, SourceError> {
        let connection = Connection::new(url.clone(), Deadline::after(timeout), limit);
        if url.scheme() == url::SSH {
            return SshRemote::new(connection, self.http.clone(), access).map(Remote::Ssh);
        }
        let authorization = access.authorization(url)?.and_then(|authorization| authorization.header());
        let remote = HttpsRemote::new(connection, self.http.clone(), access.clone(), authorization);
        Ok(Remote::Https(Arc::new(remote)))
    }
}

/// Returns the approximate size of a key in memory.
fn key_size((url, _): &(Url, AccessDigest)) -> usize {
    url.as_str().len()
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

fn broken(url: &Url, reason: &str) -> SourceError {
    SourceError::Git { url: url.to_string(), reason: reason.to_owned() }
}
