//! Values: YAML text or JSON, merged by top-level key.

use chandler_core::digest::Digest;
use chandler_tool::generated::tool::{CanonicalValues, Values, values::Content};
use serde_json::{Map, Value};

use crate::failure::{Category, Failure};

/// Reads and merges layers of values.
pub fn read(layers: &[Values]) -> Result<Map<String, Value>, Failure> {
    let mut merged = Map::new();
    for (index, layer) in layers.iter().enumerate() {
        let values = match &layer.content {
            Some(Content::Text(text)) if text.trim().is_empty() => Some(Map::new()),
            Some(Content::Text(text)) => serde_saphyr::from_str(text).ok().and_then(into_object),
            Some(Content::Json(json)) => object(json),
            None => Some(Map::new()),
        };
        // The parser's message may contain values.
        let invalid = || format!("layer {} of {} of the values is not a mapping", index + 1, layers.len());
        merged = merge(merged, values.ok_or_else(|| Failure::new(Category::InvalidValues, invalid()))?);
    }
    Ok(merged)
}

/// Reads a JSON object.
pub fn object(json: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(json).ok().and_then(into_object)
}

fn into_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// Later values replace earlier ones of the same key.
pub fn merge(mut earlier: Map<String, Value>, later: Map<String, Value>) -> Map<String, Value> {
    earlier.extend(later);
    earlier
}

/// Returns JSON with sorted keys and without white space.
pub fn canonical(values: Map<String, Value>) -> String {
    let mut values = Value::Object(values);
    values.sort_all_objects();
    values.to_string()
}

pub fn canonical_message(values: Map<String, Value>) -> CanonicalValues {
    let json = canonical(values);
    CanonicalValues { digest: Digest::of(&json).to_string(), json: json.into_bytes() }
}

/// Returns the texts in the values, which no message may contain.
pub fn texts(values: &Map<String, Value>) -> Vec<String> {
    fn collect(value: &Value, texts: &mut Vec<String>) {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
            Value::Object(fields) => fields.values().for_each(|field| collect(field, texts)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut texts = Vec::new();
    values.values().for_each(|value| collect(value, &mut texts));
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(text: &str) -> Values {
        Values { content: Some(Content::Text(text.to_owned())) }
    }

    #[test]
    fn later_layers_replace_earlier_ones() {
        let merged = read(&[layer("b: {x: 1}\na: 1\n"), layer("b: {y: 1.5}"), layer("")]).unwrap();
        assert_eq!(canonical(merged), r#"{"a":1,"b":{"y":1.5}}"#);
    }

    #[test]
    fn a_failure_names_the_layer_and_no_value() {
        for wrong in ["[canary]", "canary", "a: [canary", "a: *canary"] {
            let failure = read(&[layer("a: 1"), layer(wrong)]).unwrap_err();
            assert!(failure.message.contains("layer 2 of 2"), "{}", failure.message);
            assert!(!failure.message.contains("canary"), "{}", failure.message);
        }
    }
}
