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
