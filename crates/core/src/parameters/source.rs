//! Turns the value of a `parametersFrom` entry into a layer of parameters.

use std::fmt;

use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

use super::Parameters;
use crate::{
    failure::{Category, Failure},
    yaml::strict_options,
};

/// Nesting of maps and lists. Objects of the API server are not deeper.
const MAX_DEPTH: usize = 100;

/// The value that a source contains.
#[derive(Clone, PartialEq)]
pub enum SourceValue {
    /// The text of a key of a Secret or ConfigMap.
    Text(String),
    /// A field of an object.
    Value(Value),
    /// The objects that a selector matched, as templates see them.
    Objects(Vec<Value>),
}

/// Omits the content, which may be secret.
impl fmt::Debug for SourceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceValue").finish_non_exhaustive()
    }
}

impl SourceValue {
    /// Returns the layer. `source` names the source in errors, which never contain the value, and `field` the list of sources.
    ///
    /// With `parameter`, the value is set at that path unchanged: a text is not parsed as YAML.
    pub fn layer(self, source: &str, field: &str, parameter: Option<&str>) -> Result<Parameters, Failure> {
        if let Some(parameter) = parameter {
            let value = match self {
                Self::Text(text) => Value::String(text),
                Self::Value(value) => value,
                Self::Objects(objects) => Value::Array(objects),
            };
            return at_path(parameter, value);
        }
        let layer = match self {
            Self::Text(text) | Self::Value(Value::String(text)) => as_map(value_from_yaml(source, &text)?),
            Self::Value(Value::Object(parameters)) => Some(parameters),
            Self::Value(_) | Self::Objects(_) => None,
        };
        layer.ok_or_else(|| {
            invalid(format!(
                "{source} is not a map of parameters: write it as a map, or name the parameter that it sets \
                 ({field}[].parameter)"
            ))
        })
    }

    /// Returns the name and the value that a template of the entry sees.
    pub fn into_template_data(self) -> (&'static str, Value) {
        match self {
            Self::Text(text) => ("Content", Value::String(text)),
            Self::Value(value) => ("Content", value),
            Self::Objects(objects) => ("Objects", Value::Array(objects)),
        }
    }
}

/// Parses a YAML map of parameters like a Helm values file, except that duplicate keys are an error. An empty text is
/// an empty map.
pub fn from_yaml(source: &str, text: &str) -> Result<Parameters, Failure> {
    read(source, text, DuplicateKeyPolicy::Error)
}

/// Parses the values of a package. As in Helm, the last of duplicate keys wins, because users of the package cannot fix
/// them.
pub fn from_package_yaml(source: &str, text: &str) -> Result<Parameters, Failure> {
    read(source, text, DuplicateKeyPolicy::LastWins)
}

/// Parses any YAML like [`from_yaml`]. An empty text is null.
pub fn value_from_yaml(source: &str, text: &str) -> Result<Value, Failure> {
    parse(source, text, DuplicateKeyPolicy::Error)
}

fn read(source: &str, text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Parameters, Failure> {
    let parameters = as_map(parse(source, text, duplicate_keys)?);
    parameters.ok_or_else(|| invalid(format!("{source} is not a map of parameters: write it as a map")))
}

/// Returns a map of parameters. Null is an empty one.
fn as_map(value: Value) -> Option<Parameters> {
    match value {
        Value::Null => Some(Parameters::new()),
        Value::Object(parameters) => Some(parameters),
        _ => None,
    }
}

fn parse(source: &str, text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Failure> {
    let options = strict_options(MAX_DEPTH, duplicate_keys);
    let value: Option<Value> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The parser's own message may quote the text.
        let location = error
            .location()
            .map(|location| format!(" (line {}, column {})", location.line(), location.column()))
            .unwrap_or_default();
        invalid(format!("{source} is not valid YAML{location}: correct it"))
    })?;
    Ok(value.unwrap_or_default())
}

/// Returns the field of an object at a JSON pointer, or `None` if it is absent or null.
pub fn lookup<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

fn at_path(path: &str, value: Value) -> Result<Parameters, Failure> {
    let names = split(path);
    if names.iter().any(String::is_empty) {
        return Err(Failure::new(
            Category::InvalidSpec,
            format!(
                "parameter {path:?} contains an empty name: separate names by dots and write a dot inside a name as \\."
            ),
        ));
    }
    let layer = names
        .into_iter()
        .rev()
        .fold(value, |value, name| Value::Object(std::iter::once((name, value)).collect()));
    Ok(if let Value::Object(layer) = layer { layer } else { Parameters::new() })
}

/// Splits a path at dots. `\.` is a dot in a name, `\\` a backslash.
fn split(path: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        let Some(name) = names.last_mut() else { break };
        match c {
            '.' => names.push(String::new()),
            '\\' => name.push(chars.next().unwrap_or('\\')),
            _ => name.push(c),
        }
    }
    names
}

fn invalid(message: String) -> Failure {
    Failure::new(Category::InvalidValues, message)
}
