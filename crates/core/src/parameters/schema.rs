//! Parameters held against a JSON schema that nobody vouches for, in bounded time, without telling values.

use std::{collections::BTreeSet, fmt};

use jsonschema::{
    PatternOptions, ValidationError, Validator,
    error::ValidationErrorKind,
    paths::{Location, LocationSegment},
};
use serde_json::Value;

use super::{Parameters, effort};
use crate::failure::{Category, Failure};

/// How many violations are told.
pub const MOST_TOLD: usize = 10;
/// Of one message: a schema may be quoted in it.
const LONGEST_MESSAGE: usize = 300;
/// Of one pattern, when it is made ready.
const LARGEST_PATTERN: usize = 1 << 20;

/// A schema that is ready for use, for any number of clusters.
#[derive(Clone, Debug)]
pub struct Schema {
    schema: Value,
    validator: Validator,
}

/// Why a schema cannot be used. It is the Extension's fault, or the package's, not the instance's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "the schema of the parameters cannot be used: {0}; correct parameters.schema of the Extension's version, or \
         values.schema.json in its package"
    )]
    Invalid(String),
    #[error(
        "the schema of the parameters takes too long to check: {0}; make parameters.schema of the Extension's version \
         simpler, or values.schema.json in its package"
    )]
    Costly(&'static str),
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::new(Category::InvalidPackage, error.to_string())
    }
}

/// A parameter that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// For example `auth.users[0].name`; empty: the parameters as a whole.
    pub path: String,
    /// What is wrong. Names of parameters and the schema are quoted, values are not: they may be secret.
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
    /// Makes a schema ready. References lead nowhere but into the schema itself.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        effort::check_schema(schema).map_err(SchemaError::Costly)?;
        let validator = jsonschema::options()
            // Linear in the length of the text, whatever the pattern; it is Helm's choice too.
            .with_pattern_options(PatternOptions::regex().size_limit(LARGEST_PATTERN))
            .offline()
            .build(schema)
            .map_err(|error| SchemaError::Invalid(unusable(&error)))?;
        Ok(Self { schema: schema.clone(), validator })
    }

    /// What does not fit. A null counts as absent: it takes a parameter away.
    pub fn violations(&self, parameters: &Parameters) -> Result<Vec<Violation>, SchemaError> {
        let parameters = without_nulls(parameters);
        effort::check(&self.schema, &parameters).map_err(SchemaError::Costly)?;
        // Two ways through the schema may find the same.
        let violations: BTreeSet<_> =
            self.validator.iter_errors(&parameters).map(|error| violation(&error)).collect();
        Ok(violations.into_iter().collect())
    }
}

/// The violations as a failure of the instance, the first ones in words. None: there are none.
pub fn told(violations: &[Violation]) -> Option<Failure> {
    if violations.is_empty() {
        return None;
    }
    let mut words: Vec<_> = violations.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    let more = violations.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    let message = format!("the parameters do not fit the extension's schema: {}", words.join("; "));
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
            format!("a name in it is not allowed: {}", error.masked_with("the name"))
        }
        ValidationErrorKind::FalseSchema => "it is not allowed".to_owned(),
        _ => error.masked_with("the value").to_string(),
    };
    Violation { path: path(error.instance_path()), message: shortened(&message) }
}

fn unusable(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    shortened(&if place.is_empty() { error.to_string() } else { format!("at {place}: {error}") })
}

/// Written as `parametersFrom[].parameter` is.
fn path(location: &Location) -> String {
    let path = location.iter().fold(String::new(), |path, segment| match segment {
        LocationSegment::Index(index) => format!("{path}[{index}]"),
        LocationSegment::Property(name) => {
            let dot = if path.is_empty() { "" } else { "." };
            let name = name.replace('\\', "\\\\").replace('.', "\\.");
            format!("{path}{dot}{name}")
        }
    });
    shortened(&path)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
