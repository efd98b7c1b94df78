//! Masks the data of Secrets, so that a diff shows which keys change, but no values.

use chandler_api::LAST_APPLIED_ANNOTATION;
use serde_json::{Map, Value};

use crate::parameters::{MASKED, SecretMask, SecretValues};

const CHANGED: &str = "<masked, changed>";
const SECRET: &str = "Secret";
/// What identifies an object.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
/// The fields of a Secret with secret values.
const FIELDS: [&str; 2] = ["data", "stringData"];

/// Returns both versions of an object, in which all Secrets are masked: the object itself, the items of lists, and those that are
/// nested in other objects. An object that is a Secret in one version is masked in both.
pub fn mask(old: Option<&Value>, new: Option<&Value>) -> (Option<Value>, Option<Value>) {
    (masked(old, new, Marks::None), masked(new, old, Marks::Changes))
}

/// Returns both versions of an object without the values that come from Secrets. A text that has changed, but looks the same
/// without them, is marked.
pub fn hide(
    secrets: &SecretValues,
    old: Option<Value>,
    new: Option<Value>,
) -> (Option<Value>, Option<Value>) {
    if secrets.is_empty() {
        return (old, new);
    }
    let mask = secrets.mask();
    let hidden = new.map(|new| with_identity(new, |new| hide_in(&mask, new, old.as_ref())));
    let old = old.map(|old| with_identity(old, |old| hide_in(&mask, old, None)));
    (old, hidden)
}

/// Changes an object, except for what identifies it, which is part of the plan anyway.
fn with_identity(mut object: Value, change: impl FnOnce(&mut Value)) -> Value {
    let before = IDENTITY.map(|field| object.pointer(field).cloned());
    change(&mut object);
    for (field, value) in IDENTITY.into_iter().zip(before) {
        if let (Some(field), Some(value)) = (object.pointer_mut(field), value) {
            *field = value;
        }
    }
    object
}

