//! Validates a chart archive in bounded time and memory, before it is stored, and reads the files of other archives.
//!
//! Helm's loader limits one archive to 100 MiB, but limits neither the number of files nor the unpacked size of subcharts, so a
//! small package could exhaust the memory of the package tool. The archive is read once, as a stream.

mod files;
mod header;
mod pax;
mod reader;

use std::{
    io::{self, Read, Take},
    path::{Component, Path},
};

use flate2::read::MultiGzDecoder;

use self::reader::MAX_HEADER;
pub(crate) use self::{
    files::read_files,
    reader::{EntryKind, TarReader},
};

/// Unpacked size of all files, including those of subcharts. Helm has the same limit for one archive.
const MAX_UNPACKED: u64 = 100 << 20;
const MAX_FILES: u64 = 20_000;
/// Nesting depth of subcharts, packaged or as folders. For each level, Helm keeps another list of all files below it.
const MAX_DEPTH: usize = 8;
/// The folder of subcharts.
const CHARTS: &str = "charts";
/// Compression ratio. Text has a ratio of about 10, repeated bytes of about 1000.
const MAX_RATIO: u64 = 200;
/// The ratio is only checked above this unpacked size.
const RATIO_THRESHOLD: u64 = 8 << 20;

/// An archive is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("it cannot be read ({0})")]
    Unreadable(#[from] io::Error),
    #[error("it contains no files")]
    Empty,
    #[error("it unpacks to more than {} MiB", MAX_UNPACKED >> 20)]
    TooLarge,
    #[error("it unpacks to more than {MAX_RATIO} times its size")]
    CompressionRatio,
    #[error("it contains more than {MAX_FILES} files")]
    TooManyFiles,
    #[error("it nests charts more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("it contains a link")]
    Link,
    #[error("it contains an entry that is neither a file nor a directory")]
    UnsupportedEntry,
    #[error("it contains a header of more than {} KiB", MAX_HEADER >> 10)]
    LongHeader,
    #[error("it contains an extended size or link")]
    ExtendedSizeOrLink,
    #[error("it contains a sparse file")]
    Sparse,
    #[error("it contains {0}, which programs read differently")]
    Ambiguous(&'static str),
    #[error("it contains a header with a wrong checksum")]
    Checksum,
    #[error("it contains an extended header that cannot be read")]
    InvalidRecord,
    #[error("it ends after a header that describes another entry")]
    MissingEntry,
    #[error("it contains a name that is not UTF-8")]
    NameNotUtf8,
    #[error("the name {0:?} is outside the archive")]
    PathTraversal(String),
}

/// Validates an archive of `packed` bytes.
pub(crate) fn validate(archive: impl Read, packed: u64) -> Result<(), ArchiveError> {
    let mut totals = Totals::new(packed);
    walk(Box::new(archive), &mut totals, 0)?;
    if totals.files == 0 { Err(ArchiveError::Empty) } else { Ok(()) }
}

/// What was read so far, including subcharts.
pub(crate) struct Totals {
    bytes: u64,
    files: u64,
    packed: u64,
}

impl Totals {
    /// Returns the totals of an archive of `packed` bytes before it is read.
    pub(crate) fn new(packed: u64) -> Self {
        Self { bytes: 0, files: 0, packed }
    }

    fn add_bytes(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_UNPACKED {
            return Err(ArchiveError::TooLarge);
        }
        if self.bytes > RATIO_THRESHOLD && self.bytes / self.packed.max(1) > MAX_RATIO {
            return Err(ArchiveError::CompressionRatio);
        }
        Ok(())
    }

    fn add_file(&mut self) -> Result<(), ArchiveError> {
        self.files += 1;
        if self.files > MAX_FILES { Err(ArchiveError::TooManyFiles) } else { Ok(()) }
    }
}

fn walk(packed: Box<dyn Read + '_>, totals: &mut Totals, depth: usize) -> Result<(), ArchiveError> {
    let mut archive = unpacked(packed);
    while let Some(entry) = archive.next_entry(totals)? {
        let depth = depth + entry.name.split('/').filter(|part| *part == CHARTS).count();
        if depth > MAX_DEPTH {
            return Err(ArchiveError::TooDeep);
        }
        match entry.kind {
            EntryKind::File if is_packaged_subchart(&entry.name) => {
                walk(Box::new(&mut archive), totals, depth)?;
            }
            EntryKind::File | EntryKind::Directory => {}
            EntryKind::SymbolicLink | EntryKind::HardLink => return Err(ArchiveError::Link),
        }
    }
    Ok(())
}

/// Returns a reader of a compressed archive.
pub(crate) fn unpacked<R: Read>(packed: R) -> TarReader<Take<MultiGzDecoder<R>>> {
    // Helm also reads several concatenated gzip streams as one. Headers and padding are limited, too: they take time, even if
    // they do not take memory.
    TarReader::new(MultiGzDecoder::new(packed).take(2 * MAX_UNPACKED))
}

fn validated_name(name: &[u8]) -> Result<String, ArchiveError> {
    let name = std::str::from_utf8(name).map_err(|_| ArchiveError::NameNotUtf8)?;
    let name = name.trim_end_matches('\0').replace('\\', "/");
    let escapes = |part: &str| {
        Path::new(part)
            .components()
            .any(|part| matches!(part, Component::ParentDir | Component::RootDir | Component::Prefix(_)))
    };
    let drive = name.split('/').any(|part| part.len() == 2 && part.ends_with(':'));
    if name.is_empty() || escapes(&name) || drive || name.chars().any(char::is_control) {
        let truncated: String = name.chars().take(100).collect();
        return Err(ArchiveError::PathTraversal(truncated));
    }
    Ok(name)
}

/// Returns whether Helm loads the file as a subchart: packaged charts in a directory `charts`.
fn is_packaged_subchart(name: &str) -> bool {
    let path = Path::new(name);
    let in_charts = path.parent().is_some_and(|directory| directory.ends_with(CHARTS));
    in_charts && path.extension().is_some_and(|extension| extension == "tgz")
}

#[cfg(test)]
mod differential;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
