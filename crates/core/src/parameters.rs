//! Parameters of an ExtensionInstance: layers are merged, validated against a schema and rendered as values.
//!
//! In ascending precedence: the defaults of the extension's version, `parametersFrom` in order, `parametersTemplate`,
//! `parameters`.

mod cost;
mod render;
mod schema;
mod source;

use serde_json::{Map, Value};

pub use self::{
    render::{Rendered, render},
    schema::{MAX_REPORTED, Schema, SchemaError, Violation, summarize},
    source::{SourceValue, from_package_yaml, from_yaml, lookup},
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

fn merge_into(base: &mut Parameters, layer: Parameters) {
    for (name, value) in layer {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(base)), Value::Object(layer)) => merge_into(base, layer),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
