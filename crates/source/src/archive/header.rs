//! Reads one header block of a tar archive.
//!
//! Readers of tar disagree about unusual headers. A block is accepted only if Go's `archive/tar`, which Helm uses, certainly
//! finds the same kind, name and size in it.

use super::ArchiveError;

pub(super) const BLOCK: usize = 512;

/// What a header describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderKind {
    File,
    /// A file of an archive before POSIX. It is a directory if its name ends with a slash.
    OldFile,
    Directory,
    SymbolicLink,
    HardLink,
    /// The content is the name of the next entry.
    LongName,
    /// The content is the target of the next entry, a link.
    LongLink,
    /// The content are PAX records for the next entry.
    Extended,
    /// The content are PAX records for all entries.
    GlobalExtended,
}

/// A header as it stands in the archive, without what extension headers change.
#[derive(Debug)]
pub(super) struct Header {
    pub kind: HeaderKind,
    pub name: Vec<u8>,
    pub size: u64,
}

impl Header {
    pub fn parse(block: &[u8; BLOCK]) -> Result<Self, ArchiveError> {
        check_sum(block)?;
        let kind = kind(block[156])?;
        let mode = number(&block[100..108])?;
        if !matches_kind(mode, kind) {
            return Err(ArchiveError::Ambiguous("a mode of another kind of file than its type"));
        }
        Ok(Self { kind, name: name(block)?, size: number(&block[124..136])? })
    }
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), ArchiveError> {
    let bytes = block.iter().enumerate();
    let sum: u64 = bytes.map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) }).sum();
    if number(&block[148..156])? == sum { Ok(()) } else { Err(ArchiveError::Checksum) }
}

fn kind(flag: u8) -> Result<HeaderKind, ArchiveError> {
    Ok(match flag {
        b'0' => HeaderKind::File,
        0 => HeaderKind::OldFile,
        b'1' => HeaderKind::HardLink,
        b'2' => HeaderKind::SymbolicLink,
        b'5' => HeaderKind::Directory,
        b'L' => HeaderKind::LongName,
        b'K' => HeaderKind::LongLink,
        b'x' => HeaderKind::Extended,
        b'g' => HeaderKind::GlobalExtended,
        _ => return Err(ArchiveError::UnsupportedEntry),
    })
}

/// Some programs write the kind of a file into its mode, too. Helm ignores a file whose mode is that of a directory.
fn matches_kind(mode: u64, kind: HeaderKind) -> bool {
    let own = match kind {
        HeaderKind::Directory => 0o040_000,
        HeaderKind::SymbolicLink => 0o120_000,
        _ => 0o100_000,
    };
    let stated = mode & !0o7777;
    stated == 0 || stated == own
}

/// Returns an octal number. Binary numbers, which are for more than 8 GiB, and anything but spaces in front of the digits
/// are refused.
fn number(field: &[u8]) -> Result<u64, ArchiveError> {
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let text = &field[start..];
    let digits = text.iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, rest) = text.split_at(digits);
    if rest.iter().any(|byte| !matches!(byte, b' ' | 0)) {
        return Err(ArchiveError::Ambiguous("a number that is not octal"));
    }
    Ok(digits.iter().fold(0, |number, digit| number * 8 + u64::from(digit - b'0')))
}

/// Returns the name with its prefix, which only one of the formats has.
fn name(block: &[u8; BLOCK]) -> Result<Vec<u8>, ArchiveError> {
    let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
    let (magic, version) = (&block[257..263], &block[263..265]);
    match (magic, version) {
        (b"ustar\0", _) if &block[508..] == b"tar\0" => {
            Err(ArchiveError::Ambiguous("a header in the format of star"))
        }
        (b"ustar\0", _) if prefix.is_empty() => Ok(name.to_vec()),
        (b"ustar\0", b"00") => Ok([prefix, b"/", name].concat()),
        (b"ustar ", b" \0") => {
            // Go takes times that it cannot read for a prefix.
            for time in [&block[345..357], &block[357..369]].into_iter().filter(|time| time[0] != 0) {
                number(time)?;
            }
            Ok(name.to_vec())
        }
        (b"\0\0\0\0\0\0", b"\0\0") => Ok(name.to_vec()),
        _ => Err(ArchiveError::Ambiguous("a header in an unknown format")),
    }
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}
