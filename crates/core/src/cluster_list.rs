//! Extensions that a Cluster or its ClusterClass lists in an annotation or in a variable of the topology.

use std::collections::HashSet;

use chandler_api::extensions::Scope;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    extension::ExtensionKey,
    parameters::{Parameters, value_from_yaml},
    resolution::Range,
};

/// Annotation of a Cluster or ClusterClass: `NAME`, `NAME@RANGE` or `platform/NAME@RANGE`, separated by commas or
/// lines; or a list in YAML, as in the variable.
pub const EXTENSIONS_ANNOTATION: &str = "chandler.dev/extensions";
/// Variable of a topology: a list of the same strings, or of maps `{name, scope, version, parameters,
/// parametersTemplate}`.
pub const EXTENSIONS_VARIABLE: &str = "extensions";

/// One extension in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Listed {
    /// Name of the Extension.
    pub name: String,
    /// Where the Extension is.
    #[serde(default)]
    pub scope: Scope,
    /// The accepted versions, as a range. `None` means any.
    #[serde(default)]
    pub version: Option<String>,
    /// Parameters of the instance.
    #[serde(default)]
    pub parameters: Option<Parameters>,
    /// Parameters of the instance as YAML with templates.
    #[serde(default)]
    pub parameters_template: Option<String>,
}

/// An error in a list of extensions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    #[error("variable {EXTENSIONS_VARIABLE} is not a list")]
    NoList,
    #[error("annotation {EXTENSIONS_ANNOTATION} begins like a list in YAML, but is none")]
    NoYaml,
    #[error(
        "entry {entry} is neither a string such as cert-manager@^1.14 nor a map of name, scope, version, parameters and \
         parametersTemplate"
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

/// Parses the annotation. No name of an extension begins like a list in YAML.
pub fn from_annotation(text: &str) -> Result<Vec<Listed>, ListError> {
    if text.trim_start().starts_with(['[', '-']) {
        let list = value_from_yaml("the list", text).ok().filter(Value::is_array);
        return from_variable(&list.ok_or(ListError::NoYaml)?);
    }
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    validate(entries.map(|entry| (entry.to_owned(), parse_entry(entry))))
}

/// Parses the value of the variable.
pub fn from_variable(value: &Value) -> Result<Vec<Listed>, ListError> {
    let entries = value.as_array().ok_or(ListError::NoList)?;
    let read = entries.iter().enumerate().map(|(index, entry)| match entry {
        Value::String(text) => Ok((text.clone(), parse_entry(text.trim()))),
        other => {
            // A list would be read as the fields in their order.
            let listed = Listed::deserialize(other).ok().filter(|_| other.is_object());
            let listed = listed.map(|mut listed| {
                listed.parameters.iter_mut().flat_map(Parameters::values_mut).for_each(normalize_numbers);
                (listed.name.clone(), listed)
            });
            listed.ok_or_else(|| ListError::NoEntry { entry: entry_name(index, other) })
        }
    });
    validate(read.collect::<Result<Vec<_>, _>>()?)
}

/// Turns whole floats, such as `1400.0`, into integers, as the API server does. Otherwise the instance would differ from what
/// was applied, as if a user had changed it.
fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Number(number) if number.is_f64() => {
            // A float is displayed without an exponent, and without a point if it is whole.
            let whole = number.as_f64().and_then(|float| float.to_string().parse::<i64>().ok());
            if let Some(whole) = whole {
                *value = whole.into();
            }
        }
        Value::Number(_) | Value::String(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// Returns how an error refers to an entry. It does not quote parameters.
fn entry_name(index: usize, entry: &Value) -> String {
    match (entry, entry.get("name").and_then(Value::as_str)) {
        (_, Some(name)) => name.to_owned(),
        (Value::Object(_) | Value::Array(_), None) => format!("number {}", index + 1),
        (other, None) => other.to_string(),
    }
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
    Listed { name: key.local_name(), scope: key.scope, version, parameters: None, parameters_template: None }
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
        let version = version.map(str::to_owned);
        Listed { name: name.to_owned(), scope, version, parameters: None, parameters_template: None }
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
        assert_eq!(from_annotation(&maps.to_string()).unwrap(), expected, "JSON is YAML");
        let yaml = "- cert-manager@^1.14\n- {name: cilium, scope: Platform, version: '>=1.16 <1.18'}\n- metrics-server\n- cilium";
        assert_eq!(from_annotation(yaml).unwrap(), expected);
        assert_eq!(from_annotation(" \n,").unwrap(), []);
        assert_eq!(from_variable(&json!([])).unwrap(), []);
    }

    #[test]
    fn entries_carry_parameters() {
        let list =
            json!([{"name": "cni", "parameters": {"mtu": 1400}, "parametersTemplate": "zone: a"}, "dns"]);
        let yaml = "\n- name: cni\n  parameters: {mtu: 1400}\n  parametersTemplate: 'zone: a'\n- dns\n";
        for found in [from_variable(&list).unwrap(), from_annotation(yaml).unwrap()] {
            let [cni, dns] = found.try_into().unwrap();
            assert_eq!(json!(cni.parameters), json!({"mtu": 1400}));
            assert_eq!(cni.parameters_template.as_deref(), Some("zone: a"));
            assert_eq!(dns, listed("dns", Scope::Namespace, None));
        }
        let secret = json!([{"name": "cni", "parameters": "CANARY"}, {"parameters": {"a": "CANARY"}}]);
        for entry in secret.as_array().unwrap() {
            let error = from_variable(&json!([entry])).unwrap_err().to_string();
            assert!(!error.contains("CANARY"), "{error}");
        }
    }

    #[test]
    fn whole_floats_are_integers() {
        let expected = json!({"mtu": 1400, "big": 1000, "ratio": 0.5, "list": [{"a": -2}], "text": "1.0"});
        let list = json!([{"name": "cni", "parameters": {
            "mtu": 1400.0, "big": 1e3, "ratio": 0.5, "list": [{"a": -2.0}], "text": "1.0",
        }}]);
        let yaml = "- name: cni\n  parameters: {mtu: 1400.0, big: 1e3, ratio: 0.5, list: [{a: -2.0}], text: '1.0'}\n";
        for found in [from_variable(&list).unwrap(), from_annotation(yaml).unwrap()] {
            assert_eq!(json!(found[0].parameters).to_string(), expected.to_string());
        }
        let huge = json!([{"name": "cni", "parameters": {"huge": 1e30}}]);
        assert_eq!(json!(from_variable(&huge).unwrap()[0].parameters), json!({"huge": 1e30}));
    }

    #[test]
    fn errors_name_the_entry() {
        let annotations = [
            ("- a\n b: 1", "begins like a list in YAML"),
            ("-a,b", "begins like a list in YAML"),
            ("[a, [b]]", "entry number 2 is neither a string"),
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
            (json!([{"version": "1.x"}]), "entry number 1 is neither a string"),
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
