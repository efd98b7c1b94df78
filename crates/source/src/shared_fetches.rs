//! Revisions of Sources that are being fetched, which callers share.

use std::{
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    SourceError, SourceTree,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
    single_flight::SingleFlightCache,
};

/// Number of revisions that are fetched at the same time. It limits memory and temporary files. Namespaces share it fairly.
const CONCURRENT_FETCHES: usize = 4;
/// How long callers share a fetched revision, if it is still in memory.
const SHARED_TTL: Duration = Duration::from_mins(1);
/// How long a fetched revision is kept in memory, and the largest one that is.
const CACHE_TTL: Duration = Duration::from_secs(10);
const CACHE_BYTES: usize = 4 << 20;

/// Fetches revisions. Concurrent callers with the same key share a fetch.
pub(crate) struct SharedFetches<K, V> {
    /// Without the files: only callers keep them in memory, and `keep_briefly`.
    fetched: SingleFlightCache<K, Weak<V>>,
    slots: NamespaceSemaphore,
}

impl<K, V> std::fmt::Debug for SharedFetches<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFetches").finish_non_exhaustive()
    }
}

impl<K, V> SharedFetches<K, V>
where
    K: Clone + Eq + Hash,
    V: AsRef<SourceTree> + Send + Sync + 'static,
{
    pub fn new() -> Self {
        Self {
            fetched: SingleFlightCache::without_revalidation(SHARED_TTL),
            slots: NamespaceSemaphore::new(CONCURRENT_FETCHES),
        }
    }

    /// Returns the revision of a concurrent caller, or calls `fetch` with a slot of `namespace`, which it keeps until its work has
    /// ended.
    pub async fn get<F>(
        &self,
        namespace: &str,
        key: K,
        fetch: impl Fn(NamespacePermit) -> F,
    ) -> Result<Arc<V>, SourceError>
    where
        F: Future<Output = Result<V, SourceError>>,
    {
        let mut fetched = None;
        let (first, own) = (&fetch, &mut fetched);
        let work = move |_, slot| async move {
            let revision = Arc::new(first(slot).await?);
            keep_briefly(revision.clone());
            let shared = Arc::downgrade(&revision);
            *own = Some(revision);
            Ok::<_, SourceError>(shared)
        };
        let shared = self.fetched.get_with_slot(&self.slots, namespace, SHARED_TTL, key, work).await?;
        if let Some(revision) = fetched.or_else(|| shared.upgrade()) {
            return Ok(revision);
        }
        let slot = self.slots.acquire(namespace).await?;
        fetch(slot).await.map(Arc::new)
    }
}

/// Keeps a revision with few bytes in memory for a moment, so that Sources of the same repository that are polled one after
/// the other share its fetch.
fn keep_briefly<V: AsRef<SourceTree> + Send + Sync + 'static>(revision: Arc<V>) {
    let tree: &SourceTree = (*revision).as_ref();
    let bytes: usize = tree.files.values().map(Bytes::len).sum();
    if bytes <= CACHE_BYTES {
        tokio::spawn(async move {
            tokio::time::sleep(CACHE_TTL).await;
            drop(revision);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    struct Revision(SourceTree);

    impl AsRef<SourceTree> for Revision {
        fn as_ref(&self) -> &SourceTree {
            &self.0
        }
    }

    #[tokio::test]
    async fn callers_share_a_fetch_and_large_revisions_are_not_kept() {
        for (size, later) in [(1, 1), (CACHE_BYTES + 1, 2)] {
            let (fetches, count) = (SharedFetches::new(), AtomicU32::new(0));
            let fetch = |_slot| async {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                let files = [("a".to_owned(), Bytes::from(vec![0; size]))].into();
                Ok(Revision(SourceTree { revision: "c1".to_owned(), files }))
            };
            let all = join_all((0..20).map(|_| fetches.get("team", "key", fetch))).await;
            assert!(all.iter().all(Result::is_ok));
            assert_eq!(count.load(Ordering::Relaxed), 1, "{size}");
            drop(all);
            fetches.get("team", "key", fetch).await.unwrap();
            assert_eq!(count.load(Ordering::Relaxed), later, "{size}");
        }
    }
}
