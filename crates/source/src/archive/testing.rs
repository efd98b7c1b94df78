//! Archives for tests.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, EntryType, Header};

/// Returns the archive of a chart with this name.
pub(crate) fn chart(name: &str) -> Vec<u8> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    pack(&[(&format!("{name}/Chart.yaml"), EntryType::Regular, metadata.as_bytes())])
}

/// Returns an archive with these entries. Names are not validated.
pub(crate) fn pack(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    gzip(&builder.into_inner().unwrap())
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// An entry of an archive whose header can be wrong in every way. Its checksum is right.
#[derive(Clone, Debug)]
pub(crate) struct TarBlock {
    pub kind: u8,
    pub name: Vec<u8>,
    pub content: Vec<u8>,
    /// Magic number and version.
    pub magic: [u8; 8],
    /// The field with the size, if it is not that of the content.
    pub size: Option<[u8; 12]>,
    pub mode: [u8; 8],
    pub prefix: Vec<u8>,
    /// The last bytes of the header.
    pub trailer: [u8; 4],
}

impl TarBlock {
    pub fn new(kind: u8, name: &[u8], content: &[u8]) -> Self {
        Self {
            kind,
            name: name.to_vec(),
            content: content.to_vec(),
            magic: *b"ustar\x0000",
            size: None,
            mode: *b"0000644\0",
            prefix: Vec::new(),
            trailer: [0; 4],
        }
    }

    /// Returns header, content and padding.
    pub fn bytes(&self) -> Vec<u8> {
        let mut block = [0; 512];
        block[..self.name.len()].copy_from_slice(&self.name);
        block[100..108].copy_from_slice(&self.mode);
        let size = format!("{:011o}\0", self.content.len());
        block[124..136].copy_from_slice(self.size.as_ref().map_or(size.as_bytes(), |size| &size[..]));
        block[156] = self.kind;
        block[257..265].copy_from_slice(&self.magic);
        block[345..345 + self.prefix.len()].copy_from_slice(&self.prefix);
        block[508..].copy_from_slice(&self.trailer);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let padding = self.content.len().next_multiple_of(512) - self.content.len();
        [&block[..], &self.content, &vec![0; padding]].concat()
    }
}
