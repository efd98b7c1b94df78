//! Archives with headers that no program would write.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};

const BLOCK: usize = 512;

/// Returns a header of a tar archive with a valid checksum.
pub fn header(kind: u8, name: &str, size: usize) -> [u8; BLOCK] {
    header_with_size(kind, name, format!("{size:011o}\0").as_bytes())
}

/// Returns a header whose field with the size contains these bytes.
pub fn header_with_size(kind: u8, name: &str, size: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    copy(&mut block[..100], name.as_bytes());
    copy(&mut block[100..108], b"0000644\0");
    copy(&mut block[124..136], size);
    block[156] = kind;
    copy(&mut block[257..265], b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    copy(&mut block[148..156], format!("{sum:06o}\0 ").as_bytes());
    block
}

fn copy(field: &mut [u8], bytes: &[u8]) {
    field.iter_mut().zip(bytes).for_each(|(field, byte)| *field = *byte);
}

/// Returns an entry with its content.
pub fn entry(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
    let padding = content.len().next_multiple_of(BLOCK) - content.len();
    [&header(kind, name, content.len())[..], content, &vec![0; padding]].concat()
}

/// Returns a file.
pub fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(b'0', name, content)
}

/// Returns the file `Chart.yaml` of a chart.
pub fn chart_yaml() -> Vec<u8> {
    file("web/Chart.yaml", b"apiVersion: v2\nname: web\nversion: 1.0.0\n")
}

/// Compresses entries, and ends the archive.
pub fn pack(entries: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    pack_repeated(&entries.concat(), 1)
}

/// Like [`pack`], without compression: for content that cannot be compressed.
pub fn pack_uncompressed(entries: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    for entry in entries {
        encoder.write_all(entry)?;
    }
    encoder.write_all(&[0; 2 * BLOCK])?;
    encoder.finish()
}

/// Compresses entries that are repeated, without keeping them in memory.
pub fn pack_repeated(entries: &[u8], count: usize) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..count {
        encoder.write_all(entries)?;
    }
    encoder.write_all(&[0; 2 * BLOCK])?;
    encoder.finish()
}

/// Returns an archive with one large file of zeros.
pub fn zeros(mebibytes: usize) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&header(b'0', "web/zeros", mebibytes << 20))?;
    for _ in 0..mebibytes {
        encoder.write_all(&vec![0; 1 << 20])?;
    }
    encoder.write_all(&[0; 2 * BLOCK])?;
    encoder.finish()
}
