//! Extensions that a Cluster or its ClusterClass lists itself: in an annotation, or in a variable of the topology.

use std::collections::HashSet;

use chandler_api::extensions::Scope;
use serde::Deserialize;
use serde_json::Value;

use crate::{extension::ExtensionKey, resolution::Range};

/// Annotation of a Cluster or ClusterClass: `NAME`, `NAME@RANGE` or `platform/NAME@RANGE`, separated by commas or lines.
pub const EXTENSIONS_ANNOTATION: &str = "chandler.dev/extensions";
/// Variable of a topology: a list of the same texts, or of maps `{name, scope, version}`.
pub const EXTENSIONS_VARIABLE: &str = "extensions";

/// One extension in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Name of the Extension.
    pub name: String,
    /// Where it is.
    #[serde(default)]
    pub scope: Scope,
    /// The versions that serve, as a range. None: any.
    #[serde(default)]
    pub version: Option<String>,
}

/// Why a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    #[error("variable {EXTENSIONS_VARIABLE} is not a list")]
    NoList,
    #[error(
        "entry {entry} is neither a text such as cert-manager@^1.14 nor a map of name, scope and version"
    )]
    NoEntry { entry: String },
    #[error(
        "entry {entry} does not name an extension: write NAME, NAME@RANGE or platform/NAME@RANGE; in a range, write \
         spaces instead of commas"
    )]
    BadName { entry: String },
    #[error("entry {entry} asks for versions by a range that cannot be read: {reason}")]
    BadRange { entry: String, reason: String },
    #[error("entry {entry} names an extension that the list has already")]
    Twice { entry: String },
}

/// Reads the annotation.
pub fn from_annotation(text: &str) -> Result<Vec<Listed>, ListError> {
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    checked(entries.map(|entry| (entry.to_owned(), written(entry))))
}

/// Reads the value of the variable.
pub fn from_variable(value: &Value) -> Result<Vec<Listed>, ListError> {
    let entries = value.as_array().ok_or(ListError::NoList)?;
    let read = entries.iter().map(|entry| match entry {
        Value::String(text) => Ok((text.clone(), written(text.trim()))),
        other => Listed::deserialize(other)
            .map(|listed| (listed.name.clone(), listed))
            .map_err(|_| ListError::NoEntry { entry: other.to_string() }),
    });
    checked(read.collect::<Result<Vec<_>, _>>()?)
}

/// Whether a Cluster has a list, be it empty.
pub fn has_list(annotation: Option<&str>, cluster: &Value) -> bool {
    annotation.is_some() || variable(cluster).is_some()
}

/// What a Cluster lists, and why a list of it cannot be used.
pub fn listed(annotation: Option<&str>, cluster: &Value) -> (Vec<Listed>, Vec<ListError>) {
    let lists = [annotation.map(from_annotation), variable(cluster).map(from_variable)];
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for list in lists.into_iter().flatten() {
        match list {
            Ok(list) => entries.extend(list),
            Err(error) => errors.push(error),
        }
    }
    (entries, errors)
}

fn variable(cluster: &Value) -> Option<&Value> {
    let variables = cluster.pointer("/spec/topology/variables")?.as_array()?;
    variables.iter().find(|one| one["name"] == EXTENSIONS_VARIABLE).map(|found| &found["value"])
}

fn written(entry: &str) -> Listed {
    let (name, version) = match entry.split_once('@') {
        Some((name, version)) => (name, Some(version.trim().to_owned())),
        None => (entry, None),
    };
    let key = ExtensionKey::parse(name.trim());
    Listed { name: key.local_name(), scope: key.scope, version }
}

/// Refuses what names nothing, what cannot be a range, and what is listed twice.
fn checked(entries: impl IntoIterator<Item = (String, Listed)>) -> Result<Vec<Listed>, ListError> {
    let mut seen = HashSet::new();
    let mut list = Vec::new();
    for (entry, listed) in entries {
        if !is_name(&listed.name) {
            return Err(ListError::BadName { entry });
        }
        if let Some(version) = &listed.version {
            version
                .parse::<Range>()
                .map_err(|error| ListError::BadRange { entry: entry.clone(), reason: error.to_string() })?;
        }
        if !seen.insert((listed.scope, listed.name.clone())) {
            return Err(ListError::Twice { entry });
        }
        list.push(listed);
    }
    Ok(list)
}

