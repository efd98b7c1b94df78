//! Resolves versions. Their entries stay in the file; only those that were resolved last are kept in memory.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chandler_core::version;
use serde::Deserialize;

use super::{ArchiveEntry, Index};

/// The number of resolved versions that are kept in memory, and the largest one that is.
const MAX_RESOLVED: usize = 128;
const MAX_ENTRY_BYTES: usize = 2 << 10;
/// Limit of the memory of resolved versions, in bytes.
pub(super) const MAX_BYTES: u64 = (MAX_RESOLVED * MAX_ENTRY_BYTES) as u64;

/// The result of resolving a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundVersion {
    Found(ArchiveEntry),
    NoChart,
    /// No version matches. Names the newest one, if there are any.
    NoVersion {
        newest: Option<String>,
    },
}

#[derive(Deserialize)]
struct VersionOnly {
    version: String,
}

/// A chart, and the requested version.
type ResolvedKey = (Box<str>, Option<Box<str>>);

/// Versions that were resolved before.
#[derive(Default)]
pub(super) struct ResolvedVersions(Mutex<HashMap<ResolvedKey, ArchiveEntry>>);

impl ResolvedVersions {
    fn lock(&self) -> MutexGuard<'_, HashMap<ResolvedKey, ArchiveEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a resolved version in memory, unless it is large.
    fn keep(&self, key: ResolvedKey, entry: &ArchiveEntry) {
        let urls: usize = entry.urls.iter().map(String::len).sum();
        let digest = entry.digest.as_ref().map_or(0, String::len);
        let wanted = key.1.as_ref().map_or(0, |wanted| wanted.len());
        let texts = key.0.len() + wanted + entry.version.len() + digest + urls;
        if texts + size_of::<(ResolvedKey, ArchiveEntry)>() > MAX_ENTRY_BYTES {
            return;
        }
        let mut resolved = self.lock();
        if resolved.len() >= MAX_RESOLVED {
            resolved.clear();
        }
        resolved.insert(key, entry.clone());
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Index {
    /// Finds the newest version of a chart that matches `wanted`. `None` means any version.
    pub fn find(&self, chart: &str, wanted: Option<&str>) -> io::Result<FoundVersion> {
        let key: ResolvedKey = (chart.into(), wanted.map(Into::into));
        if let Some(known) = self.resolved.lock().get(&key) {
            return Ok(FoundVersion::Found(known.clone()));
        }
        let Some(span) = self.charts.get(chart) else { return Ok(FoundVersion::NoChart) };
        // The rest of the entries would need much more memory.
        let versions: Vec<String> =
            self.lines::<VersionOnly>(*span).map(|line| Ok(line?.version)).collect::<io::Result<_>>()?;
        let listed = || versions.iter().map(String::as_str);
        let chosen = version::choose(wanted, listed());
        let Some(at) = chosen.and_then(|chosen| listed().position(|version| version == chosen)) else {
            return Ok(FoundVersion::NoVersion {
                newest: version::choose(None, listed()).map(str::to_owned),
            });
        };
        let entry: ArchiveEntry = self.lines(*span).nth(at).ok_or(io::ErrorKind::UnexpectedEof)??;
        self.resolved.keep(key, &entry);
        Ok(FoundVersion::Found(entry))
    }
}
