//! Decides whether an object of Fleet has to be written.

use serde_json::{Map, Value};

use super::{WritePolicy, metadata};
use crate::digest::Digest;

/// Annotation of an object of Fleet: digest of what Chandler applied. It shows that a field is no longer wanted, which the
/// object itself does not.
pub const APPLIED_ANNOTATION: &str = "chandler.dev/fleet-applied";

/// What to do with an object of Fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteAction {
    /// It is as wanted, or must not be changed.
    Nothing,
    /// Apply this object.
    Apply(Value),
    /// Assign the fields of CAAPF to Chandler, then apply this object.
    TakeOver(Value),
}

/// Compares a wanted object with the one that exists.
///
/// An object that is being deleted is not changed: when it is gone, it is created again.
pub fn write_action(wanted: Value, existing: Option<&Value>, policy: WritePolicy) -> WriteAction {
    let digest = Digest::of(wanted.to_string()).hex().to_owned();
    let wanted = with_digest(wanted, digest.clone());
    let Some(existing) = existing else { return WriteAction::Apply(wanted) };
    if policy == WritePolicy::CreateOnly || metadata::is_deleting(existing) {
        return WriteAction::Nothing;
    }
    match existing["metadata"]["annotations"][APPLIED_ANNOTATION].as_str() {
        None => WriteAction::TakeOver(wanted),
        Some(applied) if applied == digest && contains(existing, &wanted) => WriteAction::Nothing,
        Some(_) => WriteAction::Apply(wanted),
    }
}

fn with_digest(mut object: Value, digest: String) -> Value {
    let annotations = &mut object["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    annotations[APPLIED_ANNOTATION] = Value::String(digest);
    object
}

/// Returns whether an object has all wanted fields with the wanted values. Lists are compared as a whole, except owner
/// references, to which others may add.
fn contains(existing: &Value, wanted: &Value) -> bool {
    match (existing, wanted) {
        (Value::Object(existing), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            existing.get(name).map_or_else(
                || is_empty(wanted),
                |existing| match (name.as_str(), existing, wanted) {
                    ("ownerReferences", Value::Array(existing), Value::Array(wanted)) => {
                        wanted.iter().all(|wanted| existing.iter().any(|existing| contains(existing, wanted)))
                    }
                    _ => contains(existing, wanted),
                },
            )
        }),
        (existing, wanted) => existing == wanted,
    }
}

/// The API server does not return empty labels, annotations and owner references.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted() -> Value {
        json!({
            "kind": "Cluster",
            "metadata": {"name": "blue", "labels": {"tier": "one"}, "ownerReferences": [{"uid": "u-1"}]},
            "spec": {"agentNamespace": "agents", "agentTolerations": [{"key": "a"}]},
        })
    }

    /// The object after it was applied, with what Fleet adds.
    fn applied() -> Value {
        let WriteAction::Apply(mut object) = write_action(wanted(), None, WritePolicy::Maintain) else {
            panic!("it is created")
        };
        object["metadata"]["labels"]["fleet"] = json!("added");
        object["metadata"]["ownerReferences"] = json!([{"uid": "u-0"}, {"uid": "u-1", "kind": "Cluster"}]);
        object["spec"]["redeployAgentGeneration"] = json!(0);
        object["status"] = json!({"ready": true});
        object
    }

    fn name(action: &WriteAction) -> &'static str {
        match action {
            WriteAction::Nothing => "nothing",
            WriteAction::Apply(_) => "apply",
            WriteAction::TakeOver(_) => "take over",
        }
    }

    #[test]
    fn objects_are_written_only_if_they_differ() {
        let changed = |pointer: &str, value: Value| {
            let mut object = applied();
            *object.pointer_mut(pointer).unwrap() = value;
            object
        };
        let mut without_annotation = applied();
        without_annotation["metadata"].as_object_mut().unwrap().remove("annotations");
        let mut deleting = without_annotation.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let rows = [
            ("missing", None, WritePolicy::Maintain, "apply"),
            ("missing, create only", None, WritePolicy::CreateOnly, "apply"),
            ("as wanted", Some(applied()), WritePolicy::Maintain, "nothing"),
            (
                "label changed",
                Some(changed("/metadata/labels/tier", json!("x"))),
                WritePolicy::Maintain,
                "apply",
            ),
            (
                "list changed",
                Some(changed("/spec/agentTolerations", json!([{"key": "a"}, {"key": "b"}]))),
                WritePolicy::Maintain,
                "apply",
            ),
            (
                "owner removed",
                Some(changed("/metadata/ownerReferences", json!([]))),
                WritePolicy::Maintain,
                "apply",
            ),
            ("differs, create only", Some(changed("/spec", json!({}))), WritePolicy::CreateOnly, "nothing"),
            ("of someone else", Some(without_annotation), WritePolicy::Maintain, "take over"),
            ("being deleted", Some(deleting), WritePolicy::Maintain, "nothing"),
        ];
        for (what, existing, policy, expected) in rows {
            assert_eq!(name(&write_action(wanted(), existing.as_ref(), policy)), expected, "{what}");
        }
    }

    #[test]
    fn a_field_that_is_no_longer_wanted_is_noticed() {
        let mut fewer = wanted();
        fewer["metadata"]["labels"] = json!({});
        let action = write_action(fewer, Some(&applied()), WritePolicy::Maintain);
        assert_eq!(name(&action), "apply");
    }
}