/// As Kubernetes names objects.
fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        !part.is_empty() && part.chars().all(allowed) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(name: &str, scope: Scope, version: Option<&str>) -> Listed {
        Listed { name: name.to_owned(), scope, version: version.map(str::to_owned) }
    }

    #[test]
    fn both_ways_to_write_a_list_say_the_same() {
        let expected = [
            listed("cert-manager", Scope::Namespace, Some("^1.14")),
            listed("cilium", Scope::Platform, Some(">=1.16 <1.18")),
            listed("metrics-server", Scope::Namespace, None),
            listed("cilium", Scope::Namespace, None),
        ];
        let text = "cert-manager@^1.14, platform/cilium@>=1.16 <1.18\n\n  metrics-server,\ncilium";
        assert_eq!(from_annotation(text).unwrap(), expected);
        let texts =
            json!(["cert-manager@^1.14", "platform/cilium @ >=1.16 <1.18", "metrics-server", "cilium"]);
        assert_eq!(from_variable(&texts).unwrap(), expected);
        let maps = json!([
            {"name": "cert-manager", "version": "^1.14"},
            {"name": "cilium", "scope": "Platform", "version": ">=1.16 <1.18"},
            "metrics-server",
            {"name": "cilium", "scope": "Namespace"},
        ]);
        assert_eq!(from_variable(&maps).unwrap(), expected);
        assert_eq!(from_annotation(" \n,").unwrap(), []);
        assert_eq!(from_variable(&json!([])).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let annotations = [
            ("a,B", "entry B does not name an extension"),
            ("a/b", "entry a/b does not name an extension"),
            ("@1.x", "entry @1.x does not name an extension"),
            ("platform/", "entry platform/ does not name an extension"),
            ("a@>=1.30, <1.35", "entry <1.35 does not name an extension"),
            ("a@", "entry a@ asks for versions by a range that cannot be read"),
            ("a@latest", "entry a@latest asks for versions by a range that cannot be read"),
            ("a,b,a@1.x", "entry a@1.x names an extension that the list has already"),
        ];
        for (text, hint) in annotations {
            let error = from_annotation(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{error:?} does not say {hint:?}");
        }
        let variables = [
            (json!("a"), "variable extensions is not a list"),
            (json!(["a", 1]), "entry 1 is neither a text"),
            (json!([{"version": "1.x"}]), "is neither a text"),
            (json!([{"name": "a", "range": "1.x"}]), "is neither a text"),
            (json!([{"name": "a", "scope": "World"}]), "is neither a text"),
            (json!([{"name": "a b"}]), "entry a b does not name an extension"),
            (json!(["a", {"name": "a"}]), "entry a names an extension that the list has already"),
        ];
        for (value, hint) in variables {
            let error = from_variable(&value).unwrap_err().to_string();
            assert!(error.contains(hint), "{error:?} does not say {hint:?}");
        }
    }

    #[test]
    fn a_cluster_s_lists_are_read_each_for_itself() {
        let cluster = json!({"spec": {"topology": {"variables": [
            {"name": "other", "value": 1}, {"name": "extensions", "value": ["dns"]},
        ]}}});
        let (found, errors) = super::listed(Some("cni"), &cluster);
        assert_eq!((found.len(), errors.len()), (2, 0));
        let (found, errors) = super::listed(Some("Not a name"), &cluster);
        assert_eq!((found.len(), errors.len()), (1, 1));
        assert_eq!(super::listed(None, &json!({})), (Vec::new(), Vec::new()));
        assert!(has_list(Some(""), &json!({})) && has_list(None, &cluster) && !has_list(None, &json!({})));
    }
}
