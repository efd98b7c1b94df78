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
use crate::sha256::{HashingWriter, file_digest};

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
    let plain = path.with_extension("plain");
    let (diff_id, plain_size) = archive(entries, &plain)?;
    if !compress {
        std::fs::rename(&plain, path).with_context(|| format!("renaming {}", plain.display()))?;
        let media_type = "application/vnd.oci.image.layer.v1.tar";
        return Ok(Layer { media_type, digest: diff_id.clone(), size: plain_size, diff_id });
    }
    let mut from = open(&plain)?;
    // The header has neither a name nor a time, and no operating system.
    let mut gzip =
        GzBuilder::new().mtime(0).operating_system(255).write(create(path)?, Compression::default());
    io::copy(&mut from, &mut gzip).with_context(|| format!("compressing {}", plain.display()))?;
    gzip.finish()?.flush().with_context(|| format!("writing {}", path.display()))?;
    std::fs::remove_file(&plain).with_context(|| format!("removing {}", plain.display()))?;
    let (digest, size) = file_digest(path)?;
    Ok(Layer { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", digest, size, diff_id })
}

/// Writes the archive, and returns its digest and size.
fn archive(entries: &BTreeMap<String, Entry>, path: &Path) -> Result<(String, u64)> {
    let mut builder = tar::Builder::new(HashingWriter::new(create(path)?));
    for (name, entry) in entries {
        append(&mut builder, name, entry).with_context(|| format!("adding /{name}"))?;
    }
    let mut writer = builder.into_inner()?;
    writer.flush().with_context(|| format!("writing {}", path.display()))?;
    Ok(writer.finish())
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

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}
