//! SHA-256 of files, in hexadecimal digits.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Passes bytes on, and computes their digest.
pub struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> HashingWriter<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    /// Returns the writer, and the digest and the number of all bytes written.
    pub fn finish(self) -> (W, String, u64) {
        (self.inner, hexadecimal(&self.hash.finalize()), self.bytes)
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns the digest of `bytes`.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns the digest of a file.
pub fn file_digest(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut hash = HashingWriter::new(io::sink());
    io::copy(&mut file, &mut hash).with_context(|| format!("reading {}", path.display()))?;
    Ok(hash.finish().1)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;

    #[test]
    fn digests_are_hexadecimal() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
        let mut writer = HashingWriter::new(Vec::new());
        writer.write_all(b"abc").unwrap();
        let (written, digest, bytes) = writer.finish();
        assert_eq!((digest, bytes), (super::digest(&written), 3));
    }
}
