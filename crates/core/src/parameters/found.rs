//! What one entry of `parametersFrom` came to, as a layer.

use serde_json::Value;
use serde_saphyr::{Budget, DuplicateKeyPolicy, options, options::NonFiniteFloatPolicy};

use super::Parameters;
use crate::failure::{Category, Failure};

/// Maps in maps, lists in lists. The API server's own objects are no deeper.
const DEEPEST: usize = 100;

/// What was found at a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The text of a key.
    Text(String),
    /// A field of an object.
    Value(Value),
}

impl Found {
    /// The layer it makes. `source` says where it was found; what was found is never told.
    ///
    /// With `parameter`, it is set at that path as it is: a text stays a text, also where YAML would see a number.
    pub fn layer(self, source: &str, parameter: Option<&str>) -> Result<Parameters, Failure> {
        if let Some(parameter) = parameter {
            let value = match self {
                Self::Text(text) => Value::String(text),
                Self::Value(value) => value,
            };
            return at_path(parameter, value);
        }
        match self {
            Self::Text(text) | Self::Value(Value::String(text)) => from_yaml(source, &text),
            Self::Value(Value::Object(parameters)) => Ok(parameters),
            Self::Value(_) => Err(no_map(source)),
        }
    }
}

/// Parameters by name from YAML, read as Helm reads its values files, except that a name given twice is an error. An
/// empty text holds none.
pub fn from_yaml(source: &str, text: &str) -> Result<Parameters, Failure> {
    read(source, text, DuplicateKeyPolicy::Error)
}

/// The values of a package, of which Helm takes the last where a name is given twice. Its users cannot mend it.
pub fn from_package_yaml(source: &str, text: &str) -> Result<Parameters, Failure> {
    read(source, text, DuplicateKeyPolicy::LastWins)
}

fn read(source: &str, text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Parameters, Failure> {
    let mut budget = Budget::default();
    budget.max_depth = DEEPEST;
    let options = options! {
        budget: Some(budget),
        with_snippet: false,
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
    };
    let value: Option<Value> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The parser's own message may quote the text.
        let place = error
            .location()
            .map(|place| format!(" (line {}, column {})", place.line(), place.column()))
            .unwrap_or_default();
        invalid(format!("{source} is not YAML that can be read{place}: correct it"))
    })?;
    match value {
        None | Some(Value::Null) => Ok(Parameters::new()),
        Some(Value::Object(parameters)) => Ok(parameters),
        Some(_) => Err(no_map(source)),
    }
}

/// The field of an object that a JSON pointer names; None: there is none, or it is null.
pub fn lookup<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

fn at_path(path: &str, value: Value) -> Result<Parameters, Failure> {
    let names = split(path);
    if names.iter().any(String::is_empty) {
        return Err(Failure::new(
            Category::InvalidSpec,
            format!(
                "parameter {path:?} has an empty name in it: write names separated by dots, a dot inside a name as \\."
            ),
        ));
    }
    let layer = names
        .into_iter()
        .rev()
        .fold(value, |value, name| Value::Object(std::iter::once((name, value)).collect()));
    Ok(if let Value::Object(layer) = layer { layer } else { Parameters::new() })
}

/// Splits at dots; `\.` is a dot in a name, `\\` a backslash.
fn split(path: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        let Some(name) = names.last_mut() else { break };
        match letter {
            '.' => names.push(String::new()),
            '\\' => name.push(letters.next().unwrap_or('\\')),
            _ => name.push(letter),
        }
    }
    names
}

fn no_map(source: &str) -> Failure {
    invalid(format!(
        "{source} does not hold parameters by name: write it as a map, or name the one parameter that it sets \
         (parametersFrom[].parameter)"
    ))
}

fn invalid(message: String) -> Failure {
    Failure::new(Category::InvalidValues, message)
}
