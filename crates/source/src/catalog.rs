//! The charts of a source, stored as one file: a line per chart, sorted by name, and a last line with metadata of the catalog. A
//! line consists of the searched fields, a tab, and the versions, which a search does not parse. A search reads the file;
//! nothing of it is kept in memory.

mod read;
mod registry;
mod write;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
};

use chandler_core::catalog::{Entry, Rank, SearchQuery, Selection};
use serde::{Deserialize, Serialize};

use crate::{Access, file_range::FileRange};

/// Version of the file format. Files with another version are ignored.
const FORMAT: u32 = 1;
/// Maximum length of the last line.
const MAX_METADATA_BYTES: u64 = 16 << 10;

/// Where the charts of a catalog are, and which charts of it to include.
#[derive(Clone, Copy, Debug)]
pub struct CatalogRequest<'a> {
    /// Identifies the catalog in the store.
    pub key: &'a str,
    /// The URL, or what identifies the folder of a Source.
    pub url: &'a str,
    pub access: &'a Access,
    pub selection: &'a Selection,
}

/// A catalog in the store. It stays readable if the file is replaced or removed.
#[derive(Debug)]
pub struct Catalog {
    file: File,
    charts_end: u64,
    metadata: CatalogMetadata,
}

/// The last line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CatalogMetadata {
    format: u32,
    source: String,
    selection: String,
    digest: String,
    /// Headers of a conditional request.
    validators: BTreeMap<String, String>,
    packages: u32,
}

/// A chart, with the description of its newest version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChartSummary {
    pub name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    pub newest: Entry,
}

/// A chart with all its versions, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chart {
    pub summary: ChartSummary,
    pub versions: Vec<Entry>,
}

impl Catalog {
    fn open(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let start = length.saturating_sub(MAX_METADATA_BYTES);
        let mut tail = Vec::new();
        FileRange::new(&file, start, length).read_to_end(&mut tail)?;
        let line = tail.strip_suffix(b"\n").unwrap_or(&tail);
        let line = line.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let metadata: CatalogMetadata = serde_json::from_slice(line)?;
        if metadata.format != FORMAT {
            return Err(io::Error::other("unsupported format version"));
        }
        let charts_end = length - line.len() as u64 - 1;
        Ok(Self { file, charts_end, metadata })
    }

    pub fn packages(&self) -> u32 {
        self.metadata.packages
    }

    /// Returns the digest of the content of the source, as `sha256:…`.
    pub fn digest(&self) -> &str {
        &self.metadata.digest
    }

    /// Returns the charts that match all words of `text`, best match first. Returns all charts if `text` is empty.
    pub fn search(&self, text: &str) -> io::Result<Vec<ChartSummary>> {
        let query = SearchQuery::new(text);
        let mut found: Vec<(Rank, ChartSummary)> = Vec::new();
        self.for_each_line(|line| {
            let chart: ChartSummary = serde_json::from_slice(split_line(line)?.0)?;
            if let Some(rank) = query.rank(&chart.name, &chart.description, &chart.keywords) {
                found.push((rank, chart));
            }
            Ok(true)
        })?;
        // The sort is stable, so charts of the same rank stay sorted by name.
        found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        Ok(found.into_iter().map(|(_, chart)| chart).collect())
    }

    /// Returns a chart with all its versions.
    pub fn chart(&self, name: &str) -> io::Result<Option<Chart>> {
        let mut found = None;
        self.for_each_line(|line| {
            let (summary, versions) = split_line(line)?;
            let summary: ChartSummary = serde_json::from_slice(summary)?;
            if summary.name == name {
                found = Some(Chart { summary, versions: serde_json::from_slice(versions)? });
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// Calls `visit` with each line until it returns `false`.
    fn for_each_line(&self, mut visit: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
        let mut lines = BufReader::with_capacity(64 << 10, FileRange::new(&self.file, 0, self.charts_end));
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            if !visit(&line)? {
                break;
            }
            line.clear();
        }
        Ok(())
    }
}

/// Splits a line at the tab, which JSON never contains except as whitespace.
fn split_line(line: &[u8]) -> io::Result<(&[u8], &[u8])> {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let (summary, versions) =
        tab.and_then(|tab| line.split_at_checked(tab)).ok_or(io::ErrorKind::InvalidData)?;
    Ok((summary, versions))
}
