//! Packages charts reproducibly and reads the metadata of packaged charts.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// An error while packaging or reading a chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the chart {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the Chart.yaml of {} is not YAML: {source}", path.display())]
    Parse { path: PathBuf, source: Box<serde_saphyr::Error> },
    #[error("the Chart.yaml of {} has no {field}", path.display())]
    Incomplete { path: PathBuf, field: &'static str },
    #[error("{} is not a packaged chart: it has no Chart.yaml", path.display())]
    NoChart { path: PathBuf },
}

/// A packaged chart (`.tgz`).
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub bytes: Vec<u8>,
}

impl Package {
    /// Packages a chart's folder, with another version if one is given.
    pub fn pack(folder: &Path, version: Option<&str>) -> Result<Self, Error> {
        let read = |source| Error::Read { path: folder.to_owned(), source };
        let text = fs::read_to_string(folder.join("Chart.yaml")).map_err(read)?;
        let text = version.map_or_else(|| text.clone(), |version| with_version(&text, version));
        let metadata = parse(&text, folder)?;
        let name = field(&metadata, "name", folder)?;
        let mut files = Vec::new();
        list(folder, &mut files).map_err(read)?;
        files.sort();

        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for path in files {
            let relative = path.strip_prefix(folder).unwrap_or(&path);
            let content = if relative == Path::new("Chart.yaml") {
                text.clone().into_bytes()
            } else {
                fs::read(&path).map_err(read)?
            };
            append(&mut archive, &Path::new(&name).join(relative), &content).map_err(read)?;
        }
        let bytes = archive.into_inner().and_then(GzEncoder::finish).map_err(read)?;
        Ok(Self { version: field(&metadata, "version", folder)?, name, bytes })
    }

    pub fn file_name(&self) -> String {
        format!("{}-{}.tgz", self.name, self.version)
    }
}

/// Returns the `Chart.yaml` of a packaged chart.
pub(crate) fn metadata(path: &Path, bytes: &[u8]) -> Result<Value, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    for entry in archive.entries().map_err(read)? {
        let mut entry = entry.map_err(read)?;
        let entry_path = entry.path().map_err(read)?.into_owned();
        if entry_path.components().count() == 2 && entry_path.ends_with("Chart.yaml") {
            let mut text = String::new();
            entry.read_to_string(&mut text).map_err(read)?;
            return parse(&text, path);
        }
    }
    Err(Error::NoChart { path: path.to_owned() })
}

fn parse(text: &str, path: &Path) -> Result<Value, Error> {
    serde_saphyr::from_str(text)
        .map_err(|source| Error::Parse { path: path.to_owned(), source: Box::new(source) })
}

fn field(metadata: &Value, field: &'static str, path: &Path) -> Result<String, Error> {
    metadata[field]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::Incomplete { path: path.to_owned(), field })
}

fn with_version(text: &str, version: &str) -> String {
    text.lines()
        .map(
            |line| {
                if line.starts_with("version:") {
                    format!("version: {version}\n")
                } else {
                    format!("{line}\n")
                }
            },
        )
        .collect()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn append(archive: &mut tar::Builder<impl io::Write>, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, path, content)
}

/// Writes the files of a chart, given as names and contents, into its folder.
pub fn write(folder: &Path, files: &[(&str, &str)]) -> io::Result<PathBuf> {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, text)?;
    }
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("templates")).unwrap();
        fs::write(folder.path().join("Chart.yaml"), "apiVersion: v2\nname: web\nversion: 1.0.0\n").unwrap();
        fs::write(folder.path().join("templates/x.yaml"), "kind: ConfigMap\n").unwrap();
        folder
    }

    #[test]
    fn packaging_is_reproducible() {
        let folder = chart();
        let first = Package::pack(folder.path(), None).unwrap();
        let second = Package::pack(folder.path(), None).unwrap();
        assert_eq!(first.bytes, second.bytes);
        assert_eq!(first.file_name(), "web-1.0.0.tgz");
    }

    #[test]
    fn a_version_can_be_replaced() {
        let folder = chart();
        let package = Package::pack(folder.path(), Some("2.0.0")).unwrap();
        let metadata = metadata(Path::new("x"), &package.bytes).unwrap();
        assert_eq!(metadata["version"], "2.0.0");
        assert_eq!(package.version, "2.0.0");
    }
}
