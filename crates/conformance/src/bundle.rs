//! Packs bundles of format `manifests/v1`.

use std::io;

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

/// Returns a gzip-compressed tar archive of the files.
pub fn pack(files: &[(&str, String)]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, content) in files {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn files_are_packed() {
        let packed =
            pack(&[("a.yaml", "kind: A\n".to_owned()), ("b/c.yaml", "kind: C\n".to_owned())]).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(&packed[..]));
        let read = archive.entries().unwrap().map(|entry| {
            let (mut entry, mut content) = (entry.unwrap(), String::new());
            entry.read_to_string(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        let expected =
            [("a.yaml", "kind: A\n"), ("b/c.yaml", "kind: C\n")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(read.collect::<Vec<_>>(), expected);
    }
}
