//! The memory of cached indexes, which namespaces share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
};

use chandler_core::quota::{Held, Quotas, make_room};
use reqwest::Url;

use crate::{SourceError, access_digest::AccessDigest, quotas::INDEXES, repositories::RepositoryIndex};

/// The base URL of a repository, and the access.
pub(crate) type IndexKey = (Url, AccessDigest);

/// Accounts the memory of cached indexes. An index that several namespaces use counts once, for the one that has read it.
#[derive(Debug)]
pub(crate) struct IndexBudget {
    quotas: Quotas,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    indexes: HashMap<IndexKey, KeptIndex>,
    refusals: u64,
}

#[derive(Debug)]
struct KeptIndex {
    namespace: String,
    index: Weak<RepositoryIndex>,
    last_use: Instant,
}

impl IndexBudget {
    pub fn new(quotas: Quotas) -> Self {
        Self { quotas, kept: Mutex::default() }
    }

    /// Records the use of an index.
    pub fn touch(&self, key: &IndexKey) {
        if let Some(kept) = self.lock().indexes.get_mut(key) {
            kept.last_use = Instant::now();
        }
    }

    /// Accounts an index that a namespace has read. Returns the indexes that have to be removed from the cache to make room.
    pub fn insert(
        &self,
        key: &IndexKey,
        namespace: &str,
        index: &Arc<RepositoryIndex>,
    ) -> Result<Vec<IndexKey>, SourceError> {
        let mut kept = self.lock();
        // It replaces an older one of the same repository.
        let replaced = kept.indexes.remove(key);
        kept.indexes.retain(|_, kept| kept.index.strong_count() > 0);
        let (mut keys, mut held) = (Vec::new(), Vec::new());
        for (key, one) in &kept.indexes {
            keys.push(key.clone());
            let bytes = one.index.upgrade().map_or(0, |index| index.index.memory_bytes());
            held.push(Held { namespace: &one.namespace, bytes, removable: Some(one.last_use) });
        }
        let added = index.index.memory_bytes();
        let room = make_room(&held, self.quotas, namespace, added);
        let removed: Vec<IndexKey> = match room {
            Ok(chosen) => chosen.into_iter().filter_map(|at| keys.get(at).cloned()).collect(),
            Err(exceeded) => {
                kept.refusals += 1;
                kept.indexes.extend(replaced.map(|replaced| (key.clone(), replaced)));
                return Err(INDEXES.refused(exceeded, self.quotas, namespace, added));
            }
        };
        kept.indexes.retain(|key, _| !removed.contains(key));
        let new = KeptIndex {
            namespace: namespace.to_owned(),
            index: Arc::downgrade(index),
            last_use: Instant::now(),
        };
        kept.indexes.insert(key.clone(), new);
        Ok(removed)
    }

    /// Returns the bytes that each namespace uses, and how often a quota was exceeded.
    pub fn usage(&self) -> (Vec<(String, u64)>, u64) {
        let kept = self.lock();
        let mut used: HashMap<&str, u64> = HashMap::new();
        for one in kept.indexes.values() {
            if let Some(index) = one.index.upgrade() {
                *used.entry(&one.namespace).or_default() += index.index.memory_bytes();
            }
        }
        let used = used.into_iter().map(|(namespace, bytes)| (namespace.to_owned(), bytes)).collect();
        (used, kept.refusals)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::digest::Digest;

    use super::*;
    use crate::{Access, Store, index::Index};

    fn index(store: &Store) -> Arc<RepositoryIndex> {
        let yaml = "entries: {web: [{version: 1.0.0, urls: [x]}]}";
        let index = Index::read(yaml.as_bytes(), tempfile::tempfile().unwrap()).unwrap();
        let (validators, space) = (reqwest::header::HeaderMap::new(), store.reservation("team"));
        Arc::new(RepositoryIndex::new(index, Digest::of(yaml), validators, space))
    }

    fn key(url: &str) -> IndexKey {
        (url.parse().unwrap(), AccessDigest::from(&Access::default()))
    }

    #[test]
    fn the_namespace_that_uses_most_loses_its_least_recently_used_index() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let indexes: Vec<_> = (0..6).map(|_| index(&store)).collect();
        let size = indexes[0].index.memory_bytes();
        let budget = IndexBudget::new(Quotas { total: 4 * size, per_namespace: 3 * size });
        let urls = ["https://a.example/", "https://b.example/", "https://c.example/", "https://d.example/"];
        let insert =
            |at: usize, url: &str, namespace: &str| budget.insert(&key(url), namespace, &indexes[at]);
        for (at, url) in urls[..3].iter().enumerate() {
            assert_eq!(insert(at, url, "many").unwrap().len(), 0);
        }
        budget.touch(&key(urls[0]));
        assert_eq!(insert(3, urls[3], "many").unwrap(), [key(urls[1])], "its own, because of its quota");
        assert_eq!(insert(3, urls[3], "many").unwrap().len(), 0, "it replaces itself");
        assert_eq!(insert(4, "https://o.example/", "other").unwrap().len(), 0);
        let evicted = insert(5, "https://p.example/", "third").unwrap();
        assert_eq!(evicted, [key(urls[2])], "that of the namespace that uses most");
        drop(indexes);
        assert!(budget.usage().0.is_empty(), "what is no longer kept does not count");
        let small = IndexBudget::new(Quotas { total: size, per_namespace: size - 1 });
        let refused = small.insert(&key(urls[0]), "team", &index(&store)).unwrap_err().to_string();
        assert!(refused.contains("namespace team") && refused.contains("--index-quota"), "{refused}");
    }
}
