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
/// Up to this number of bytes, the versions of a chart are read in the thread that needs them.
const MAX_BYTES_AT_ONCE: u64 = 64 << 10;
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

/// What was resolved before, also that there is no such version.
#[derive(Default)]
pub(super) struct ResolvedVersions(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// With the number of the last use.
    found: HashMap<ResolvedKey, (u64, FoundVersion)>,
    uses: u64,
}

impl Recent {
    fn get(&mut self, key: &ResolvedKey) -> Option<FoundVersion> {
        self.uses += 1;
        let (last_use, found) = self.found.get_mut(key)?;
        *last_use = self.uses;
        Some(found.clone())
    }

    /// Adds a result, in place of the least recently used one if there are many.
    fn insert(&mut self, key: ResolvedKey, found: FoundVersion) {
        if self.found.len() >= MAX_RESOLVED {
            let oldest = self.found.iter().min_by_key(|(_, (last_use, _))| *last_use);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.found.remove(&oldest);
            }
        }
        self.uses += 1;
        self.found.insert(key, (self.uses, found));
    }
}

impl ResolvedVersions {
    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a result in memory, unless it is large.
    fn keep(&self, key: ResolvedKey, found: &FoundVersion) {
        let texts = match found {
            FoundVersion::Found(entry) => {
                let urls: usize = entry.urls.iter().map(String::len).sum();
                entry.version.len() + entry.digest.as_ref().map_or(0, String::len) + urls
            }
            FoundVersion::NoChart => 0,
            FoundVersion::NoVersion { newest } => newest.as_ref().map_or(0, String::len),
        };
        let wanted = key.1.as_ref().map_or(0, |wanted| wanted.len());
        let size = texts + key.0.len() + wanted + size_of::<(ResolvedKey, (u64, FoundVersion))>();
        if size <= MAX_ENTRY_BYTES {
            self.lock().insert(key, found.clone());
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().found.is_empty()
    }
}

impl Index {
    /// Finds the newest version of a chart that matches `wanted`. `None` means any version. It may have to read many versions.
    pub fn find(&self, chart: &str, wanted: Option<&str>) -> io::Result<FoundVersion> {
        if let Some(known) = self.known(chart, wanted) {
            return Ok(known);
        }
        let found = self.read_version(chart, wanted)?;
        self.resolved.keep(key(chart, wanted), &found);
        Ok(found)
    }

    /// Returns what [`Index::find`] returns, if it is known without reading the file.
    pub fn known(&self, chart: &str, wanted: Option<&str>) -> Option<FoundVersion> {
        if !self.charts.contains_key(chart) {
            return Some(FoundVersion::NoChart);
        }
        self.resolved.lock().get(&key(chart, wanted))
    }

    /// Returns whether it takes long to read the versions of a chart.
    pub fn is_large(&self, chart: &str) -> bool {
        self.charts.get(chart).is_some_and(|span| span.length > MAX_BYTES_AT_ONCE)
    }

    fn read_version(&self, chart: &str, wanted: Option<&str>) -> io::Result<FoundVersion> {
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
        Ok(FoundVersion::Found(entry))
    }
}

fn key(chart: &str, wanted: Option<&str>) -> ResolvedKey {
    (chart.into(), wanted.map(Into::into))
}
