//! A number that changes whenever an object may differ from its package. It says nothing about the content of the object.

use std::collections::BTreeMap;

use chandler_core::digest::short_hash;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::kind::ObjectKind;
use crate::{pages::parse, watch_error::WatchError};

/// The fields of an object that change although no client has changed it, or that only describe the change.
const SKIPPED: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Computes the fingerprint of an object.
///
/// If the object is known completely, it depends on all of it except for the status. Otherwise it depends on its metadata: on the
/// version, which every change changes, or on the fields that were set if a controller reports a status, which may change often.
pub fn fingerprint(kind: &ObjectKind, object: &RawValue) -> Result<u64, WatchError> {
    let fields: Fields<'_> = parse(object)?;
    let metadata: Fields<'_> = parse(fields.get("metadata").ok_or(WatchError::Unreadable)?)?;
    let content = fields.iter().filter(|(name, _)| {
        // Lists do not say of what kind an object is, and watches do.
        !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) && kind.has_status()
    });
    let mut texts: Vec<&str> = content.flat_map(|(name, value)| [name, value.get()]).collect();
    let managers: Vec<&RawValue> = match metadata.get("managedFields") {
        Some(managers) if !kind.has_status() => parse::<Option<_>>(managers)?.unwrap_or_default(),
        _ => Vec::new(),
    };
    let managers: Vec<(Manager<'_>, &str)> =
        managers.into_iter().map(|one| Ok((parse(one)?, one.get()))).collect::<Result<_, WatchError>>()?;
    let has_subresource = managers.iter().any(|(manager, _)| manager.subresource.is_some());
    if kind.has_status() || has_subresource {
        let own = managers.iter().filter(|(manager, _)| manager.subresource.is_none());
        texts.extend(own.map(|(_, text)| *text));
        let metadata = metadata.iter().filter(|(name, _)| !SKIPPED.contains(&name.as_str()));
        texts.extend(metadata.flat_map(|(name, value)| [name.as_str(), value.get()]));
    } else {
        texts.extend(
            ["uid", "resourceVersion"].map(|name| metadata.get(name).map_or("", |value| value.get())),
        );
    }
    Ok(short_hash(texts))
}

/// An entry of the managed fields.
#[derive(Deserialize)]
struct Manager<'a> {
    #[serde(borrow, default)]
    subresource: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(kind: (&str, &str), object: &Value) -> u64 {
        let raw = serde_json::value::to_raw_value(object).unwrap();
        fingerprint(&ObjectKind::new(kind.0, kind.1), &raw).unwrap()
    }

    /// An object with another value at each of the pointers.
    fn changed(object: &Value, pointers: &[&str]) -> Value {
        let mut changed = object.clone();
        for pointer in pointers {
            *changed.pointer_mut(pointer).unwrap() = json!("changed");
        }
        changed
    }

    #[test]
    fn only_what_a_controller_reports_is_left_out() {
        let object = json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": 3,
                "labels": {"app": "web"}, "annotations": {"a": "b"}, "managedFields": [{"manager": "helm"}],
            },
            "spec": {"replicas": 1, "template": {"image": "web:1"}}, "status": {"replicas": 1},
        });
        let deployment = ("apps/v1", "Deployment");
        let before = of(deployment, &object);
        let typed = {
            let mut typed = object.clone();
            typed["kind"] = json!("Deployment");
            typed["apiVersion"] = json!("apps/v1");
            typed
        };
        assert_eq!(of(deployment, &typed), before, "an event of a watch names the kind");
        let reported = [
            "/metadata/resourceVersion",
            "/metadata/generation",
            "/metadata/managedFields",
            "/status/replicas",
        ];
        assert_eq!(of(deployment, &changed(&object, &reported)), before);
        let others = [
            "/metadata/uid",
            "/metadata/labels/app",
            "/metadata/annotations/a",
            "/spec/replicas",
            "/spec/template/image",
        ];
        for pointer in others {
            assert_ne!(of(deployment, &changed(&object, &[pointer])), before, "{pointer}");
        }
    }

    #[test]
    fn of_metadata_the_version_counts_unless_a_status_changes_it() {
        let metadata = |managers: Value| {
            json!({"metadata": {
                "name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7", "labels": {"app": "web"},
                "managedFields": managers,
            }})
        };
        let secret = ("v1", "Secret");
        let plain = metadata(json!([{"manager": "helm", "time": "1"}]));
        let before = of(secret, &plain);
        assert_ne!(of(secret, &changed(&plain, &["/metadata/resourceVersion"])), before);
        assert_ne!(of(secret, &changed(&plain, &["/metadata/uid"])), before);

        let scaler = ("autoscaling/v2", "HorizontalPodAutoscaler");
        let reported = metadata(json!([
            {"manager": "helm", "time": "1"},
            {"manager": "kube-controller-manager", "subresource": "status", "time": "2"},
        ]));
        let before = of(scaler, &reported);
        let status = ["/metadata/resourceVersion", "/metadata/managedFields/1/time"];
        assert_eq!(of(scaler, &changed(&reported, &status)), before);
        for pointer in ["/metadata/managedFields/0/time", "/metadata/labels/app"] {
            assert_ne!(of(scaler, &changed(&reported, &[pointer])), before, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_without_its_content() {
        for text in [json!({"metadata": "canary"}), json!("canary"), json!({"canary": 1})] {
            let raw = serde_json::value::to_raw_value(&text).unwrap();
            let error = fingerprint(&ObjectKind::new("v1", "Secret"), &raw).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
