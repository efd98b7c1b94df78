//! Parts of object metadata in the JSON form of the API server.

use std::collections::BTreeMap;

use chandler_api::LAST_APPLIED_ANNOTATION;
use serde_json::{Map, Value, json};

pub fn name(object: &Value) -> &str {
    text(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub fn labels(object: &Value) -> BTreeMap<String, String> {
    strings(&object["metadata"]["labels"])
}

/// Returns the annotations that may be copied to another object.
pub fn annotations(object: &Value) -> BTreeMap<String, String> {
    let mut annotations = strings(&object["metadata"]["annotations"]);
    // It must not be copied to another object.
    annotations.remove(LAST_APPLIED_ANNOTATION);
    annotations
}

fn strings(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flat_map(Map::iter);
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the owner reference to an object. It blocks no deletion.
pub fn owner_reference(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": name(object), "uid": uid(object),
    })
}
