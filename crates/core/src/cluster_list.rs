//! Extensions that a Cluster or its ClusterClass lists in an annotation or in a variable of the topology.

use std::collections::HashSet;

use chandler_api::extensions::Scope;
use serde::Deserialize;
use serde_json::Value;

use crate::{extension::ExtensionKey, resolution::Range};

/// Annotation of a Cluster or ClusterClass: `NAME`, `NAME@RANGE` or `platform/NAME@RANGE`, separated by commas or
/// lines.
pub const EXTENSIONS_ANNOTATION: &str = "chandler.dev/extensions";
/// Variable of a topology: a list of the same strings, or of maps `{name, scope, version}`.
pub const EXTENSIONS_VARIABLE: &str = "extensions";

/// One extension in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Name of the Extension.
    pub name: String,
    /// Where the Extension is.
    #[serde(default)]
    pub scope: Scope,
    /// The accepted versions, as a range. `None` means any.
    #[serde(default)]
    pub version: Option<String>,
}

/// An error in a list of extensions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    #[error("variable {EXTENSIONS_VARIABLE} is not a list")]
    NoList,
    #[error(
        "entry {entry} is neither a string such as cert-manager@^1.14 nor a map of name, scope and version"
    )]
    NoEntry { entry: String },
    #[error(
        "entry {entry} does not name an extension: write NAME, NAME@RANGE or platform/NAME@RANGE; in a range, write \
         spaces instead of commas"
    )]
    BadName { entry: String },
    #[error("entry {entry} has an invalid version range: {reason}")]
    BadRange { entry: String, reason: String },
    #[error("entry {entry} repeats an extension of the list")]
    Duplicate { entry: String },
}

/// Parses the annotation.
pub fn from_annotation(text: &str) -> Result<Vec<Listed>, ListError> {
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    validate(entries.map(|entry| (entry.to_owned(), parse_entry(entry))))
}

/// Parses the value of the variable.
pub fn from_variable(value: &Value) -> Result<Vec<Listed>, ListError> {
    let entries = value.as_array().ok_or(ListError::NoList)?;
    let read = entries.iter().map(|entry| match entry {
        Value::String(text) => Ok((text.clone(), parse_entry(text.trim()))),
        other => Listed::deserialize(other)
            .map(|listed| (listed.name.clone(), listed))
            .map_err(|_| ListError::NoEntry { entry: other.to_string() }),
    });
    validate(read.collect::<Result<Vec<_>, _>>()?)
}

/// Returns whether a Cluster has a list, even an empty one.
pub fn has_list(annotation: Option<&str>, cluster: &Value) -> bool {
    annotation.is_some() || variable(cluster).is_some()
}

/// Returns the extensions that a Cluster lists, and an error for each list that is invalid.
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

fn parse_entry(entry: &str) -> Listed {
    let (name, version) = match entry.split_once('@') {
        Some((name, version)) => (name, Some(version.trim().to_owned())),
        None => (entry, None),
    };
    let key = ExtensionKey::parse(name.trim());
    Listed { name: key.local_name(), scope: key.scope, version }
}

/// Rejects invalid names, invalid ranges and duplicates.
fn validate(entries: impl IntoIterator<Item = (String, Listed)>) -> Result<Vec<Listed>, ListError> {
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
            return Err(ListError::Duplicate { entry });
        }
        list.push(listed);
    }
    Ok(list)
}

/// Returns whether a name is a DNS subdomain name, as Kubernetes requires for objects.
fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
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
    fn annotation_and_variable_are_equivalent() {
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
    fn errors_name_the_entry() {
        let annotations = [
            ("a,B", "entry B does not name an extension"),
            ("a/b", "entry a/b does not name an extension"),
            ("@1.x", "entry @1.x does not name an extension"),
            ("platform/", "entry platform/ does not name an extension"),
            ("a@>=1.30, <1.35", "entry <1.35 does not name an extension"),
            ("a@", "entry a@ has an invalid version range"),
            ("a@latest", "entry a@latest has an invalid version range"),
            ("a,b,a@1.x", "entry a@1.x repeats an extension of the list"),
        ];
        for (text, hint) in annotations {
            let error = from_annotation(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{error:?} does not contain {hint:?}");
        }
        let variables = [
            (json!("a"), "variable extensions is not a list"),
            (json!(["a", 1]), "entry 1 is neither a string"),
            (json!([{"version": "1.x"}]), "is neither a string"),
            (json!([{"name": "a", "range": "1.x"}]), "is neither a string"),
            (json!([{"name": "a", "scope": "World"}]), "is neither a string"),
            (json!([{"name": "a b"}]), "entry a b does not name an extension"),
            (json!(["a", {"name": "a"}]), "entry a repeats an extension of the list"),
        ];
        for (value, hint) in variables {
            let error = from_variable(&value).unwrap_err().to_string();
            assert!(error.contains(hint), "{error:?} does not contain {hint:?}");
        }
    }

    #[test]
    fn an_error_in_one_list_does_not_affect_the_other() {
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
