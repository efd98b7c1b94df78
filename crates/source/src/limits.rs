//! Limits on the size and duration of responses from sources.

use std::time::Duration;

/// Limits on the size and duration of responses from sources.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub index_bytes: u64,
    /// Limit of manifests, tag lists and tokens.
    pub document_bytes: u64,
    pub package_bytes: u64,
    /// Limit of establishing a connection, and of an ssh handshake after that.
    pub connect_timeout: Duration,
    /// Limit of the time between two chunks of a response.
    pub read_timeout: Duration,
    /// Limit of a whole request, including redirects.
    pub total_timeout: Duration,
    /// Limits of Git repositories.
    pub git: GitLimits,
    /// Limits of the files of one revision of a Source.
    pub tree: TreeLimits,
    /// How long responses are cached, shared by all callers.
    pub cache_ttl: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            index_bytes: 256 << 20,
            document_bytes: 4 << 20,
            package_bytes: 64 << 20,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_mins(2),
            git: GitLimits::default(),
            tree: TreeLimits::default(),
            cache_ttl: Duration::from_mins(1),
        }
    }
}

/// Limits of a Git repository.
#[derive(Clone, Copy, Debug)]
pub struct GitLimits {
    /// Limit of the list of refs.
    pub refs_bytes: u64,
    /// Limit of the pack with all files of a revision, compressed.
    pub pack_bytes: u64,
    /// Limit of the number of objects of the pack. It holds for files that are left out, too.
    pub objects: u32,
    /// Limit of one object of the pack, uncompressed. It holds for files that are left out, too.
    pub object_bytes: usize,
    /// Limit of the objects that have to be in memory at the same time, because they are stored as differences to each other.
    pub chain_bytes: u64,
    /// Limit of the time that fetching a revision may take.
    pub timeout: Duration,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            refs_bytes: 8 << 20,
            pack_bytes: 256 << 20,
            objects: 500_000,
            object_bytes: 64 << 20,
            chain_bytes: 128 << 20,
            timeout: Duration::from_mins(5),
        }
    }
}

/// Limits of the files of one revision of a Source. What `spec.ignore` leaves out does not count.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// Limit of all files together.
    pub bytes: u64,
    /// Limit of the number of files and folders.
    pub entries: usize,
    /// Limit of nested folders.
    pub depth: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, entries: 50_000, depth: 32 }
    }
}

/// A limit that the files of a revision exceed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeLimitExceeded {
    #[error("its files up to {path:?} have more than {limit} bytes; add large folders to spec.ignore")]
    Bytes { path: String, limit: u64 },
    #[error("it has more than {limit} files and folders")]
    Entries { limit: usize },
    #[error("{path} is nested more than {limit} folders deep")]
    Depth { path: String, limit: usize },
}

/// Counts the files of a revision and checks their limits.
#[derive(Debug)]
pub(crate) struct TreeBudget {
    limits: TreeLimits,
    bytes: u64,
    entries: usize,
}

impl TreeBudget {
    pub fn new(limits: TreeLimits) -> Self {
        Self { limits, bytes: 0, entries: 0 }
    }

    /// Counts a file, and checks how deep it is.
    pub fn add_file(&mut self, path: &str, size: u64) -> Result<(), TreeLimitExceeded> {
        self.add_entry()?;
        self.add_bytes(path, size)?;
        self.check_depth(path, path.matches('/').count())
    }

    /// Counts a file or a folder.
    pub fn add_entry(&mut self) -> Result<(), TreeLimitExceeded> {
        self.entries += 1;
        let limit = self.limits.entries;
        if self.entries > limit { Err(TreeLimitExceeded::Entries { limit }) } else { Ok(()) }
    }

    /// Counts the bytes of a file.
    pub fn add_bytes(&mut self, path: &str, size: u64) -> Result<(), TreeLimitExceeded> {
        self.bytes = self.bytes.saturating_add(size);
        self.check_size(path, self.bytes)
    }

    /// Checks the size of one object before it is read.
    pub fn check_size(&self, path: &str, size: u64) -> Result<(), TreeLimitExceeded> {
        let limit = self.limits.bytes;
        if size > limit { Err(TreeLimitExceeded::Bytes { path: path.to_owned(), limit }) } else { Ok(()) }
    }

    /// Checks the number of folders around the files at a path.
    pub fn check_depth(&self, path: &str, folders: usize) -> Result<(), TreeLimitExceeded> {
        let limit = self.limits.depth;
        if folders > limit { Err(TreeLimitExceeded::Depth { path: path.to_owned(), limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_up_to_the_limits_are_accepted() {
        let mut budget = TreeBudget::new(TreeLimits { bytes: 10, entries: 2, depth: 1 });
        assert_eq!((budget.add_entry(), budget.add_entry()), (Ok(()), Ok(())));
        assert_eq!(budget.add_entry(), Err(TreeLimitExceeded::Entries { limit: 2 }));
        assert_eq!((budget.add_bytes("a", 6), budget.add_bytes("b", 4)), (Ok(()), Ok(())));
        let too_large = |path: &str| -> Result<(), TreeLimitExceeded> {
            Err(TreeLimitExceeded::Bytes { path: path.to_owned(), limit: 10 })
        };
        assert_eq!(
            (budget.add_bytes("c", 1), budget.add_bytes("d", u64::MAX)),
            (too_large("c"), too_large("d"))
        );
        assert_eq!((budget.check_size("e", 10), budget.check_size("e", 11)), (Ok(()), too_large("e")));
        assert_eq!(budget.check_depth("a/b", 1), Ok(()));
        let too_deep = TreeLimitExceeded::Depth { path: "a/b/c".to_owned(), limit: 1 };
        assert_eq!(budget.check_depth("a/b/c", 2), Err(too_deep));
    }
}
