//! Checks the files of a folder, and reads the objects that were built from them.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use crate::{
    failure::{Category, Failure},
    source::{Content, content_of, is_manifest},
    yaml::strict_options,
};

/// The largest number of objects of a Sync. The status lists all of them.
pub const MAX_OBJECTS: usize = 1000;
/// Nesting of maps and lists. Objects of the API server are not deeper.
const MAX_DEPTH: usize = 100;

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

/// Refuses files that objects cannot be built from. An unreadable or empty file may be half-written, so it fails the folder:
/// its objects must not be missed.
pub fn check_files<B: AsRef<[u8]>>(files: &BTreeMap<String, B>) -> Result<(), Failure> {
    let manifests = || files.iter().filter(|(file, _)| is_manifest(file));
    let content = content_of(files.keys().map(String::as_str));
    // A kustomization may consist of a file without an extension that refers to other folders.
    if manifests().next().is_none() && content != Ok(Content::Kustomization) {
        return Err(no_objects());
    }
    if content? == Content::Chart {
        return Err(invalid(
            "Chart.yaml",
            1,
            "a Helm chart cannot be applied to the management cluster; nothing is changed; use an ExtensionInstance",
        ));
    }
    for (file, content) in manifests() {
        let text = std::str::from_utf8(content.as_ref());
        let text = text.map_err(|_| invalid(file, 1, "the file is not UTF-8 text"))?;
        if text.trim().is_empty() {
            return Err(invalid(file, 1, "the file is empty; delete it if its objects are to be removed"));
        }
    }
    Ok(())
}

/// A YAML document that was built from the files of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltDocument {
    /// Path of the file that it comes from, or of the kustomization.
    pub file: String,
    /// Line of the file at which the object begins.
    pub line: usize,
    pub yaml: String,
}

/// Reads all objects that were built. One unreadable document fails the folder, so that its objects are not missed.
pub fn read_objects(built: impl IntoIterator<Item = BuiltDocument>) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    for BuiltDocument { file, line, yaml } in built {
        if let Some(object) = read_document(&file, line, &yaml)? {
            add(Document { file, line, object }, &mut documents)?;
        }
    }
    match documents.len() {
        0 => Err(no_objects()),
        count if count > MAX_OBJECTS => Err(Failure::new(
            Category::InvalidPackage,
            format!(
                "the folder contains {count} objects, but a Sync has at most {MAX_OBJECTS}; use several Syncs"
            ),
        )),
        _ => Ok(documents),
    }
}

fn no_objects() -> Failure {
    Failure::new(
        Category::InvalidPackage,
        "the folder contains no objects; nothing is changed; to remove all objects, delete the Sync with \
         deletionPolicy: Prune",
    )
}

/// Reads one document. Returns `None` if it contains comments only.
fn read_document(file: &str, line: usize, text: &str) -> Result<Option<Value>, Failure> {
    let options = strict_options(MAX_DEPTH, DuplicateKeyPolicy::Error);
    let object: Option<Value> = serde_saphyr::from_str_with_options(text, options)
        // The parser's own message may quote the text.
        .map_err(|_| invalid(file, line, "the document is not valid YAML"))?;
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

    fn built(line: usize, yaml: &str) -> BuiltDocument {
        BuiltDocument { file: "bad.yaml".to_owned(), line, yaml: yaml.to_owned() }
    }

    #[test]
    fn documents_have_a_file_and_a_line() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d", "namespace": "e"}},
        ]})
        .to_string();
        let read = read_objects([built(1, MAP), built(7, &list), built(9, "# only a comment\n")]).unwrap();
        let found: Vec<_> =
            read.iter().map(|one| (&*one.file, one.line, one.text("/metadata/name"))).collect();
        assert_eq!(found, [("bad.yaml", 1, "a"), ("bad.yaml", 7, "c"), ("bad.yaml", 7, "d")]);
    }

    #[test]
    fn an_incomplete_object_fails_the_folder_with_file_and_line() {
        let rows = [
            ("apiVersion: v1\nkind: Conf", "bad.yaml:3: the document has no metadata.name"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name:",
                "bad.yaml:3: the document has no metadata.name",
            ),
            ("apiVersion: v1\nmetadata: {name: a", "bad.yaml:3: the document is not valid YAML"),
            ("apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: a}", "the document is not valid YAML"),
            ("just text", "bad.yaml:3: the document has no apiVersion"),
            ("apiVersion: v1\nkind: List\n", "bad.yaml:3: the List has no items"),
            ("apiVersion: v1\nkind: A\nmetadata: {name: ../b}", "metadata.name is not a valid name"),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: b, namespace: c/d}",
                "metadata.namespace is not a valid",
            ),
            ("apiVersion: a/b/c\nkind: A\nmetadata: {name: b}", "apiVersion is not valid"),
        ];
        for (text, expected) in rows {
            let failure = read_objects([built(1, MAP), built(3, text)]).unwrap_err();
            assert!(failure.message.contains(expected), "{text:?}: {failure}");
            assert_eq!(failure.category, Category::InvalidPackage);
        }
    }

    #[test]
    fn an_empty_render_is_refused() {
        let folders: [&[(&str, &str)]; 2] = [&[], &[("README.md", "text")]];
        for rows in folders {
            let failure = check_files(&files(rows)).unwrap_err();
            assert!(failure.message.contains("contains no objects; nothing is changed"), "{failure}");
        }
        let failure = read_objects([built(1, "# nothing\n")]).unwrap_err();
        assert!(failure.message.contains("contains no objects; nothing is changed"), "{failure}");
        let many = (0..=MAX_OBJECTS).map(|line| built(line, MAP));
        assert!(read_objects(many).unwrap_err().message.contains("1001 objects"));
    }

    #[test]
    fn charts_and_half_written_files_are_refused() {
        check_files(&files(&[("a.yaml", MAP), ("README.md", ""), (".github/ci.yaml", "")])).unwrap();
        check_files(&files(&[("a.yaml", MAP), ("kustomization.yaml", "resources: [a.yaml]")])).unwrap();
        check_files(&files(&[("Kustomization", "resources: [../base]")])).unwrap();
        let rows = [
            (("Chart.yaml", "name: a"), "Chart.yaml:1: a Helm chart cannot be applied"),
            (("bad.yaml", ""), "bad.yaml:1: the file is empty"),
            (("bad.json", " \n\n"), "bad.json:1: the file is empty"),
        ];
        for (file, expected) in rows {
            let failure = check_files(&files(&[file, ("good.yaml", MAP)])).unwrap_err();
            assert!(failure.message.contains(expected), "{file:?}: {failure}");
            assert_eq!(failure.category, Category::InvalidPackage);
        }
        let binary = BTreeMap::from([("bad.yaml".to_owned(), vec![0xff_u8, 0xfe])]);
        assert!(check_files(&binary).unwrap_err().message.contains("not UTF-8"));
    }
}
