//! Reads the objects in a folder of plain YAML and JSON files.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::{Budget, DuplicateKeyPolicy, options, options::NonFiniteFloatPolicy};

use crate::failure::{Category, Failure};

/// The largest number of objects of a Sync. The status lists all of them.
pub const MOST_OBJECTS: usize = 1000;
/// Nesting of maps and lists. Objects of the API server are not deeper.
const MAX_DEPTH: usize = 100;
/// Files that make a folder a chart or a kustomization.
const BUILD_FILES: [(&str, &str); 4] = [
    ("Chart.yaml", "Helm chart"),
    ("kustomization.yaml", "kustomization"),
    ("kustomization.yml", "kustomization"),
    ("Kustomization", "kustomization"),
];

/// An object and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Path of the file, relative to the folder.
    pub file: String,
    /// Line of the file at which the document begins.
    pub line: usize,
    pub object: Value,
}

impl Document {
    /// Returns a failure that names the file and the line.
    pub fn failure(&self, category: Category, problem: &str) -> Failure {
        Failure::new(category, format!("{}:{}: {problem}", self.file, self.line))
    }

    /// Returns the text at a JSON pointer, or an empty text.
    pub fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Returns the files in a folder, with paths relative to it. A folder without files does not exist.
pub fn files_below<B: Clone>(
    files: &BTreeMap<String, B>,
    path: &str,
) -> Result<BTreeMap<String, B>, Failure> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let prefix: String = parts.map(|part| format!("{part}/")).collect();
    let below = files.iter().filter_map(|(file, content)| {
        file.strip_prefix(&prefix).map(|relative| (relative.to_owned(), content.clone()))
    });
    let below: BTreeMap<_, _> = below.collect();
    if below.is_empty() {
        let message = format!(
            "the Source has no folder {path:?}; nothing is changed; restore it, or correct spec.source.path"
        );
        return Err(Failure::new(Category::InvalidPackage, message));
    }
    Ok(below)
}

/// Reads all objects in a folder. One unreadable file fails the folder, so that its objects are not missed.
pub fn parse<B: AsRef<[u8]>>(files: &BTreeMap<String, B>) -> Result<Vec<Document>, Failure> {
    for (file, what) in BUILD_FILES {
        if files.contains_key(file) {
            return Err(invalid(
                file,
                1,
                &format!("a folder with a {what} cannot be applied as plain files"),
            ));
        }
    }
    let mut documents = Vec::new();
    for (file, content) in files {
        let text = || {
            std::str::from_utf8(content.as_ref()).map_err(|_| invalid(file, 1, "the file is not UTF-8 text"))
        };
        match file.rsplit_once('.').map(|(_, extension)| extension) {
            Some("yaml" | "yml") => read_yaml(file, text()?, &mut documents)?,
            Some("json") => read_json(file, text()?, &mut documents)?,
            _ => {}
        }
    }
    match documents.len() {
        0 => Err(Failure::new(
            Category::InvalidPackage,
            "the folder contains no objects; nothing is changed; to remove all objects, delete the Sync with \
             deletionPolicy: Prune",
        )),
        count if count > MOST_OBJECTS => Err(Failure::new(
            Category::InvalidPackage,
            format!(
                "the folder contains {count} objects, but a Sync has at most {MOST_OBJECTS}; use several Syncs"
            ),
        )),
        _ => Ok(documents),
    }
}

fn read_json(file: &str, text: &str, documents: &mut Vec<Document>) -> Result<(), Failure> {
    let object = serde_json::from_str(text)
        .map_err(|error| invalid(file, error.line().max(1), "the file is not valid JSON"))?;
    add(Document { file: file.to_owned(), line: 1, object }, documents)
}

fn read_yaml(file: &str, text: &str, documents: &mut Vec<Document>) -> Result<(), Failure> {
    if text.trim().is_empty() {
        return Err(invalid(file, 1, "the file is empty; delete it if its objects are to be removed"));
    }
    for (line, document) in split(text) {
        if let Some(object) = read_document(file, line, document)? {
            add(Document { file: file.to_owned(), line, object }, documents)?;
        }
    }
    Ok(())
}

/// Splits a text at `---`. Returns the documents with the lines at which they begin. In YAML, these characters at the
/// beginning of a line always end a document, even in a quoted text.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut begin, mut first_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let marker = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if marker.is_some() && at > begin {
            documents.push((first_line, &text[begin..at]));
        }
        if marker.is_some() {
            (begin, first_line) = (at, number + 1);
        }
        at += line.len();
    }
    documents.push((first_line, &text[begin..]));
    documents
}

/// Reads one document. Returns `None` if it contains comments only.
fn read_document(file: &str, first_line: usize, text: &str) -> Result<Option<Value>, Failure> {
    let mut budget = Budget::default();
    budget.max_depth = MAX_DEPTH;
    let options = options! {
        budget: Some(budget),
        with_snippet: false,
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
    };
    let object: Option<Value> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The parser's own message may quote the text.
        let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
        invalid(file, first_line + line.unwrap_or(1).saturating_sub(1), "the document is not valid YAML")
    })?;
    Ok(object.filter(|object| !object.is_null()))
}

