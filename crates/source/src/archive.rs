//! Validates a chart archive in bounded time and memory, before it is stored, and reads the files of other archives.
//!
//! Helm's loader limits one archive to 100 MiB, but limits neither the number of files nor the unpacked size of subcharts, so a
//! small package could exhaust the memory of the package tool. The archive is read once, as a stream.

mod files;

use std::{
    io::{self, Read},
    path::{Component, Path},
};

use flate2::read::MultiGzDecoder;
use tar::EntryType;

pub(crate) use self::files::read_files;

/// Unpacked size of all files, including those of subcharts. Helm has the same limit for one archive.
const MAX_UNPACKED: u64 = 100 << 20;
const MAX_FILES: u64 = 20_000;
/// Nesting depth of subcharts.
const MAX_DEPTH: u32 = 8;
/// Compression ratio. Text has a ratio of about 10, repeated bytes of about 1000.
const MAX_RATIO: u64 = 200;
/// The ratio is only checked above this unpacked size.
const RATIO_THRESHOLD: u64 = 8 << 20;
const MAX_HEADER: u64 = 64 << 10;

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
    #[error("it contains a name that is not UTF-8")]
    NameNotUtf8,
    #[error("the name {0:?} is outside the archive")]
    PathTraversal(String),
}

/// Validates an archive of `packed` bytes.
pub(crate) fn validate(archive: impl Read, packed: u64) -> Result<(), ArchiveError> {
    let mut totals = Totals { bytes: 0, files: 0, packed };
    walk(Box::new(archive), &mut totals, 0)?;
    if totals.files == 0 { Err(ArchiveError::Empty) } else { Ok(()) }
}

/// What was read so far, including subcharts.
struct Totals {
    bytes: u64,
    files: u64,
    packed: u64,
}

impl Totals {
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

fn walk(packed: Box<dyn Read + '_>, totals: &mut Totals, depth: u32) -> Result<(), ArchiveError> {
    if depth > MAX_DEPTH {
        return Err(ArchiveError::TooDeep);
    }
    // Helm also reads several concatenated gzip streams as one.
    let unpacked = MultiGzDecoder::new(packed);
    // Limits headers and padding, too: they take time, even if they do not take memory.
    let mut archive = tar::Archive::new(unpacked.take(2 * MAX_UNPACKED));
    let mut long_name = None;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        totals.add_file()?;
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Directory => {
                let name = match long_name.take() {
                    Some(name) => name,
                    None => entry.path_bytes().into_owned(),
                };
                let name = validated_name(&name)?;
                totals.add_bytes(entry.size())?;
                if is_packaged_subchart(&name) {
                    walk(Box::new(entry), totals, depth + 1)?;
                }
            }
            EntryType::GNULongName => long_name = Some(read_header(&mut entry)?),
            EntryType::XHeader => {
                if let Some(name) = pax_name(&read_header(&mut entry)?)? {
                    long_name = Some(name);
                }
            }
            EntryType::XGlobalHeader => {
                read_header(&mut entry)?;
            }
            EntryType::Symlink | EntryType::Link | EntryType::GNULongLink => {
                return Err(ArchiveError::Link);
            }
            _ => return Err(ArchiveError::UnsupportedEntry),
        }
    }
    Ok(())
}

/// Reads the content of an extension header, which describes the next entry.
fn read_header(entry: &mut impl Read) -> Result<Vec<u8>, ArchiveError> {
    let mut content = Vec::new();
    entry.take(MAX_HEADER + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_HEADER {
        return Err(ArchiveError::LongHeader);
    }
    Ok(content)
}

/// Returns the name in a PAX header. Sizes, links and sparse files are rejected, because other readers could interpret the
/// archive differently.
fn pax_name(content: &[u8]) -> Result<Option<Vec<u8>>, ArchiveError> {
    let mut name = None;
    for record in tar::PaxExtensions::new(content) {
        let record = record?;
        match record.key_bytes() {
            b"path" => name = Some(record.value_bytes().to_vec()),
            b"size" | b"linkpath" => return Err(ArchiveError::ExtendedSizeOrLink),
            key if key.starts_with(b"GNU.sparse") => return Err(ArchiveError::Sparse),
            _ => {}
        }
    }
    Ok(name)
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
    let in_charts = path.parent().is_some_and(|directory| directory.ends_with("charts"));
    in_charts && path.extension().is_some_and(|extension| extension == "tgz")
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
