//! The charts in a folder of a Source, which a catalog offers.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde_json::Value;

use super::{ANNOTATIONS, Entry, Selection};
use crate::{
    failure::{Category, Failure},
    parameters::{Parameters, from_package_yaml},
    resolution::parse_version,
};

/// The file that makes a folder a chart.
const CHART: &str = "Chart.yaml";
/// As for registries.
const MAX_CHARTS: usize = 1000;
const MAX_NAME_BYTES: usize = 253;
const MAX_DESCRIPTION_BYTES: usize = 512;
const MAX_KEYWORDS: usize = 32;
const MAX_ANNOTATION_BYTES: usize = 4096;

/// A chart in a folder of a Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderChart {
    /// The folder of the chart, relative to that of the catalog. Empty if that is the chart itself.
    pub folder: String,
    pub name: String,
    pub description: String,
    pub keywords: Vec<String>,
    pub entry: Entry,
}

/// Returns the selected charts among `files`, which are relative to the folder of the catalog. Each folder with a `Chart.yaml` is
/// a chart, except those inside of another chart. Library charts are left out, because they cannot be installed.
///
/// One invalid chart is a failure, and so are files without a chart: a bad commit must not remove packages from a catalog. The
/// failure names the file, and the line if it is known.
pub fn folder_charts<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    selection: &Selection,
) -> Result<Vec<FolderChart>, Failure> {
    let files: BTreeMap<&str, &[u8]> = files.into_iter().collect();
    let folders = chart_folders(files.keys().copied());
    if folders.is_empty() {
        return Err(invalid(format!(
            "the folder has no charts: neither it nor a folder in it has a {CHART}"
        )));
    }
    if folders.len() > MAX_CHARTS {
        return Err(invalid(format!("the folder has {} charts, the limit is {MAX_CHARTS}", folders.len())));
    }
    let mut known: BTreeMap<(String, Version), String> = BTreeMap::new();
    let mut charts = Vec::new();
    for folder in folders {
        let file = chart_file(folder);
        let content = files.get(file.as_str()).copied().unwrap_or_default();
        let Some((chart, version)) = read_chart(folder, &file, content)? else { continue };
        if let Some(other) = known.insert((chart.name.clone(), version), file.clone()) {
            let (name, version) = (&chart.name, &chart.entry.version);
            return Err(invalid(format!("{other} and {file} are both {name} {version}: change one of them")));
        }
        if selection.includes_chart(&chart.name) && selection.includes_version(&chart.entry.version) {
            charts.push(chart);
        }
    }
    Ok(charts)
}

/// Returns the folders of charts. Charts inside of a chart are its dependencies, and files in hidden folders belong to other
/// programs.
fn chart_folders<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let folders = paths.filter_map(|path| match path.rsplit_once('/') {
        Some((folder, CHART)) => Some(folder),
        None if path == CHART => Some(""),
        _ => None,
    });
    let is_hidden = |folder: &str| folder.split('/').any(|part| part.starts_with('.'));
    let all: BTreeSet<&str> = folders.filter(|folder| !is_hidden(folder)).collect();
    let is_inside = |folder: &str| folders_above(folder).any(|above| all.contains(above));
    all.iter().copied().filter(|folder| !is_inside(folder)).collect()
}

fn folders_above(folder: &str) -> impl Iterator<Item = &str> {
    let root = (!folder.is_empty()).then_some("");
    root.into_iter().chain(folder.match_indices('/').map(move |(at, _)| &folder[..at]))
}

fn chart_file(folder: &str) -> String {
    if folder.is_empty() { CHART.to_owned() } else { format!("{folder}/{CHART}") }
}

