//! The files of Sources in the store: `sources/<hash of the key>`. Files are renamed into place.
//!
//! A file contains the length of its first part, the [`StoredRevision`] in JSON, the length of its second part, the paths
//! and sizes in JSON, and the contents.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use bytes::{Buf as _, Bytes};
use chandler_core::{digest::Digest, source::SourceRevisionRecord};
use serde::{Deserialize, Serialize};
use tempfile::{NamedTempFile, TempDir};

use super::{
    Store, failed,
    left_overs::{LEFT_OVER_AFTER, is_temporary},
};
use crate::{SourceError, SourceTree};

/// Changes with the format of the files. Files of another format are not read.
const FORMAT: u32 = 1;
/// The longest first part.
const MAX_REVISION_BYTES: u64 = 64 << 10;

/// The revision whose files are stored, and what they were fetched for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRevision {
    /// The namespace of the Source.
    pub namespace: String,
    /// Digest of the fields of the Source that decide about the content.
    pub content_key: String,
    /// Digest of the keys that the signatures were verified with. `None` if none were required.
    #[serde(rename = "keys")]
    pub verified_with: Option<String>,
    pub commit: SourceRevisionRecord,
    /// Id of the annotated tag that the Source asked for.
    pub tag: Option<String>,
    pub verified_by: Option<String>,
    pub remarks: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    /// Digest of the files.
    digest: String,
    revision: StoredRevision,
}

impl Store {
    /// Returns the revision that is stored under `key`, and updates its time of last use.
    pub(crate) fn stored_revision(&self, key: &str) -> Option<StoredRevision> {
        let file = File::open(self.tree_path(key)).ok()?;
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, "cannot update the time of last use");
        }
        read_revision(file)
    }

    /// Reads the files that are stored under `key`. `None` means that there are none. Damaged files are removed, so that they
    /// are fetched again: their revision may still be readable.
    pub(crate) fn stored_tree(&self, key: &str) -> Option<(StoredRevision, SourceTree)> {
        let content = std::fs::read(self.tree_path(key)).ok()?;
        let tree = read_tree(Bytes::from(content));
        if tree.is_none() {
            tracing::warn!(
                "the stored files of a Source are damaged; they are fetched again at its next poll"
            );
            self.remove_tree(key);
        }
        tree
    }

    /// Stores the files of a revision under `key` and replaces older ones. Fails if that would exceed a quota.
    pub(crate) fn store_tree(
        &self,
        key: &str,
        revision: &StoredRevision,
        tree: &SourceTree,
    ) -> Result<(), SourceError> {
        let digest = tree.digest().as_str().to_owned();
        let stored = Stored { format: FORMAT, digest, revision: revision.clone() };
        let sizes: Vec<_> = tree.files.iter().map(|(path, content)| (path, content.len() as u64)).collect();
        let write = |file: &mut NamedTempFile| -> io::Result<()> {
            write_part(file, &serde_json::to_vec(&stored)?)?;
            write_part(file, &serde_json::to_vec(&sizes)?)?;
            tree.files.values().try_for_each(|content| file.write_all(content))
        };
        let content: u64 = tree.files.values().map(|content| content.len() as u64).sum();
        let mut file = NamedTempFile::new_in(&self.sources).map_err(failed)?;
        // What is written until it replaces the older files is counted, too.
        let mut reservation = self.reservation(&revision.namespace);
        if !self.tree_path(key).exists() {
            reservation.grow(content)?;
        }
        write(&mut file).map_err(failed)?;
        drop(reservation);
        let bytes = file.as_file().metadata().map_err(failed)?.len();
        let persist = |path: &Path| file.persist(path).map(drop).map_err(failed);
        self.write_accounted(self.tree_path(key), &revision.namespace, bytes, persist)
    }

    pub(crate) fn remove_tree(&self, key: &str) {
        self.remove_accounted(&self.tree_path(key));
    }

    /// Creates a folder for a fetch. It is removed with its content when it is dropped.
    pub(crate) fn temp_folder(&self) -> Result<TempDir, SourceError> {
        tempfile::tempdir_in(&self.sources).map_err(failed)
    }

    /// Removes files that were not used for `age`, and what processes that were killed have left over. Returns their number.
    pub(crate) fn remove_unused_trees(&self, age: Duration, now: SystemTime) -> io::Result<usize> {
        let mut removed = 0;
        for entry in std::fs::read_dir(&self.sources)?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let unused = metadata.modified().ok().and_then(|used| now.duration_since(used).ok());
            let age = if is_temporary(&entry) { age.min(LEFT_OVER_AFTER) } else { age };
            if unused.is_none_or(|unused| unused <= age) {
                continue;
            }
            removed += usize::from(self.remove_accounted(&entry.path()));
        }
        Ok(removed)
    }

    fn tree_path(&self, key: &str) -> PathBuf {
        self.sources.join(Digest::of(key).hex())
    }
}

/// Returns the namespace of the Source whose files are in a file.
pub(super) fn namespace_of(path: &Path) -> Option<String> {
    Some(read_revision(File::open(path).ok()?)?.namespace)
}

/// Reads the first part of a file. `None` means that it is damaged.
fn read_revision(mut file: File) -> Option<StoredRevision> {
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = Some(u64::from_be_bytes(length)).filter(|length| *length <= MAX_REVISION_BYTES)?;
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).ok()?;
    stored(&text).map(|stored| stored.revision)
}

