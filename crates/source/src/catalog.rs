//! All that a source offers, kept as one file in the store: a line per chart in the order of their names, and a last line
//! about the whole. A line has what is searched, a tab, and the versions, which a search need not read. Whoever searches
//! reads the file; nothing of it stays in memory.

mod read;
mod registry;
mod write;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
};

use chandler_core::catalog::{Entry, Rank, Selection, SearchQuery};
use serde::{Deserialize, Serialize};

use crate::{Access, section::Section};

/// Written with the file; a file of another format is not used.
const FORMAT: u32 = 1;
/// The last line is not longer.
const LONGEST_LAST_LINE: u64 = 16 << 10;

/// What a catalog is made of.
#[derive(Clone, Copy, Debug)]
pub struct CatalogRequest<'a> {
    /// Names the catalog in the store, for as long as it exists.
    pub key: &'a str,
    pub url: &'a str,
    pub access: &'a Access,
    pub selection: &'a Selection,
}

/// A catalog in the store. It can be read as long as this lives, whatever becomes of the file.
#[derive(Debug)]
pub struct Catalog {
    file: File,
    charts_end: u64,
    about: About,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    format: u32,
    source: String,
    selection: String,
    digest: String,
    /// What to show the source, so that it need not send the same again.
    validators: BTreeMap<String, String>,
    packages: u32,
}

/// A chart as its newest version tells.
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
        let start = length.saturating_sub(LONGEST_LAST_LINE);
        let mut tail = Vec::new();
        Section::new(&file, start, length).read_to_end(&mut tail)?;
        let line = tail.strip_suffix(b"\n").unwrap_or(&tail);
        let line = line.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let about: About = serde_json::from_slice(line)?;
        if about.format != FORMAT {
            return Err(io::Error::other("it is of another format"));
        }
        let charts_end = length - line.len() as u64 - 1;
        Ok(Self { file, charts_end, about })
    }

    pub fn packages(&self) -> u32 {
        self.about.packages
    }

    /// `sha256:…` of what the source offered.
    pub fn digest(&self) -> &str {
        &self.about.digest
    }

    /// The charts that have all words of `text`, those that fit best first. Without a word: all.
    pub fn search(&self, text: &str) -> io::Result<Vec<ChartSummary>> {
        let words = SearchQuery::new(text);
        let mut found: Vec<(Rank, ChartSummary)> = Vec::new();
        self.each_line(|line| {
            let chart: ChartSummary = serde_json::from_slice(parts(line)?.0)?;
            if let Some(rank) = words.rank(&chart.name, &chart.description, &chart.keywords) {
                found.push((rank, chart));
            }
            Ok(true)
        })?;
        // They are in the order of their names, and equal ranks stay in it.
        found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        Ok(found.into_iter().map(|(_, chart)| chart).collect())
    }

    /// One chart, if the catalog has it.
    pub fn chart(&self, name: &str) -> io::Result<Option<Chart>> {
        let mut found = None;
        self.each_line(|line| {
            let (summary, versions) = parts(line)?;
            let summary: ChartSummary = serde_json::from_slice(summary)?;
            if summary.name == name {
                found = Some(Chart { summary, versions: serde_json::from_slice(versions)? });
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// Until `take` has seen enough.
    fn each_line(&self, mut take: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
        let mut lines = BufReader::with_capacity(64 << 10, Section::new(&self.file, 0, self.charts_end));
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            if !take(&line)? {
                break;
            }
            line.clear();
        }
        Ok(())
    }
}

/// In JSON, a tab is never anything but white space.
fn parts(line: &[u8]) -> io::Result<(&[u8], &[u8])> {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let (summary, versions) =
        tab.and_then(|tab| line.split_at_checked(tab)).ok_or(io::ErrorKind::InvalidData)?;
    Ok((summary, versions))
}
