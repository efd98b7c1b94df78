//! Reads the files of a commit from its tree objects.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use bytes::Bytes;
use gix_hash::{Kind as HashKind, ObjectId};
use gix_object::{Kind, TreeRefIter, tree::EntryKind};

use super::{objects::Objects, session::Fetch};
use crate::{
    SourceError,
    limits::{TreeBudget, TreeLimitExceeded},
    tree::link_remarks,
};

/// The first line of a file of Git LFS, which stands for a file elsewhere.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Returns the files of a tree and what was left out of them.
pub(super) fn read(
    objects: &mut Objects,
    fetch: &Fetch,
    root: ObjectId,
) -> Result<(BTreeMap<String, Bytes>, String), SourceError> {
    let budget = TreeBudget::new(fetch.tree);
    let mut reader = TreeReader { objects, fetch, files: BTreeMap::new(), budget, links: Vec::new() };
    reader.folder(root, "", 0)?;
    Ok((reader.files, link_remarks(&reader.links)))
}

struct Entry {
    kind: EntryKind,
    path: String,
    id: ObjectId,
}

struct TreeReader<'a> {
    objects: &'a mut Objects,
    fetch: &'a Fetch,
    files: BTreeMap<String, Bytes>,
    budget: TreeBudget,
    links: Vec<String>,
}

impl TreeReader<'_> {
    fn folder(&mut self, id: ObjectId, path: &str, depth: usize) -> Result<(), SourceError> {
        self.budget.check_depth(path, depth).map_err(|error| self.exceeded(&error))?;
        for entry in self.entries(id, path)? {
            if self.fetch.interrupt.load(Ordering::Relaxed) {
                return Err(self.unusable("reading its files was interrupted"));
            }
            let Entry { kind, path, id } = entry;
            match kind {
                EntryKind::Tree => self.folder(id, &path, depth + 1)?,
                EntryKind::Blob | EntryKind::BlobExecutable => self.file(id, &path)?,
                EntryKind::Link => self.links.push(path),
                EntryKind::Commit => {
                    return Err(self.unusable(format!(
                        "{path} is a submodule, which is not supported; make a Source of that repository, or add {path} \
                         to spec.ignore"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns the entries of a folder that are not left out.
    fn entries(&mut self, id: ObjectId, folder: &str) -> Result<Vec<Entry>, SourceError> {
        let fetch = self.fetch;
        self.check_size(id, folder)?;
        let invalid = |error: &gix_error::Error| {
            fetch.unusable(format!("the folder {folder:?} cannot be read: {error}"))
        };
        let Some((Kind::Tree, data)) = self.objects.read(&id).map_err(|error| invalid(&error))? else {
            return Err(fetch.unusable(format!("the server did not send the folder {folder:?}")));
        };
        let mut entries = Vec::new();
        for entry in TreeRefIter::from_bytes(data, HashKind::Sha1) {
            let entry = entry.map_err(|error| invalid(&error))?;
            self.budget.add_entry().map_err(|error| fetch.unusable(error.to_string()))?;
            let name = safe_name(entry.filename).ok_or_else(|| {
                fetch.unusable(format!(
                    "{folder:?} contains the name {:?}, which is not allowed",
                    entry.filename
                ))
            })?;
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            if !fetch.ignore.matches(&path) {
                entries.push(Entry { kind: entry.mode.kind(), path, id: entry.oid.to_owned() });
            }
        }
        Ok(entries)
    }

    fn file(&mut self, id: ObjectId, path: &str) -> Result<(), SourceError> {
        let size = self.check_size(id, path)?;
        self.budget.add_bytes(path, size).map_err(|error| self.exceeded(&error))?;
        let unreadable = |why: &str| self.fetch.unusable(format!("the file {path} cannot be read: {why}"));
        let found = self.objects.read(&id).map_err(|error| unreadable(&error.to_string()))?;
        let Some((Kind::Blob, data)) = found else { return Err(unreadable("the server did not send it")) };
        if data.starts_with(LFS_POINTER) {
            return Err(self.fetch.unusable(format!(
                "{path} is stored in Git LFS, which is not supported; store the file itself, or add {path} to spec.ignore"
            )));
        }
        let data = Bytes::copy_from_slice(data);
        match self.files.insert(path.to_owned(), data) {
            None => Ok(()),
            Some(_) => Err(self.unusable(format!("it contains {path} twice"))),
        }
    }

    /// Returns the size of an object, if it is within the limit.
    fn check_size(&mut self, id: ObjectId, path: &str) -> Result<u64, SourceError> {
        let size = self.objects.size(&id).map_err(|error| self.fetch.connection().error(&error))?;
        let size = size.ok_or_else(|| self.unusable(format!("the server did not send {path:?}")))?;
        self.budget.check_size(path, size).map_err(|error| self.exceeded(&error))?;
        Ok(size)
    }

    fn exceeded(&self, limit: &TreeLimitExceeded) -> SourceError {
        self.unusable(limit.to_string())
    }

    fn unusable(&self, reason: impl Into<String>) -> SourceError {
        self.fetch.unusable(reason)
    }
}

/// Returns the name if it cannot be mistaken for a path.
fn safe_name(name: &[u8]) -> Option<&str> {
    let name = str::from_utf8(name).ok()?;
    let is_special = matches!(name, "" | "." | "..") || name.eq_ignore_ascii_case(".git");
    (!is_special && !name.contains(['/', '\\', '\0'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_paths_are_refused() {
        for good in ["a", "a.yaml", ".github", "ü", "a b"] {
            assert_eq!(safe_name(good.as_bytes()), Some(good));
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\\b", b".GIT", b"a\0", b"\xff"] {
            assert_eq!(safe_name(bad), None, "{bad:?}");
        }
    }
}
