//! A repository's index. Of what may be many megabytes, only where each chart is stays in memory; the versions of a
//! chart are kept on disk until someone asks for that chart.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _},
    sync::{Arc, Mutex, PoisonError},
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

use crate::section::Section;

const MOST_CHARTS: usize = 50_000;
const MOST_VERSIONS_OF_A_CHART: usize = 50_000;
const LONGEST_NAME: usize = 256;
const LONGEST_URL: usize = 4096;
/// An entry of a published chart has a few dozen of these.
const MOST_NODES: usize = 10_000_000;
const LONGEST_DESCRIPTION: usize = 512;
const LONGEST_KEYWORD: usize = 64;
const MOST_KEYWORDS: usize = 32;
const LONGEST_ANNOTATION: usize = 4096;
const MOST_ANNOTATIONS: usize = 16;

/// What it takes to fetch one version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    pub version: String,
    pub digest: Option<String>,
    pub urls: Vec<String>,
}

/// One version of a chart, and what is told about it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Published {
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
    /// Those that are meant for Chandler.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
}

impl Published {
    /// Without what only costs room.
    pub fn shortened(mut self) -> Self {
        self.urls.truncate(1);
        for (text, longest) in [
            (&mut self.app_version, LONGEST_NAME),
            (&mut self.kube_version, LONGEST_NAME),
            (&mut self.description, LONGEST_DESCRIPTION),
        ] {
            if let Some(text) = text {
                text.truncate(text.floor_char_boundary(longest));
            }
        }
        if let Some(keywords) = &mut self.keywords {
            keywords.retain(|keyword| keyword.as_ref().is_some_and(|word| word.len() <= LONGEST_KEYWORD));
            keywords.truncate(MOST_KEYWORDS);
        }
        self
    }

    /// What cannot be chosen or fetched is left out, as Helm does.
    fn is_usable(&self) -> bool {
        let url = self.urls.first().map_or(0, String::len);
        (1..=LONGEST_NAME).contains(&self.version.len())
            && (1..=LONGEST_URL).contains(&url)
            && self.digest.as_ref().is_none_or(|digest| digest.len() <= LONGEST_NAME)
            && self.is_concise()
    }

    /// What charts say to Chandler is not cut: half of it might mean something else.
    pub fn is_concise(&self) -> bool {
        self.annotations.len() <= MOST_ANNOTATIONS
            && self
                .annotations
                .iter()
                .all(|(key, text)| key.len() <= LONGEST_NAME && text.len() <= LONGEST_ANNOTATION)
    }
}

/// Where the versions of a chart are in the file.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    length: u64,
}

/// Why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("{0}")]
    Yaml(String),
    #[error("{0}")]
    Scratch(io::Error),
    #[error("it has no `entries`, so it is not an index of charts")]
    NoEntries,
    #[error("the digest of version {version} is not a sha256")]
    Digest { version: String },
}

/// A read index.
pub(crate) struct Index {
    charts: HashMap<Box<str>, Span>,
    file: File,
    used: Mutex<HashMap<Box<str>, Arc<[Entry]>>>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("charts", &self.charts.len()).finish_non_exhaustive()
    }
}

impl Index {
    /// Reads YAML, keeping what is needed of it in `file`.
    pub fn read(yaml: impl Read, file: File) -> Result<Self, IndexError> {
        let mut sink = Sink { charts: None, file: BufWriter::new(file), position: 0 };
        serde_saphyr::with_deserializer_from_reader_with_options(yaml, limits(), |deserializer| {
            Document(&mut sink).deserialize(deserializer)
        })
        .map_err(|error| IndexError::Yaml(first_line(&error.to_string())))?;
        let file = sink.file.into_inner().map_err(|error| IndexError::Scratch(error.into_error()))?;
        let charts = sink.charts.ok_or(IndexError::NoEntries)?;
        Ok(Self { charts, file, used: Mutex::default() })
    }