/// Reads a `Chart.yaml`. Returns `None` for a library chart.
fn read_chart(folder: &str, file: &str, content: &[u8]) -> Result<Option<(FolderChart, Version)>, Failure> {
    if folder.contains("{{") {
        return Err(invalid(format!("{file}: the name of a folder with a chart must not contain {{{{")));
    }
    let text = std::str::from_utf8(content).map_err(|_| invalid(format!("{file} is not UTF-8 text")))?;
    let fields = from_package_yaml(file, text).map_err(|failure| invalid(failure.message))?;
    let metadata = Metadata { file, text, fields };
    if metadata.text("type")? == Some("library") {
        return Ok(None);
    }
    let name = metadata.required("name")?;
    if name.len() > MAX_NAME_BYTES || name.contains(|c: char| c == '/' || c.is_whitespace()) {
        return Err(metadata.invalid("name", &format!("{name:?} is not the name of a chart")));
    }
    let version = metadata.required("version")?;
    let number = parse_version(version).ok_or_else(|| {
        metadata.invalid("version", &format!("{version:?} is not a version such as 1.14.2"))
    })?;
    let mut description = metadata.text("description")?.unwrap_or_default().to_owned();
    description.truncate(description.floor_char_boundary(MAX_DESCRIPTION_BYTES));
    let chart = FolderChart {
        folder: folder.to_owned(),
        name: name.to_owned(),
        description,
        keywords: metadata.keywords(),
        entry: Entry {
            version: version.to_owned(),
            app_version: metadata.app_version(),
            kube_version: metadata.text("kubeVersion")?.map(str::to_owned),
            deprecated: metadata.fields.get("deprecated").and_then(Value::as_bool).unwrap_or_default(),
            annotations: metadata.annotations()?,
            folder: None,
        },
    };
    Ok(Some((chart, number)))
}

/// The content of a `Chart.yaml`.
struct Metadata<'a> {
    file: &'a str,
    text: &'a str,
    fields: Parameters,
}

