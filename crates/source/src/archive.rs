//! Looks through a chart archive before anyone opens it, in bounded time and memory.
//!
//! Helm's loader limits one archive to 100 MiB, but neither the number of files nor what charts inside the chart unpack
//! to: a small package could take the driver's memory. Here it is read once, when it arrives, and nothing is kept.

use std::{
    io::{self, Read},
    path::{Component, Path},
};

use flate2::read::MultiGzDecoder;
use tar::EntryType;

/// Of all files, those of charts inside the chart included. Helm's own limit, for one archive.
const MOST_UNPACKED: u64 = 100 << 20;
const MOST_FILES: u64 = 20_000;
/// Charts inside charts inside charts.
const DEEPEST: u32 = 8;
/// Text packs to a tenth, endless repetition to a thousandth.
const HIGHEST_RATIO: u64 = 200;
/// Small archives may have any ratio.
const RATIO_MATTERS: u64 = 8 << 20;
const LONGEST_HEADER: u64 = 64 << 10;

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("it cannot be read ({0})")]
    Unreadable(#[from] io::Error),
    #[error("it holds no files")]
    Empty,
    #[error("it unpacks to more than {} MiB", MOST_UNPACKED >> 20)]
    TooLarge,
    #[error("it unpacks to more than {HIGHEST_RATIO} times its size")]
    TooDense,
    #[error("it holds more than {MOST_FILES} files")]
    TooManyFiles,
    #[error("it nests charts more than {DEEPEST} deep")]
    TooDeep,
    #[error("it holds a link")]
    Link,
    #[error("it holds something that is neither file nor folder")]
    NoFile,
    #[error("it holds a header of more than {} KiB", LONGEST_HEADER >> 10)]
    LongHeader,
    #[error("it holds an extended size or link")]
    ExtendedSizeOrLink,
    #[error("it holds a sparse file")]
    Sparse,
    #[error("it holds a name that is not UTF-8")]
    NameNotText,
    #[error("the name {0:?} leads out of the chart")]
    LeadsOut(String),
}

/// Checks the archive.
pub(crate) fn check(archive: impl Read, packed: u64) -> Result<(), ArchiveError> {
    let mut seen = Seen { bytes: 0, files: 0, packed };
    walk(Box::new(archive), &mut seen, 0)?;
    if seen.files == 0 { Err(ArchiveError::Empty) } else { Ok(()) }
}

struct Seen {
    bytes: u64,
    files: u64,
    packed: u64,
}

impl Seen {
    fn add(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_UNPACKED {
            return Err(ArchiveError::TooLarge);
        }
        if self.bytes > RATIO_MATTERS && self.bytes / self.packed.max(1) > HIGHEST_RATIO {
            return Err(ArchiveError::TooDense);
        }
        Ok(())
    }

    fn file(&mut self) -> Result<(), ArchiveError> {
        self.files += 1;
        if self.files > MOST_FILES { Err(ArchiveError::TooManyFiles) } else { Ok(()) }
    }
}

fn walk(packed: Box<dyn Read + '_>, seen: &mut Seen, depth: u32) -> Result<(), ArchiveError> {
    if depth > DEEPEST {
        return Err(ArchiveError::TooDeep);
    }
    // Several compressed streams in a row are one, to Helm as well.
    let unpacked = MultiGzDecoder::new(packed);
    // Headers and padding count too: they take time, if not memory.
    let mut archive = tar::Archive::new(unpacked.take(2 * MOST_UNPACKED));
    let mut long_name = None;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        seen.file()?;
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Directory => {
                let name = match long_name.take() {
                    Some(name) => name,
                    None => entry.path_bytes().into_owned(),
                };
                let name = checked_name(&name)?;
                seen.add(entry.size())?;
                if is_inner_chart(&name) {
                    walk(Box::new(entry), seen, depth + 1)?;
                }
            }
            EntryType::GNULongName => long_name = Some(small(&mut entry)?),
            EntryType::XHeader => {
                if let Some(name) = pax_name(&small(&mut entry)?)? {
                    long_name = Some(name);
                }
            }
            EntryType::XGlobalHeader => {
                small(&mut entry)?;
            }
            EntryType::Symlink | EntryType::Link | EntryType::GNULongLink => {
                return Err(ArchiveError::Link);
            }
            _ => return Err(ArchiveError::NoFile),
        }
    }
    Ok(())
}

/// The content of a header that describes the next one.
fn small(entry: &mut impl Read) -> Result<Vec<u8>, ArchiveError> {
    let mut content = Vec::new();
    entry.take(LONGEST_HEADER + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LONGEST_HEADER {
        return Err(ArchiveError::LongHeader);
    }
    Ok(content)
}

/// The name in an extended header. Others than names and times would make others read another archive than we do.
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

fn checked_name(name: &[u8]) -> Result<String, ArchiveError> {
    let name = std::str::from_utf8(name).map_err(|_| ArchiveError::NameNotText)?;
    let name = name.trim_end_matches('\0').replace('\\', "/");
    let escapes = |part: &str| {
        Path::new(part)
            .components()
            .any(|part| matches!(part, Component::ParentDir | Component::RootDir | Component::Prefix(_)))
    };
    let drive = name.split('/').any(|part| part.len() == 2 && part.ends_with(':'));
    if name.is_empty() || escapes(&name) || drive || name.chars().any(char::is_control) {
        let shown: String = name.chars().take(100).collect();
        return Err(ArchiveError::LeadsOut(shown));
    }
    Ok(name)
}

/// Helm loads packaged charts in a folder `charts`.
fn is_inner_chart(name: &str) -> bool {
    let path = Path::new(name);
    let beside = path.parent().is_some_and(|folder| folder.ends_with("charts"));
    beside && path.extension().is_some_and(|extension| extension == "tgz")
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
