//! Writes the files of an image as one layer: a tar archive with sorted entries and no times.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::Path,
};

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use super::contents::Entry;
use crate::sha256::HashingWriter;

/// A layer that has been written.
pub struct Layer {
    pub media_type: &'static str,
    /// SHA-256 of the file, in hexadecimal digits.
    pub digest: String,
    pub size: u64,
    /// SHA-256 of the archive before compression.
    pub diff_id: String,
}

/// Writes a layer to `path`.
pub fn write(entries: &BTreeMap<String, Entry>, compress: bool, path: &Path) -> Result<Layer> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let file = HashingWriter::new(BufWriter::with_capacity(1 << 20, file));
    let failed = || format!("writing {}", path.display());
    if !compress {
        let (mut file, diff_id, size) = archive(entries, file)?.finish();
        file.flush().with_context(failed)?;
        let media_type = "application/vnd.oci.image.layer.v1.tar";
        return Ok(Layer { media_type, digest: diff_id.clone(), size, diff_id });
    }
    // The header has neither a name nor a time, and no operating system.
    let gzip = GzBuilder::new().mtime(0).operating_system(255).write(file, Compression::default());
    let (gzip, diff_id, _) = archive(entries, HashingWriter::new(gzip))?.finish();
    let (mut file, digest, size) = gzip.finish().with_context(failed)?.finish();
    file.flush().with_context(failed)?;
    Ok(Layer { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", digest, size, diff_id })
}

/// Writes the archive, and returns the writer.
fn archive<W: Write>(entries: &BTreeMap<String, Entry>, writer: W) -> Result<W> {
    let mut builder = tar::Builder::new(writer);
    for (name, entry) in entries {
        append(&mut builder, name, entry).with_context(|| format!("adding /{name}"))?;
    }
    Ok(builder.into_inner()?)
}

fn append(builder: &mut tar::Builder<impl Write>, name: &str, entry: &Entry) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_mtime(0);
    match entry {
        Entry::Folder { owner } => {
            header.set_entry_type(EntryType::Directory);
            set_owner(&mut header, *owner);
            header.set_mode(0o755);
            header.set_size(0);
            builder.append_data(&mut header, format!("{name}/"), io::empty())?;
        }
        Entry::File { source, mode } => {
            let file = open(source)?;
            header.set_entry_type(EntryType::Regular);
            set_owner(&mut header, 0);
            header.set_mode(*mode);
            header.set_size(file.get_ref().metadata()?.len());
            builder.append_data(&mut header, name, file)?;
        }
    }
    Ok(())
}

fn set_owner(header: &mut Header, owner: u32) {
    header.set_uid(owner.into());
    header.set_gid(owner.into());
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}