impl Metadata<'_> {
    /// Returns a text. `None` if it is missing or empty.
    fn text(&self, field: &str) -> Result<Option<&str>, Failure> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.invalid(field, "it must be text: write it in quotes")),
        }
    }

    fn required(&self, field: &str) -> Result<&str, Failure> {
        self.text(field)?.ok_or_else(|| self.invalid(field, "it is missing"))
    }

    /// Returns the version of the application. Many charts write it without quotes.
    fn app_version(&self) -> Option<String> {
        match self.fields.get("appVersion")? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    fn keywords(&self) -> Vec<String> {
        let all = self.fields.get("keywords").and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).take(MAX_KEYWORDS).map(str::to_owned).collect()
    }

    /// Returns the annotations that Chandler reads.
    fn annotations(&self) -> Result<BTreeMap<String, String>, Failure> {
        let all = self.fields.get("annotations").and_then(Value::as_object).into_iter().flatten();
        let mut read = BTreeMap::new();
        for (key, value) in all.filter(|(key, _)| key.starts_with(ANNOTATIONS)) {
            let text = value.as_str().filter(|text| text.len() <= MAX_ANNOTATION_BYTES).ok_or_else(|| {
                let problem = format!("{key} must be text of at most {MAX_ANNOTATION_BYTES} bytes");
                self.invalid("annotations", &problem)
            })?;
            read.insert(key.clone(), text.to_owned());
        }
        Ok(read)
    }

    /// Returns a failure that names the file, the line of a field, and the field.
    fn invalid(&self, field: &str, problem: &str) -> Failure {
        let is_it = |line: &str| line.strip_prefix(field).is_some_and(|rest| rest.starts_with(':'));
        let line = self.text.lines().position(is_it);
        let line = line.map(|above| format!(", line {}", above + 1)).unwrap_or_default();
        invalid(format!("{}{line}: {field}: {problem}", self.file))
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Category::InvalidPackage, message)
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::CatalogFilter;

    use super::*;

    const WEB: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";

    fn read(files: &[(&str, &str)], filter: Option<&CatalogFilter>) -> Result<Vec<FolderChart>, Failure> {
        let files = files.iter().map(|(path, text)| (*path, text.as_bytes()));
        folder_charts(files, &Selection::new(filter).unwrap())
    }

    #[test]
    fn each_folder_with_metadata_is_a_chart_unless_it_is_inside_of_one() {
        let metadata = "name: db\nversion: 2.1.0\nappVersion: 1.16\nkubeVersion: '>=1.30.0-0'\ndeprecated: true\n\
                        description: A database\nkeywords: [sql, 7]\nannotations:\n  chandler.dev/channel: edge\n  \
                        other.example/x: 7\n";
        let files = [
            ("README.md", "text"),
            ("data/db/Chart.yaml", metadata),
            ("data/db/charts/web/Chart.yaml", "name: inner\nversion: 9.0.0\n"),
            ("data/common/Chart.yaml", "name: common\nversion: 1.0.0\ntype: library\n"),
            (".github/Chart.yaml", "name: hidden\nversion: 1.0.0\n"),
            ("web/Chart.yaml", WEB),
            ("web-1.1/Chart.yaml", "name: web\nversion: 1.1.0\n"),
            ("web-next/Chart.yaml", "name: web\nversion: 2.0.0-rc.1\n"),
        ];
        let charts = read(&files, None).unwrap();
        let found: Vec<_> =
            charts.iter().map(|one| (&*one.folder, &*one.name, &*one.entry.version)).collect();
        assert_eq!(found, [("data/db", "db", "2.1.0"), ("web", "web", "1.0.0"), ("web-1.1", "web", "1.1.0")]);
        let (db, entry) = (&charts[0], &charts[0].entry);
        assert_eq!((&*db.description, &db.keywords), ("A database", &vec!["sql".to_owned()]));
        assert_eq!((entry.app_version.as_deref(), entry.deprecated), (Some("1.16"), true));
        assert_eq!(entry.kube_version.as_deref(), Some(">=1.30.0-0"));
        assert_eq!(entry.annotations, [("chandler.dev/channel".to_owned(), "edge".to_owned())].into());
    }

    #[test]
    fn the_folder_of_a_catalog_may_be_one_chart() {
        let files = [("Chart.yaml", WEB), ("charts/db/Chart.yaml", "name: db\nversion: 1.0.0\n")];
        let charts = read(&files, None).unwrap();
        assert_eq!(charts.iter().map(|one| (&*one.folder, &*one.name)).collect::<Vec<_>>(), [("", "web")]);
    }

    #[test]
    fn the_filter_selects_charts_and_versions() {
        let files = [("a/Chart.yaml", WEB), ("b/Chart.yaml", "name: db\nversion: 1.0.0\n")];
        let filter = CatalogFilter { include: vec!["w*".to_owned()], ..CatalogFilter::default() };
        assert_eq!(read(&files, Some(&filter)).unwrap().len(), 1);
        let none = CatalogFilter { versions: Some(">=2".to_owned()), ..CatalogFilter::default() };
        assert!(read(&files, Some(&none)).unwrap().is_empty(), "charts that are not selected are no failure");
    }

    #[test]
    fn an_invalid_chart_is_a_failure_with_file_and_line() {
        let rows = [
            ("name: [", "x/Chart.yaml is not valid YAML"),
            ("- a", "x/Chart.yaml"),
            ("version: 1.0.0", "x/Chart.yaml: name: it is missing"),
            ("name: db\n", "x/Chart.yaml: version: it is missing"),
            ("name: db\nversion: soon\n", "x/Chart.yaml, line 2: version: \"soon\" is not a version"),
            ("name: db\nversion: 1.0\n", "x/Chart.yaml, line 2: version: it must be text"),
            ("name: a/b\nversion: 1.0.0\n", "x/Chart.yaml, line 1: name: \"a/b\" is not the name"),
            ("name: web\nversion: 1.0.0\n", "web/Chart.yaml and x/Chart.yaml are both web 1.0.0"),
            (
                "name: db\nversion: 1.0.0\nannotations: {chandler.dev/channel: 7}\n",
                "x/Chart.yaml, line 3: annotations: chandler.dev/channel must be text",
            ),
        ];
        for (text, expected) in rows {
            let failure = read(&[("web/Chart.yaml", WEB), ("x/Chart.yaml", text)], None).unwrap_err();
            assert_eq!(failure.category, Category::InvalidPackage, "{text}");
            assert!(failure.message.contains(expected), "{failure}");
        }
        let line = read(&[("x/Chart.yaml", "name: db\nversion: }\n")], None).unwrap_err();
        assert!(line.message.contains("(line "), "{line}");
    }

    #[test]
    fn files_without_a_chart_are_a_failure() {
        let rows: [&[(&str, &str)]; 2] = [&[], &[("README.md", "text"), ("web/values.yaml", "")]];
        for files in rows {
            let failure = read(files, None).unwrap_err();
            assert!(failure.message.contains("has no charts"), "{failure}");
        }
    }
}
