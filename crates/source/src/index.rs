//! The index of a Helm repository. It may have many megabytes, so only the position of each chart is kept in memory. The
//! versions of the charts are written to a temporary file and read on demand.

mod resolve;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _},
};

use chandler_core::catalog::ANNOTATIONS;
use serde::{
    Deserialize, Serialize,
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
        Visitor,
    },
};
use serde_saphyr::{Budget, options};

pub(crate) use self::resolve::FoundVersion;
use self::resolve::ResolvedVersions;
use crate::file_range::FileRange;

const MAX_CHARTS: usize = 50_000;
const MAX_VERSIONS_PER_CHART: usize = 50_000;
const MAX_NAME_BYTES: usize = 256;
const MAX_URL_BYTES: usize = 4096;
/// YAML nodes of the whole index. An entry of a real chart has a few dozen.
const MAX_NODES: usize = 10_000_000;
const MAX_DESCRIPTION_BYTES: usize = 512;
const MAX_KEYWORD_BYTES: usize = 64;
const MAX_KEYWORDS: usize = 32;
const MAX_ANNOTATION_BYTES: usize = 4096;
const MAX_ANNOTATIONS: usize = 16;
/// Limit of what is kept of the versions of one chart, in bytes. They are read to resolve a version.
const MAX_CHART_BYTES: u64 = 32 << 20;
/// Limit of the memory of one index, in bytes.
const MAX_MEMORY_BYTES: u64 = 8 << 20;
/// Memory of a chart, in addition to its name.
const CHART_BYTES: u64 = 64;

/// The fields of a version that are needed to download its archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ArchiveEntry {
    pub version: String,
    pub digest: Option<String>,
    pub urls: Vec<String>,
}

/// A version of a chart, with the fields of its index entry that Chandler uses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ChartVersion {
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub urls: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Annotations with the prefix `chandler.dev/`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
}

impl ChartVersion {
    /// Truncates long texts and lists that are only displayed or searched.
    pub fn truncated(mut self) -> Self {
        self.urls.truncate(1);
        for (text, max_bytes) in [
            (&mut self.app_version, MAX_NAME_BYTES),
            (&mut self.kube_version, MAX_NAME_BYTES),
            (&mut self.description, MAX_DESCRIPTION_BYTES),
        ] {
            if let Some(text) = text {
                text.truncate(text.floor_char_boundary(max_bytes));
            }
        }
        if let Some(keywords) = &mut self.keywords {
            keywords.retain(|keyword| keyword.as_ref().is_some_and(|text| text.len() <= MAX_KEYWORD_BYTES));
            keywords.truncate(MAX_KEYWORDS);
        }
        self
    }

    /// Returns whether the version can be resolved and downloaded. Other versions are skipped, as in Helm.
    fn is_usable(&self) -> bool {
        let url = self.urls.first().map_or(0, String::len);
        (1..=MAX_NAME_BYTES).contains(&self.version.len())
            && (1..=MAX_URL_BYTES).contains(&url)
            && self.digest.as_ref().is_none_or(|digest| digest.len() <= MAX_NAME_BYTES)
            && self.has_valid_annotations()
    }

    /// Returns whether the annotations are within the limits. They are never truncated, because that could change their meaning.
    pub fn has_valid_annotations(&self) -> bool {
        self.annotations.len() <= MAX_ANNOTATIONS
            && self
                .annotations
                .iter()
                .all(|(key, text)| key.len() <= MAX_NAME_BYTES && text.len() <= MAX_ANNOTATION_BYTES)
    }
}

/// The position of the versions of a chart in the file.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    length: u64,
}

/// An index is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("{0}")]
    Yaml(String),
    #[error("{0}")]
    TempFile(io::Error),
    #[error("it has no `entries`, so it is not an index of charts")]
    NoEntries,
    #[error("the digest of version {version} is not a sha256")]
    Digest { version: String },
}

/// A parsed index.
pub(crate) struct Index {
    charts: HashMap<Box<str>, Span>,
    /// Memory of the names of charts, in bytes.
    charts_bytes: u64,
    file: File,
    /// Versions that were resolved before.
    resolved: ResolvedVersions,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("charts", &self.charts.len()).finish_non_exhaustive()
    }
}

impl Index {
    /// Parses YAML, and writes the versions to `file`.
    pub fn read(yaml: impl Read, file: File) -> Result<Self, IndexError> {
        let mut writer =
            VersionWriter { charts: None, charts_bytes: 0, file: BufWriter::new(file), position: 0 };
        serde_saphyr::with_deserializer_from_reader_with_options(yaml, limits(), |deserializer| {
            IndexVisitor(&mut writer).deserialize(deserializer)
        })
        .map_err(|error| IndexError::Yaml(first_line(&error.to_string())))?;
        let file = writer.file.into_inner().map_err(|error| IndexError::TempFile(error.into_error()))?;
        let charts = writer.charts.ok_or(IndexError::NoEntries)?;
        Ok(Self { charts, charts_bytes: writer.charts_bytes, file, resolved: ResolvedVersions::default() })
    }

