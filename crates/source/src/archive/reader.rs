//! Reads the entries of a tar archive, and refuses what other readers could interpret differently.
//!
//! What is checked here is later unpacked by Helm, with Go's `archive/tar`. If both disagreed about where an entry begins or
//! what its name is, an archive could hide files from the check. The tests compare both readers.

use std::io::{self, Read};

use super::{
    ArchiveError, Totals,
    header::{BLOCK, Header, HeaderKind},
    pax, validated_name,
};

/// Names and records are short. Helm reads up to 1 MiB.
pub(super) const MAX_HEADER: u64 = 64 << 10;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    SymbolicLink,
    HardLink,
}

/// An entry of an archive. [`TarReader`] reads its content.
#[derive(Debug)]
pub(crate) struct Entry {
    pub kind: EntryKind,
    /// The name, with `/` between folders.
    pub name: String,
    pub size: u64,
    /// The length of the first part of the name, for Helm: a name with a backslash is divided only there.
    first_part: usize,
}

impl Entry {
    /// Returns the path in the chart, as Helm reads it: without the first part, which is the folder of the chart, also if it is
    /// `.`, and without `.` between folders.
    pub fn path_in_chart(&self) -> String {
        let parts = self.name[self.first_part..].split('/').filter(|part| !matches!(*part, "" | "."));
        parts.collect::<Vec<_>>().join("/")
    }
}

/// Reads an archive entry by entry. As a [`Read`], it reads the content of the current entry.
pub(crate) struct TarReader<R> {
    input: R,
    /// What is left of the content of the current entry.
    content: u64,
    padding: u64,
}

/// What extension headers say about the next entry.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
    link: bool,
    pax: bool,
}

impl<R: Read> TarReader<R> {
    pub fn new(input: R) -> Self {
        Self { input, content: 0, padding: 0 }
    }

    /// Returns the next entry, and `None` at the end of the archive. Skips what was not read of the current one.
    pub fn next_entry(&mut self, totals: &mut Totals) -> Result<Option<Entry>, ArchiveError> {
        let mut extension = Extension::default();
        loop {
            self.skip_content()?;
            let Some(block) = self.header_block()? else {
                return if extension.is_empty() { Ok(None) } else { Err(ArchiveError::MissingEntry) };
            };
            totals.add_file()?;
            let header = Header::parse(&block)?;
            self.content = header.size;
            self.padding = header.size.wrapping_neg() % BLOCK as u64;
            match header.kind {
                HeaderKind::LongName => extension.set_long_name(self.extension_content(totals)?)?,
                HeaderKind::LongLink => {
                    self.extension_content(totals)?;
                    extension.set_long_link()?;
                }
                HeaderKind::Extended => {
                    extension.set_records(&self.extension_content(totals)?)?;
                }
                HeaderKind::GlobalExtended if extension.is_empty() => {
                    pax::check_global(&self.extension_content(totals)?)?;
                }
                // Go forgets what it has read about the next entry.
                HeaderKind::GlobalExtended => return Err(TWO_HEADERS),
                _ => return entry(header, extension, totals).map(Some),
            }
        }
    }

    /// Reads the content of an extension header.
    fn extension_content(&mut self, totals: &mut Totals) -> Result<Vec<u8>, ArchiveError> {
        let size = self.content;
        if size > MAX_HEADER {
            return Err(ArchiveError::LongHeader);
        }
        totals.add_bytes(size)?;
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        Ok(content)
    }

    fn skip_content(&mut self) -> Result<(), ArchiveError> {
        io::copy(self, &mut io::sink())?;
        let skipped = io::copy(&mut (&mut self.input).take(self.padding), &mut io::sink())?;
        if skipped < self.padding {
            return Err(truncated().into());
        }
        self.padding = 0;
        Ok(())
    }

    /// Returns the next block, and `None` at the end of the archive: two blocks of zeros, or nothing.
    fn header_block(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        let Some(block) = self.block()? else { return Ok(None) };
        if block != [0; BLOCK] {
            return Ok(Some(block));
        }
        match self.block()? {
            Some(block) if block != [0; BLOCK] => {
                Err(ArchiveError::Ambiguous("an entry after the end of the archive"))
            }
            _ => Ok(None),
        }
    }

    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(truncated().into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(block))
    }
}

/// Checks an entry with what extension headers say about it.
fn entry(header: Header, extension: Extension, totals: &mut Totals) -> Result<Entry, ArchiveError> {
    let Header { kind, name, size } = header;
    let raw = extension.name.unwrap_or(name);
    let name = validated_name(&raw)?;
    let position = |separator| raw.iter().position(|byte| *byte == separator);
    let first_part = position(b'\\').or(position(b'/')).unwrap_or(name.len());
    let is_folder = name.ends_with('/');
    let kind = match kind {
        HeaderKind::Directory => EntryKind::Directory,
        HeaderKind::OldFile if raw.ends_with(b"/") => EntryKind::Directory,
        HeaderKind::SymbolicLink => EntryKind::SymbolicLink,
        HeaderKind::HardLink => EntryKind::HardLink,
        _ => EntryKind::File,
    };
    if size > 0 && (kind != EntryKind::File || is_folder) {
        return Err(ArchiveError::Ambiguous("a directory or link with content"));
    }
    if extension.link && !matches!(kind, EntryKind::SymbolicLink | EntryKind::HardLink) {
        return Err(ArchiveError::Ambiguous("a target of an entry that is not a link"));
    }
    totals.add_bytes(size)?;
    Ok(Entry { kind, name, size, first_part })
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = usize::try_from(self.content).unwrap_or(usize::MAX).min(buffer.len());
        if limit == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..limit])?;
        if count == 0 {
            return Err(truncated());
        }
        self.content -= count as u64;
        Ok(count)
    }
}

const TWO_HEADERS: ArchiveError = ArchiveError::Ambiguous("two extension headers for one entry");

impl Extension {
    fn is_empty(&self) -> bool {
        self.name.is_none() && !self.link && !self.pax
    }

    fn set_long_name(&mut self, mut name: Vec<u8>) -> Result<(), ArchiveError> {
        if self.pax || self.name.is_some() {
            return Err(TWO_HEADERS);
        }
        let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        name.truncate(end);
        self.name = Some(name);
        Ok(())
    }

    fn set_long_link(&mut self) -> Result<(), ArchiveError> {
        if self.pax || self.link {
            return Err(TWO_HEADERS);
        }
        self.link = true;
        Ok(())
    }

    fn set_records(&mut self, content: &[u8]) -> Result<(), ArchiveError> {
        if !self.is_empty() {
            return Err(TWO_HEADERS);
        }
        (self.name, self.pax) = (pax::name(content)?, true);
        Ok(())
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends within an entry")
}
