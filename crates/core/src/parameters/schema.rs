//! Validates parameters against an untrusted JSON schema in bounded time. Messages never contain values.

use std::{collections::BTreeSet, fmt};

use jsonschema::{
    PatternOptions, ValidationError, Validator,
    error::ValidationErrorKind,
    paths::{Location, LocationSegment},
};
use serde_json::Value;

use super::{Parameters, cost};
use crate::failure::{Category, Failure};

/// Number of violations that a message lists. The rest are counted.
pub const MAX_REPORTED: usize = 10;
/// In characters. A message may quote the schema.
const MAX_MESSAGE: usize = 300;
/// Size of a compiled pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema {
    schema: Value,
    validator: Validator,
}

/// An error in the schema itself, which comes from the Extension or the package and not from the instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "the schema of the parameters is invalid: {0}; correct parameters.schema of the Extension's version, or \
         values.schema.json in its package"
    )]
    Invalid(String),
    #[error(
        "the schema of the parameters takes too long to validate: {0}; simplify parameters.schema of the Extension's \
         version, or values.schema.json in its package"
    )]
    Costly(&'static str),
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::new(Category::InvalidPackage, error.to_string())
    }
}

/// A parameter that violates the schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// For example `auth.users[0].name`. Empty for the parameters as a whole.
    pub path: String,
    /// Quotes names of parameters and the schema, but no values, because those may be secret.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl Schema {
    /// Compiles a schema. References to other documents are not resolved.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        cost::check_schema(schema).map_err(SchemaError::Costly)?;
        let validator = jsonschema::options()
            // Matches in time linear in the length of the text for every pattern, as in Helm.
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN))
            .offline()
            .build(schema)
            .map_err(|error| SchemaError::Invalid(describe(&error)))?;
        Ok(Self { schema: schema.clone(), validator })
    }

    /// Returns the parameters that violate the schema. A null counts as absent, because it removes a parameter.
    pub fn violations(&self, parameters: &Parameters) -> Result<Vec<Violation>, SchemaError> {
        let parameters = without_nulls(parameters);
        cost::check(&self.schema, &parameters).map_err(SchemaError::Costly)?;
        // Several paths through the schema may report the same violation.
        let violations: BTreeSet<_> =
            self.validator.iter_errors(&parameters).map(|error| violation(&error)).collect();
        Ok(violations.into_iter().collect())
    }
}

/// Summarizes violations as a failure of the instance. Returns `None` if there are none.
pub fn summarize(violations: &[Violation]) -> Option<Failure> {
    if violations.is_empty() {
        return None;
    }
    let mut reported: Vec<_> = violations.iter().take(MAX_REPORTED).map(ToString::to_string).collect();
    let more = violations.len().saturating_sub(MAX_REPORTED);
    if more > 0 {
        reported.push(format!("and {more} more"));
    }
    let message = format!("the parameters do not match the extension's schema: {}", reported.join("; "));
    Some(Failure::new(Category::InvalidValues, message))
}

fn without_nulls(parameters: &Parameters) -> Value {
    let kept = parameters.iter().filter(|(_, value)| !value.is_null());
    let kept = kept.map(|(name, value)| {
        let value = value.as_object().map_or_else(|| value.clone(), without_nulls);
        (name.clone(), value)
    });
    Value::Object(kept.collect())
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let message = match error.kind() {
        ValidationErrorKind::PropertyNames { error } => {
            format!("it contains a name that is not allowed: {}", error.masked_with("the name"))
        }
        ValidationErrorKind::FalseSchema => "it is not allowed".to_owned(),
        _ => error.masked_with("the value").to_string(),
    };
    Violation { path: path(error.instance_path()), message: truncated(&message) }
}

fn describe(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().as_str();
    truncated(&if path.is_empty() { error.to_string() } else { format!("at {path}: {error}") })
}

/// Returns a path in the syntax of `parametersFrom[].parameter`.
fn path(location: &Location) -> String {
    let path = location.iter().fold(String::new(), |path, segment| match segment {
        LocationSegment::Index(index) => format!("{path}[{index}]"),
        LocationSegment::Property(name) => {
            let dot = if path.is_empty() { "" } else { "." };
            let name = name.replace('\\', "\\\\").replace('.', "\\.");
            format!("{path}{dot}{name}")
        }
    });
    truncated(&path)
}

fn truncated(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
