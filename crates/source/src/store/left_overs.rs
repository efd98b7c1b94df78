//! Temporary files and folders of processes that were killed. They have names that begin with [`TEMPORARY`].

use std::{
    fs::{DirEntry, File, Metadata},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// The beginning of the names of temporary files and folders, which the crate `tempfile` creates.
const TEMPORARY: &str = ".tmp";
/// After this time a temporary file or folder is of a process that was killed: longer than a fetch may take.
pub(super) const LEFT_OVER_AFTER: Duration = Duration::from_mins(15);
const LOCK: &str = ".lock";

/// Removes what processes that were killed have left over in `folders` of a store: all temporary files if no other process uses
/// the store, and otherwise the old ones. Returns the file that shows other processes that the store is used, as long as it is open.
pub(super) fn remove(store: &Path, folders: &[&Path]) -> io::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).open(store.join(LOCK))?;
    let is_alone = lock.try_lock().is_ok();
    for folder in folders {
        for entry in std::fs::read_dir(folder)?.flatten().filter(is_temporary) {
            let Ok(metadata) = entry.metadata() else { continue };
            if is_alone || is_old(&metadata) {
                // It is tried again at the next start.
                let _ = remove_entry(&entry.path());
            }
        }
    }
    // Some file systems have no locks; then only old files are removed.
    if let Err(error) = lock.lock_shared() {
        tracing::debug!(%error, "cannot lock the store");
    }
    Ok(lock)
}

pub(super) fn is_temporary(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(TEMPORARY)
}

/// Removes a file, or a folder with its content.
pub(super) fn remove_entry(path: &Path) -> io::Result<()> {
    if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

fn is_old(metadata: &Metadata) -> bool {
    let modified = metadata.modified().ok();
    let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > LEFT_OVER_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[test]
    fn what_a_process_that_was_killed_has_left_over_is_removed_unless_another_one_may_use_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = Store::open(directory.path()).unwrap();
        let folders = [&first.packages, &first.catalogs, &first.sources, &first.proofs].map(Clone::clone);
        for folder in &folders {
            for name in [".tmpnew", ".tmpold"] {
                std::fs::write(folder.join(name), "half a file").unwrap();
            }
            let old = SystemTime::now() - 2 * LEFT_OVER_AFTER;
            let file = File::options().write(true).open(folder.join(".tmpold")).unwrap();
            file.set_modified(old).unwrap();
        }
        std::fs::create_dir(first.sources.join(".tmpfolder")).unwrap();
        std::fs::write(first.sources.join(".tmpfolder/pack"), "half a pack").unwrap();
        let count = |name: &str| folders.iter().filter(|folder| folder.join(name).exists()).count();

        let second = Store::open(directory.path()).unwrap();
        assert_eq!([".tmpnew", ".tmpold", ".tmpfolder"].map(count), [4, 0, 1], "another process may write");
        drop(first);
        let third = Store::open(directory.path()).unwrap();
        assert_eq!(count(".tmpnew"), 4, "two use it");
        drop((second, third));
        drop(Store::open(directory.path()).unwrap());
        assert_eq!([".tmpnew", ".tmpold", ".tmpfolder"].map(count), [0, 0, 0]);
    }
}