/// Adds a document, or the items of a List, if they are complete.
fn add(document: Document, documents: &mut Vec<Document>) -> Result<(), Failure> {
    if document.text("/apiVersion") == "v1" && document.text("/kind") == "List" {
        let Some(Value::Array(items)) = document.object.get("items").cloned() else {
            return Err(document.failure(Category::InvalidPackage, "the List has no items"));
        };
        for object in items {
            add(Document { file: document.file.clone(), line: document.line, object }, documents)?;
        }
        return Ok(());
    }
    for (pointer, field) in
        [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")]
    {
        let text = document.text(pointer);
        if text.is_empty() {
            let problem = format!("the document has no {field}; nothing is changed; complete it");
            return Err(document.failure(Category::InvalidPackage, &problem));
        }
        if field != "apiVersion" && !is_segment(text) {
            return Err(document.failure(Category::InvalidPackage, &format!("{field} is not a valid name")));
        }
    }
    let (version, namespace) = (document.text("/apiVersion"), document.text("/metadata/namespace"));
    if version.split('/').count() > 2 || !version.split('/').all(is_segment) {
        return Err(document.failure(Category::InvalidPackage, "apiVersion is not valid"));
    }
    if !namespace.is_empty() && !is_segment(namespace) {
        return Err(document.failure(Category::InvalidPackage, "metadata.namespace is not a valid name"));
    }
    documents.push(document);
    Ok(())
}

/// Returns whether a name can be part of the path of a request.
fn is_segment(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    !name.is_empty() && name != "." && name != ".." && name.chars().all(allowed)
}

fn invalid(file: &str, line: usize, problem: &str) -> Failure {
    Failure::new(Category::InvalidPackage, format!("{file}:{line}: {problem}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files<'a>(files: &[(&str, &'a str)]) -> BTreeMap<String, &'a str> {
        files.iter().map(|(path, content)| ((*path).to_owned(), *content)).collect()
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    #[test]
    fn documents_have_a_file_and_a_line() {
        let two = format!(
            "# first\n{MAP}---\n# only a comment\n--- # third\n{}",
            MAP.replace("name: a", "name: b")
        );
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d", "namespace": "e"}},
        ]})
        .to_string();
        let read = parse(&files(&[("a.yaml", &two), ("b/c.json", &list), ("README.md", "# ---")])).unwrap();
        let found: Vec<_> =
            read.iter().map(|one| (&*one.file, one.line, one.text("/metadata/name"))).collect();
        assert_eq!(
            found,
            [("a.yaml", 1, "a"), ("a.yaml", 7, "b"), ("b/c.json", 1, "c"), ("b/c.json", 1, "d")]
        );
    }

    #[test]
    fn a_half_written_file_fails_the_folder_with_file_and_line() {
        let rows = [
            ("", "bad.yaml:1: the file is empty"),
            (" \n\n", "bad.yaml:1: the file is empty"),
            ("apiVersion: v1\nkind: Conf", "bad.yaml:1: the document has no metadata.name"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name:",
                "bad.yaml:1: the document has no metadata.name",
            ),
            ("apiVersion: v1\nmetadata: {name: a", "the document is not valid YAML"),
            ("apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: a}", "the document is not valid YAML"),
            ("just text", "bad.yaml:1: the document has no apiVersion"),
            ("apiVersion: v1\nkind: List\n", "bad.yaml:1: the List has no items"),
            ("apiVersion: v1\nkind: A\nmetadata: {name: ../b}", "metadata.name is not a valid name"),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: b, namespace: c/d}",
                "metadata.namespace is not a valid",
            ),
            ("apiVersion: a/b/c\nkind: A\nmetadata: {name: b}", "apiVersion is not valid"),
        ];
        for (text, expected) in rows {
            let failure = parse(&files(&[("bad.yaml", text), ("good.yaml", MAP)])).unwrap_err();
            assert!(failure.message.contains(expected), "{text:?}: {failure}");
            assert_eq!(failure.category, Category::InvalidPackage);
        }
        let later = format!("{MAP}---\nkind: [");
        let failure = parse(&files(&[("bad.yaml", &later)])).unwrap_err();
        assert!(failure.message.starts_with("bad.yaml:"), "{failure}");
        let json = parse(&files(&[("bad.json", "{\n\"a\": ")])).unwrap_err();
        assert!(json.message.starts_with("bad.json:2: "), "{json}");
        let binary = BTreeMap::from([("bad.yaml".to_owned(), vec![0xff_u8, 0xfe])]);
        assert!(parse(&binary).unwrap_err().message.contains("not UTF-8"));
    }

    #[test]
    fn an_empty_render_is_refused() {
        let folders: [&[(&str, &str)]; 3] =
            [&[], &[("README.md", "text")], &[("a.yaml", "# nothing\n---\n# here\n")]];
        for rows in folders {
            let failure = parse(&files(rows)).unwrap_err();
            assert!(failure.message.contains("contains no objects; nothing is changed"), "{failure}");
        }
    }

    #[test]
    fn charts_kustomizations_and_too_many_objects_are_refused() {
        for file in ["Chart.yaml", "kustomization.yaml", "kustomization.yml", "Kustomization"] {
            let failure = parse(&files(&[(file, "a: b"), ("a.yaml", MAP)])).unwrap_err();
            assert!(failure.message.starts_with(&format!("{file}:1: ")), "{failure}");
        }
        let many = format!("{MAP}---\n").repeat(MOST_OBJECTS + 1);
        assert!(parse(&files(&[("a.yaml", &many)])).unwrap_err().message.contains("1001 objects"));
    }

    #[test]
    fn a_deleted_or_renamed_folder_is_a_failure() {
        let tree = files(&[("fleet/a.yaml", "1"), ("fleet/sub/b.yaml", "2"), ("fleet-old/c.yaml", "3")]);
        for path in ["fleet", "fleet/", "./fleet"] {
            let below = files_below(&tree, path).unwrap();
            assert_eq!(below.keys().collect::<Vec<_>>(), ["a.yaml", "sub/b.yaml"], "{path}");
        }
        assert_eq!(files_below(&tree, "").unwrap().len(), 3);
        for path in ["missing", "fle", "fleet/a.yaml"] {
            let failure = files_below(&tree, path).unwrap_err();
            assert!(failure.message.contains("nothing is changed"), "{path}: {failure}");
        }
    }
}