    /// The versions of a chart; None: there is no such chart.
    pub fn versions(&self, chart: &str) -> io::Result<Option<Arc<[Entry]>>> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = used.get(chart) {
            return Ok(Some(known.clone()));
        }
        let Some(span) = self.charts.get(chart) else { return Ok(None) };
        let versions: Arc<[Entry]> = self.lines(*span).collect::<io::Result<_>>()?;
        used.insert(chart.into(), versions.clone());
        Ok(Some(versions))
    }

    /// All charts, in order.
    pub fn charts(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.charts.keys().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names
    }

    /// What is told about the versions of a chart, one after the other: together they may be large.
    pub fn published(&self, chart: &str) -> impl Iterator<Item = io::Result<Published>> {
        self.charts.get(chart).into_iter().flat_map(|span| self.lines(*span))
    }

    fn lines<T: DeserializeOwned>(&self, span: Span) -> impl Iterator<Item = io::Result<T>> {
        let section = Section::new(&self.file, span.start, span.start + span.length);
        BufReader::new(section).split(b'\n').map(|line| Ok(serde_json::from_slice(&line?)?))
    }
}

/// No index needs anchors; without them nothing in it can be larger than it looks.
fn limits() -> serde_saphyr::Options {
    let mut budget = Budget::default();
    // How large an index may be is a limit of the download.
    budget.max_reader_input_bytes = None;
    budget.max_total_scalar_bytes = usize::MAX;
    budget.max_events = 2 * MOST_NODES;
    budget.max_nodes = MOST_NODES;
    budget.max_aliases = 0;
    budget.max_anchors = 0;
    budget.max_merge_keys = 0;
    budget.max_documents = 1;
    budget.max_inclusion_depth = 0;
    budget.max_depth = 32;
    options! { budget: Some(budget), with_snippet: false }
}

struct Sink {
    /// None: nothing was said about charts.
    charts: Option<HashMap<Box<str>, Span>>,
    file: BufWriter<File>,
    position: u64,
}

impl Sink {
    fn write(&mut self, published: &Published) -> io::Result<()> {
        let mut line = serde_json::to_vec(published)?;
        line.push(b'\n');
        self.position += line.len() as u64;
        self.file.write_all(&line)
    }
}

/// The whole index.
struct Document<'a>(&'a mut Sink);

/// Charts by name.
struct Charts<'a>(&'a mut Sink);

/// The versions of one chart.
struct Versions<'a>(&'a mut Sink);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index of charts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "entries" {
                self.0.charts.get_or_insert_default();
                map.next_value_seed(Charts(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Charts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Charts<'_> {
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
            map.next_value_seed(Versions(self.0))?;
            let length = self.0.position - start;
            if name.len() > LONGEST_NAME {
                continue;
            }
            let charts = self.0.charts.get_or_insert_default();
            if charts.len() >= MOST_CHARTS {
                return Err(A::Error::custom(format!("it has more than {MOST_CHARTS} charts")));
            }
            charts.insert(name.into(), Span { start, length });
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Versions<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Versions<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of versions")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut versions: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(published) = versions.next_element::<Option<Published>>()? {
            count += 1;
            if count > MOST_VERSIONS_OF_A_CHART {
                return Err(A::Error::custom(format!(
                    "a chart has more than {MOST_VERSIONS_OF_A_CHART} versions"
                )));
            }
            if let Some(published) = published.filter(Published::is_usable) {
                self.0.write(&published.shortened()).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// The annotations that are meant for Chandler; whatever others hold, it is of no concern.
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_any(Annotations)
}

struct Annotations;

impl<'de> Visitor<'de> for Annotations {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations by name")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kept = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if !key.starts_with(ANNOTATIONS) {
                map.next_value::<IgnoredAny>()?;
            } else if let Some(text) = map.next_value::<Option<String>>()? {
                kept.insert(key, text);
            }
        }
        Ok(kept)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

#[cfg(test)]
mod tests;