/// Reads the content of a file. `None` means that it is damaged.
fn read_tree(mut content: Bytes) -> Option<(StoredRevision, SourceTree)> {
    let Stored { digest, revision, .. } = stored(&part(&mut content)?)?;
    let sizes: Vec<(String, u64)> = serde_json::from_slice(&part(&mut content)?).ok()?;
    let mut files = BTreeMap::new();
    for (path, size) in sizes {
        let size = usize::try_from(size).ok().filter(|size| *size <= content.len())?;
        files.insert(path, content.split_to(size));
    }
    let tree = SourceTree { revision: revision.commit.id.clone(), files };
    (tree.digest().as_str() == digest).then_some((revision, tree))
}

fn stored(text: &[u8]) -> Option<Stored> {
    serde_json::from_slice(text).ok().filter(|stored: &Stored| stored.format == FORMAT)
}

/// Takes the next part of the content: its length and that many bytes.
fn part(content: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(content.try_get_u64().ok()?).ok()?;
    (length <= content.len()).then(|| content.split_to(length))
}

fn write_part(file: &mut NamedTempFile, part: &[u8]) -> io::Result<()> {
    file.write_all(&(part.len() as u64).to_be_bytes())?;
    file.write_all(part)
}

#[cfg(test)]
mod tests {
    use chandler_core::quota::Quotas;

    use super::*;

    fn revision(id: &str) -> StoredRevision {
        StoredRevision {
            namespace: "team".to_owned(),
            content_key: "sha256:spec".to_owned(),
            verified_with: None,
            commit: SourceRevisionRecord { id: id.to_owned(), ..SourceRevisionRecord::default() },
            tag: None,
            verified_by: Some("anna".to_owned()),
            remarks: String::new(),
        }
    }

    fn tree(id: &str) -> SourceTree {
        let files = [("a.yaml", "x: 1\n"), ("empty", ""), ("folder/b.yaml", "y: 2\n")];
        let files = files.map(|(path, text)| (path.to_owned(), Bytes::from_static(text.as_bytes())));
        SourceTree { revision: id.to_owned(), files: files.into() }
    }

    #[test]
    fn files_are_read_as_they_were_stored() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        assert!(store.stored_revision("uid").is_none() && store.stored_tree("uid").is_none());
        for id in ["c1", "c2"] {
            store.store_tree("uid", &revision(id), &tree(id)).unwrap();
            assert_eq!(store.stored_revision("uid"), Some(revision(id)));
            assert_eq!(store.stored_tree("uid"), Some((revision(id), tree(id))));
        }
        assert!(store.stored_tree("other").is_none());
        store.remove_tree("uid");
        assert!(store.stored_tree("uid").is_none());
    }

    #[test]
    fn damaged_files_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.store_tree("uid", &revision("c1"), &tree("c1")).unwrap();
        let path = store.tree_path("uid");
        let good = std::fs::read(&path).unwrap();
        let changed = [&good[..good.len() - 2], &b"9\n"[..]].concat();
        for damaged in
            [&good[..4], &good[..40], &good[..good.len() - 1], &changed[..], &b"nonsense nonsense"[..]]
        {
            std::fs::write(&path, damaged).unwrap();
            assert!(store.stored_tree("uid").is_none(), "{} bytes", damaged.len());
            assert!(store.stored_revision("uid").is_none(), "it is fetched again");
        }
    }

    #[test]
    fn the_files_of_all_sources_and_of_a_namespace_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let store_as = |key: &str, namespace: &str| {
            let revision = StoredRevision { namespace: namespace.to_owned(), ..revision("c1") };
            store.store_tree(key, &revision, &tree("c1"))
        };
        store_as("one", "team").unwrap();
        let size = std::fs::metadata(store.tree_path("one")).unwrap().len();
        store.set_quotas(Quotas { total: 2 * size + size / 2, per_namespace: size + size / 2 });
        store_as("one", "team").expect("it replaces the older files");
        let full = store_as("two", "team").unwrap_err().to_string();
        assert!(full.contains("namespace team") && full.contains("--store-quota-per-namespace"), "{full}");
        store_as("two", "other").unwrap();
        let full = store_as("three", "third").unwrap_err().to_string();
        assert!(full.contains("all namespaces together") && full.contains("--store-limit"), "{full}");
        assert!(store.stored_tree("one").is_some() && store.stored_tree("three").is_none());
        store.remove_tree("one");
        store_as("three", "third").unwrap();
    }

    #[test]
    fn unused_files_and_folders_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.store_tree("uid", &revision("c1"), &tree("c1")).unwrap();
        let left_over = store.temp_folder().unwrap().keep();
        std::fs::write(left_over.join("pack"), "half a pack").unwrap();
        let half = NamedTempFile::new_in(&store.sources).unwrap().into_temp_path().keep().unwrap();
        std::fs::write(&half, vec![0_u8; 2000]).unwrap();
        store.store_tree("other", &revision("c1"), &tree("c1")).unwrap();
        let (now, age) = (SystemTime::now(), Duration::from_hours(24));
        assert_eq!(store.remove_unused_trees(age, now).unwrap(), 0);
        assert_eq!(store.remove_unused_trees(age, now + Duration::from_mins(20)).unwrap(), 2);
        assert!(!left_over.exists() && !half.exists(), "what a process that was killed has left over");
        assert_eq!(store.remove_unused_trees(age, now + Duration::from_hours(25)).unwrap(), 2);
        assert!(store.stored_revision("uid").is_none());
    }
}
