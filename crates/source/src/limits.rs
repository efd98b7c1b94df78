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
