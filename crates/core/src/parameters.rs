//! Parameters of an ExtensionInstance: layers are merged, validated against a schema and rendered as values.
//!
//! In ascending precedence: the defaults of the extension's version, `parametersFrom` in order, `parametersTemplate`,
//! `parameters`.

mod cost;
mod reference;
mod render;
mod schema;
mod secret_values;
mod source;

use serde_json::{Map, Value};

pub use self::{
    reference::{
        SecretContent, depends_on_cluster, has_values_of_release, may_be_secret, reference_texts,
        visible_object,
    },
    render::{Rendered, render},
    schema::{MAX_REPORTED, Schema, SchemaError, Violation, summarize},
    secret_values::{MASKED, SecretMask, SecretValues},
    source::{SourceValue, from_package_yaml, from_yaml, lookup, value_from_yaml},
};

/// Parameters by name.
pub type Parameters = Map<String, Value>;

/// Merges layers; later ones take precedence. Maps are merged recursively, all other values are replaced.
///
/// A null removes the value that earlier layers have set. It stays in the result because it also removes the chart's
/// default: Helm treats nulls the same way between values files and between those and the chart.
pub fn merge(layers: impl IntoIterator<Item = Parameters>) -> Parameters {
    let mut layers = layers.into_iter();
    let mut merged = layers.next().unwrap_or_default();
    for layer in layers {
        merge_into(&mut merged, layer);
    }
    merged
}

/// Merges a layer into others, over which it takes precedence: see [`merge`].
pub fn merge_into(base: &mut Parameters, layer: Parameters) {
    for (name, value) in layer {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(base)), Value::Object(layer)) => merge_into(base, layer),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// Returns about how many bytes of JSON a value has, at least the exact number for texts without escapes.
pub fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 20,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_size(item) + 1).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(name, value)| name.len() + 4 + json_size(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
