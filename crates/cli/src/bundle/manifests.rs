//! Splits the manifests of a ClusterResourceSet into documents, as the Cluster API does.

use serde::Serialize;
use serde_json::Value;

use crate::yaml_documents::{has_content, split};

/// The object of a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl ObjectName {
    /// Returns the group of the object. It is empty for the kinds of the core.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns whether the object is a Secret.
    pub fn is_secret(&self) -> bool {
        self.group().is_empty() && self.kind == "Secret"
    }

    /// Returns what identifies the object on a cluster, regardless of the version in which it is written.
    pub fn identity(&self) -> (String, String, String, String) {
        (self.group().to_owned(), self.kind.clone(), self.namespace.clone(), self.name.clone())
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// A document with one object.
#[derive(Debug, Clone)]
pub struct Document {
    pub object: ObjectName,
    /// Whether the object is a hook of a Helm release.
    pub is_hook: bool,
    pub text: String,
}

/// Returns the documents of a text, which contains YAML documents, or a list of objects as JSON. An error never quotes the text,
/// which may be confidential.
pub fn documents(text: &str) -> Result<Vec<Document>, String> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('[') {
        let objects: Vec<Value> =
            serde_json::from_str(text).map_err(|_| "is not a list of objects".to_owned())?;
        return objects.into_iter().map(|object| document(&object, format!("{object:#}\n"))).collect();
    }
    let mut documents = Vec::new();
    for (line, part) in split(text) {
        if !has_content(&part) {
            continue;
        }
        let at_line = |problem: String| format!("{problem} (the document at line {line})");
        let object: Value =
            serde_saphyr::from_str(&part).map_err(|_| at_line("contains invalid YAML".to_owned()))?;
        documents.push(document(&object, part).map_err(at_line)?);
    }
    Ok(documents)
}

fn document(object: &Value, text: String) -> Result<Document, String> {
    let field =
        |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = ObjectName {
        api_version: field("/apiVersion"),
        kind: field("/kind"),
        namespace: field("/metadata/namespace"),
        name: field("/metadata/name"),
    };
    if name.api_version.is_empty() || name.kind.is_empty() {
        return Err("contains a document without apiVersion or kind".to_owned());
    }
    if name.name.is_empty() {
        return Err(format!("contains a {} without metadata.name", name.kind));
    }
    let is_hook = object.pointer("/metadata/annotations/helm.sh~1hook").is_some();
    Ok(Document { object: name, is_hook, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        documents(text).unwrap().iter().map(|document| document.object.to_string()).collect()
    }

    #[test]
    fn documents_are_split_and_keep_their_text() {
        let one = "# a comment\napiVersion: v1\nkind: Namespace\nmetadata: {name: one}\n";
        let two = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: two\n  namespace: x\n";
        let text = format!("\u{feff}---\n{one}--- # next\n{two}---\n# nothing\n---\n");
        assert_eq!(names(&text), ["Namespace one", "Deployment x/two"]);
        let parsed = documents(&text).unwrap();
        assert_eq!((&*parsed[0].text, &*parsed[1].text), (one, two));
        assert_eq!((parsed[1].object.group(), parsed[0].object.group()), ("apps", ""));
    }

    #[test]
    fn a_line_inside_of_a_document_does_not_split_it() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  b: |\n    ---\n    c\n  d: ---e\n";
        assert_eq!(names(text), ["ConfigMap a"]);
        assert_eq!(names("--- {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n"), ["Namespace b"]);
    }

    #[test]
    fn lists_as_json_become_documents() {
        let text = r#" [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}]"#;
        let parsed = documents(text).unwrap();
        assert!(parsed[0].object.is_secret());
        assert_eq!(names(&parsed[0].text), ["Secret a"], "its text is a document");
    }

    #[test]
    fn invalid_documents_are_reported_without_their_text() {
        let rows = [
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nsecret: [",
                "contains invalid YAML (the document at line 5)",
            ),
            ("kind: secret", "contains a document without apiVersion or kind (the document at line 1)"),
            (
                "apiVersion: v1\nkind: List\nitems: []",
                "contains a List without metadata.name (the document at line 1)",
            ),
            ("[1, secret]", "is not a list of objects"),
        ];
        for (text, expected) in rows {
            assert_eq!(documents(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn hooks_are_recognized() {
        let hook =
            "apiVersion: v1\nkind: Job\nmetadata: {name: a, annotations: {helm.sh/hook: pre-install}}\n";
        assert!(documents(hook).unwrap()[0].is_hook);
    }
}