fn hide_in(mask: &SecretMask<'_>, value: &mut Value, before: Option<&Value>) {
    match value {
        Value::String(text) => {
            let hidden = mask.hide(text);
            let is_other = before
                .and_then(Value::as_str)
                .is_some_and(|before| before != text && *text != hidden && mask.hide(before) == hidden);
            *text = if is_other { hidden.replace(MASKED, CHANGED) } else { hidden };
        }
        Value::Number(number) => {
            let hidden = mask.hide(&number.to_string());
            if hidden == MASKED {
                *value = Value::from(mark(value, before));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                hide_in(mask, item, before.and_then(|before| before.get(index)));
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                hide_in(mask, value, before.and_then(|before| before.get(field)));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Whether values that differ from the other version are marked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    None,
    Changes,
}

fn masked(value: Option<&Value>, other: Option<&Value>, marks: Marks) -> Option<Value> {
    let mut value = value?.clone();
    mask_secrets(&mut value, other, marks);
    Some(value)
}

/// Masks all Secrets in a value. Returns whether it contains one.
fn mask_secrets(value: &mut Value, other: Option<&Value>, marks: Marks) -> bool {
    let is_secret = is_secret(value) || other.is_some_and(is_secret);
    let is_list = is_secret_list(value) || other.is_some_and(is_secret_list);
    let mut found = is_secret;
    match value {
        Value::Object(fields) => {
            for (field, value) in &mut *fields {
                let other = other.and_then(|other| other.get(field));
                found |= match value {
                    Value::Array(items) if is_list && field == "items" => {
                        mask_items(items, other, marks);
                        true
                    }
                    _ => mask_secrets(value, other, marks),
                };
            }
            if is_secret {
                mask_fields(fields, other, marks);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                found |= mask_secrets(item, other.and_then(|other| other.get(index)), marks);
            }
        }
        _ => {}
    }
    if found {
        mask_copy(value);
    }
    found
}

/// Masks the copy of the whole object in the annotation of `kubectl apply`.
fn mask_copy(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(copy) = annotations.and_then(|all| all.get_mut(LAST_APPLIED_ANNOTATION)) {
        *copy = Value::from(MASKED);
    }
}

/// Masks the items of a list of Secrets, which need not name their kind.
fn mask_items(items: &mut [Value], other: Option<&Value>, marks: Marks) {
    for (index, item) in items.iter_mut().enumerate() {
        let other = other.and_then(|other| other.get(index));
        let is_masked = is_secret(item) || other.is_some_and(is_secret);
        mask_secrets(item, other, marks);
        if let Value::Object(fields) = &mut *item
            && !is_masked
        {
            mask_fields(fields, other, marks);
        }
        mask_copy(item);
    }
}

fn is_secret(object: &Value) -> bool {
    object["kind"] == SECRET && is_core(object)
}

fn is_secret_list(object: &Value) -> bool {
    object["kind"] == "SecretList" && is_core(object)
}

/// Returns whether an object belongs to the core group. One that names no group may.
fn is_core(object: &Value) -> bool {
    object
        .get("apiVersion")
        .is_none_or(|version| version == "v1" || version.as_str().is_none_or(str::is_empty))
}

/// Masks the values of a Secret, and marks those that differ from `other`.
fn mask_fields(secret: &mut Map<String, Value>, other: Option<&Value>, marks: Marks) {
    let before = other.filter(|_| marks == Marks::Changes);
    for field in FIELDS {
        let before = before.and_then(|before| before.get(field));
        match secret.get_mut(field) {
            Some(Value::Object(values)) => mask_values(values, before),
            Some(Value::Null) | None => {}
            Some(other) => *other = Value::from(mark(other, before)),
        }
    }
}

fn mask_values(values: &mut Map<String, Value>, before: Option<&Value>) {
    for (key, value) in values {
        let before = before.and_then(|before| before.get(key));
        *value = Value::from(mark(value, before));
    }
}

/// Returns the text for a value. A value that was not there before is not marked: its line is new.
fn mark(value: &Value, before: Option<&Value>) -> &'static str {
    if before.is_some_and(|before| before != value) { CHANGED } else { MASKED }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parameters::{SecretContent, SourceValue};

    fn secret(fields: &Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}});
        for (field, value) in fields.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    }

    #[test]
    fn no_value_of_a_secret_remains_and_changes_are_marked() {
        let old = secret(&json!({"data": {"same": "Y2FuYXJ5", "other": "Y2FuYXJ5MQ==", "gone": "Y2FuYXJ5"}}));
        let new = secret(&json!({
            "data": {"same": "Y2FuYXJ5", "other": "Y2FuYXJ5Mg==", "new": "Y2FuYXJ5"},
            "stringData": {"text": "canary"}, "type": "Opaque",
        }));
        let (old, new) = mask(Some(&old), Some(&new));
        let expected_old = json!({"same": "<masked>", "other": "<masked>", "gone": "<masked>"});
        assert_eq!(old.unwrap()["data"], expected_old);
        let new = new.unwrap();
        let expected_new = json!({"same": "<masked>", "other": "<masked, changed>", "new": "<masked>"});
        assert_eq!(new["data"], expected_new);
        assert_eq!(new["stringData"], json!({"text": "<masked>"}));
        assert_eq!(new["type"], "Opaque");
    }

    #[test]
    fn malformed_data_and_copies_of_the_object_are_masked_too() {
        let annotations = json!({LAST_APPLIED_ANNOTATION: "canary", "note": "shown"});
        let object = secret(&json!({
            "data": "canary", "stringData": ["canary"], "metadata": {"name": "login", "annotations": annotations},
        }));
        let (_, new) = mask(None, Some(&object));
        let new = new.unwrap();
        assert!(!new.to_string().contains("canary"), "{new}");
        assert_eq!(new["metadata"]["annotations"]["note"], "shown");
        let (old, none) = mask(Some(&object), None);
        assert!(!old.unwrap().to_string().contains("canary"));
        assert_eq!(none, None);
    }

    #[test]
    fn secrets_in_lists_and_in_other_objects_are_masked() {
        let value = |text: &str| json!({"metadata": {"name": "login"}, "data": {"password": text}});
        let secret = |text: &str| secret(&value(text));
        let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "items": items});
        let rows = [
            (
                "typed list",
                list("SecretList", json!([value("canary1")])),
                list("SecretList", json!([value("canary2")])),
            ),
            (
                "typed list with kinds",
                list("SecretList", json!([secret("canary1")])),
                list("SecretList", json!([secret("canary2")])),
            ),
            (
                "list in a list",
                list("List", json!([list("List", json!([secret("canary1")]))])),
                list("List", json!([list("List", json!([secret("canary2")]))])),
            ),
            (
                "typed list in a list",
                list("List", json!([list("SecretList", json!([value("canary1")]))])),
                list("List", json!([list("SecretList", json!([value("canary2")]))])),
            ),
            (
                "another object",
                json!({"apiVersion": "example.com/v1", "kind": "Template", "spec": {"object": secret("canary1")}}),
                json!({"apiVersion": "example.com/v1", "kind": "Template", "spec": {"object": secret("canary2")}}),
            ),
            (
                "no apiVersion",
                json!({"kind": "Secret", "data": {"password": "canary1"}}),
                json!({"kind": "Secret", "data": {"password": "canary2"}}),
            ),
        ];
        for (what, mut old, new) in rows {
            old["metadata"]["annotations"] = json!({LAST_APPLIED_ANNOTATION: "canary3"});
            let (old, new) = mask(Some(&old), Some(&new));
            let (old, new) = (old.unwrap().to_string(), new.unwrap().to_string());
            assert!(!old.contains("canary") && !new.contains("canary"), "{what}: {old} {new}");
            assert!(!old.contains(CHANGED) && new.contains(CHANGED), "{what}: {old} {new}");
        }
    }

    #[test]
    fn an_object_that_becomes_a_secret_is_masked_in_both_versions() {
        let other = json!({"apiVersion": "v1", "kind": "Other", "data": {"password": "canary"}});
        let secret = secret(&json!({"data": {"password": "canary"}}));
        for (old, new) in [(&other, &secret), (&secret, &other)] {
            let (old, new) = mask(Some(old), Some(new));
            assert!(!format!("{old:?}{new:?}").contains("canary"));
        }
    }

    #[test]
    fn values_of_secrets_are_hidden_in_other_objects() {
        let mut secrets = SecretValues::default();
        for text in ["password: canary-1", "password: canary-2\nport: 8443"] {
            secrets.add_source(&SourceValue::Text(text.to_owned()), SecretContent::All);
        }
        let object = |password: &str, color: &str| {
            let url = format!("https://admin:{password}@db");
            json!({
                "kind": "ConfigMap", "metadata": {"name": "canary-1"}, "data": {"url": url, "color": color},
                "spec": {"ports": [8443, 80]},
            })
        };
        let (old, new) = (object("canary-1", "red"), object("canary-2", "blue"));
        let (old, new) = hide(&secrets, Some(old), Some(new.clone()));
        let (old, shown) = (old.unwrap(), new.clone().unwrap());
        assert!(!format!("{}{}", old["data"], shown["data"]).contains("canary"), "{old} {shown}");
        assert_eq!((&old["metadata"]["name"], &old["kind"]), (&json!("canary-1"), &json!("ConfigMap")));
        assert_eq!(old["data"]["url"], "https://admin:<masked>@db");
        assert_eq!(shown["data"]["url"], "https://admin:<masked, changed>@db");
        assert_eq!(shown["data"]["color"], "blue");
        assert_eq!(shown["spec"]["ports"], json!(["<masked>", 80]));
        let none = SecretValues::default();
        assert_eq!(hide(&none, None, new.clone()), (None, new));
    }

    #[test]
    fn other_objects_are_shown_as_they_are() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"}});
        assert_eq!(mask(Some(&object), None), (Some(object.clone()), None));
        let other = json!({"apiVersion": "vault.example/v1", "kind": "Secret", "data": {"key": "value"}});
        assert_eq!(mask(None, Some(&other)), (None, Some(other.clone())));
    }
}
