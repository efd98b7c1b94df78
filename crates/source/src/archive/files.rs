//! Reads the files of an archive into memory.

use std::{collections::BTreeMap, io::Read};

use bytes::Bytes;
use chandler_core::source::Ignore;

use super::{ArchiveError, EntryKind, Totals, reader::Entry, unpacked};
use crate::limits::{TreeBudget, TreeLimitExceeded, TreeLimits};

/// The files of an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    #[error("its archive is not used: {0}")]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Limit(#[from] TreeLimitExceeded),
    #[error("it contains {path} twice")]
    Twice { path: String },
}

impl From<std::io::Error> for FilesError {
    fn from(error: std::io::Error) -> Self {
        Self::Archive(error.into())
    }
}

/// The files of an archive by their path, and the symbolic links that are left out.
#[derive(Debug, Default)]
pub(crate) struct ArchivedFiles {
    pub files: BTreeMap<String, Bytes>,
    pub links: Vec<String>,
}

/// Reads the files of an archive of `packed` bytes, except those that `ignore` leaves out.
pub(crate) fn read_files(
    archive: impl Read,
    packed: u64,
    limits: TreeLimits,
    ignore: &Ignore,
) -> Result<ArchivedFiles, FilesError> {
    let mut totals = Totals::new(packed);
    let mut reader = FilesReader { budget: TreeBudget::new(limits), ignore, found: ArchivedFiles::default() };
    let mut archive = unpacked(archive);
    while let Some(entry) = archive.next_entry(&mut totals)? {
        // The content of a hard link is in another entry, which may be left out.
        if entry.kind == EntryKind::HardLink {
            return Err(ArchiveError::Link.into());
        }
        reader.entry(&entry, &mut archive)?;
    }
    Ok(reader.found)
}

struct FilesReader<'a> {
    /// Everything that is not left out.
    budget: TreeBudget,
    ignore: &'a Ignore,
    found: ArchivedFiles,
}

impl FilesReader<'_> {
    fn entry(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), FilesError> {
        let Entry { kind, name, size, .. } = entry;
        let parts: Vec<_> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let path = parts.join("/");
        if path.is_empty() || self.is_ignored(&parts) {
            return Ok(());
        }
        self.budget.add_entry()?;
        self.budget.check_depth(&path, parts.len() - 1)?;
        match kind {
            EntryKind::SymbolicLink => self.found.links.push(path),
            // Old archives mark folders only by a slash at the end of the name.
            EntryKind::File if !name.ends_with('/') => {
                self.budget.add_bytes(&path, *size)?;
                let mut data = Vec::new();
                content.read_to_end(&mut data)?;
                if self.found.files.insert(path.clone(), data.into()).is_some() {
                    return Err(FilesError::Twice { path });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the path or a folder above it is left out.
    fn is_ignored(&self, parts: &[&str]) -> bool {
        (1..=parts.len()).any(|length| self.ignore.matches(&parts[..length].join("/")))
    }
}

#[cfg(test)]
mod tests {
    use tar::EntryType;

    use super::*;
    use crate::archive::testing::{gzip, pack};

    const LIMITS: TreeLimits = TreeLimits { bytes: 100, entries: 10, depth: 2 };

    fn read(archive: &[u8], ignore: &[&str]) -> Result<ArchivedFiles, String> {
        let ignore: Vec<_> = ignore.iter().map(|pattern| (*pattern).to_owned()).collect();
        read_files(archive, archive.len() as u64, LIMITS, &Ignore::new(&ignore))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn files_are_read_by_their_paths() {
        let archive = pack(&[
            ("./", EntryType::Directory, b""),
            ("./apps/", EntryType::Directory, b""),
            ("./apps/a.yaml", EntryType::Regular, b"a: 1"),
            ("old/", EntryType::Regular, b""),
            ("docs/x/y.md", EntryType::Regular, b"text"),
            ("link", EntryType::Symlink, b""),
        ]);
        let found = read(&archive, &["docs"]).unwrap();
        let files: Vec<_> = found.files.iter().map(|(path, data)| (path.as_str(), &data[..])).collect();
        assert_eq!(files, [("apps/a.yaml", &b"a: 1"[..])]);
        assert_eq!(found.links, ["link"]);
        assert!(read(&gzip(&[0; 1024]), &[]).unwrap().files.is_empty());
    }

    #[test]
    fn limits_hold_and_hostile_entries_are_refused() {
        let big = [0_u8; 101];
        let many: Vec<_> = (0..11).map(|number| format!("f{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), EntryType::Regular, &b""[..])).collect();
        let one = |name, kind| pack(&[(name, kind, b"")]);
        let rows = [
            (pack(&[("big", EntryType::Regular, &big)]), "100 bytes; add large folders to spec.ignore"),
            (pack(&many), "more than 10 files and folders"),
            (one("a/b/c/d", EntryType::Regular), "a/b/c/d is nested more than 2 folders deep"),
            (pack(&[("a", EntryType::Regular, b""), ("./a", EntryType::Regular, b"")]), "contains a twice"),
            (one("../a", EntryType::Regular), "is outside the archive"),
            (one("a", EntryType::Link), "contains a link"),
            (one("a", EntryType::Char), "neither a file nor a directory"),
        ];
        for (archive, expected) in rows {
            let refused = read(&archive, &[]).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
        let archive = pack(&[("big", EntryType::Regular, &big), ("a", EntryType::Regular, b"1")]);
        assert_eq!(read(&archive, &["big"]).unwrap().files.len(), 1, "what is left out does not count");
        assert!(read(b"text", &[]).unwrap_err().contains("cannot be read"));
    }
}