    /// Returns the memory that the index may need, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.charts_bytes + resolve::MAX_BYTES
    }

    /// Returns the size of the file.
    pub fn file_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns the names of all charts, sorted.
    pub fn charts(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.charts.keys().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names
    }

    /// Returns an iterator over the versions of a chart. Together they may be large.
    pub fn chart_versions(&self, chart: &str) -> impl Iterator<Item = io::Result<ChartVersion>> {
        self.charts.get(chart).into_iter().flat_map(|span| self.lines(*span))
    }

    fn lines<T: DeserializeOwned>(&self, span: Span) -> impl Iterator<Item = io::Result<T>> {
        let range = FileRange::new(&self.file, span.start, span.start + span.length);
        BufReader::new(range).split(b'\n').map(|line| Ok(serde_json::from_slice(&line?)?))
    }
}

/// Returns the options of the YAML parser. Anchors and aliases are not allowed, because they can expand to large documents.
fn limits() -> serde_saphyr::Options {
    let mut budget = Budget::default();
    // The download limits the size of the index.
    budget.max_reader_input_bytes = None;
    budget.max_total_scalar_bytes = usize::MAX;
    budget.max_events = 2 * MAX_NODES;
    budget.max_nodes = MAX_NODES;
    budget.max_aliases = 0;
    budget.max_anchors = 0;
    budget.max_merge_keys = 0;
    budget.max_documents = 1;
    budget.max_inclusion_depth = 0;
    budget.max_depth = 32;
    options! { budget: Some(budget), with_snippet: false }
}

/// Writes the versions to the file while the index is parsed.
struct VersionWriter {
    /// `None` until the field `entries` is found.
    charts: Option<HashMap<Box<str>, Span>>,
    charts_bytes: u64,
    file: BufWriter<File>,
    position: u64,
}

impl VersionWriter {
    fn write(&mut self, version: &ChartVersion) -> io::Result<()> {
        let mut line = serde_json::to_vec(version)?;
        line.push(b'\n');
        self.position += line.len() as u64;
        self.file.write_all(&line)
    }
}

/// Visits the whole index.
struct IndexVisitor<'a>(&'a mut VersionWriter);

/// Visits the charts by name.
struct ChartsVisitor<'a>(&'a mut VersionWriter);

/// Visits the versions of one chart.
struct VersionsVisitor<'a>(&'a mut VersionWriter);

impl<'de> DeserializeSeed<'de> for IndexVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index of charts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "entries" {
                self.0.charts.get_or_insert_default();
                map.next_value_seed(ChartsVisitor(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ChartsVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ChartsVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("charts by name")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let start = self.0.position;
            map.next_value_seed(VersionsVisitor(self.0))?;
            let length = self.0.position - start;
            if name.len() > MAX_NAME_BYTES {
                continue;
            }
            self.0.charts_bytes += name.len() as u64 + CHART_BYTES;
            if self.0.charts_bytes > MAX_MEMORY_BYTES {
                return Err(A::Error::custom("the names of its charts are too long"));
            }
            let charts = self.0.charts.get_or_insert_default();
            if charts.len() >= MAX_CHARTS {
                return Err(A::Error::custom(format!("it has more than {MAX_CHARTS} charts")));
            }
            charts.insert(name.into(), Span { start, length });
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for VersionsVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for VersionsVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of versions")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut versions: A) -> Result<(), A::Error> {
        let (mut count, start) = (0, self.0.position);
        while let Some(version) = versions.next_element::<Option<ChartVersion>>()? {
            count += 1;
            if count > MAX_VERSIONS_PER_CHART {
                return Err(A::Error::custom(format!(
                    "a chart has more than {MAX_VERSIONS_PER_CHART} versions"
                )));
            }
            if let Some(version) = version.filter(ChartVersion::is_usable) {
                self.0.write(&version.truncated()).map_err(A::Error::custom)?;
            }
            if self.0.position - start > MAX_CHART_BYTES {
                return Err(A::Error::custom(format!(
                    "the versions of a chart have more than {MAX_CHART_BYTES} bytes"
                )));
            }
        }
        Ok(())
    }
}

/// Deserializes the annotations with the prefix `chandler.dev/`. All others are ignored, and may have values of any type.
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_any(AnnotationsVisitor)
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations by name")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut annotations = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if !key.starts_with(ANNOTATIONS) {
                map.next_value::<IgnoredAny>()?;
            } else if let Some(text) = map.next_value::<Option<String>>()? {
                annotations.insert(key, text);
            }
        }
        Ok(annotations)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

#[cfg(test)]
mod tests;
