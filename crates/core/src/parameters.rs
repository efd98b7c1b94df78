//! What an instance's parameters come to: layers from several places, merged, held against a schema, written as values.
//!
//! From the weakest to the strongest: the defaults of the extension's version, `parametersFrom` in order,
//! `parametersTemplate`, `parameters`.

mod effort;
mod found;
mod schema;
mod text;

use serde_json::{Map, Value};

pub use self::{
    found::{Found, from_package_yaml, from_yaml, lookup},
    schema::{MOST_TOLD, Schema, SchemaError, Violation, told},
    text::{Rendered, rendered},
};

/// Parameters by name.
pub type Parameters = Map<String, Value>;

/// All layers as one, later ones winning. Maps are merged deeply; anything else replaces what was there.
///
/// A null takes away what the layers before it set. It stays in the result, because it takes away the package's own
/// default just so: Helm treats it alike between values files and between those and the chart.
pub fn merge(layers: impl IntoIterator<Item = Parameters>) -> Parameters {
    let mut layers = layers.into_iter();
    let mut merged = layers.next().unwrap_or_default();
    for layer in layers {
        lay_over(&mut merged, layer);
    }
    merged
}

fn lay_over(below: &mut Parameters, above: Parameters) {
    for (name, value) in above {
        match (below.get_mut(&name), value) {
            (Some(Value::Object(below)), Value::Object(above)) => lay_over(below, above),
            (_, value) => {
                below.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
