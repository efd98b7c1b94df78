//! Reads the state of an object, and what release it belongs to.

use std::collections::BTreeMap;

use chandler_core::{
    health::{ObjectState, object_state},
    identity::ReleaseId,
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::kind::ObjectKind;
use crate::{
    pages::{MAX_NAME, parse},
    watch_error::WatchError,
};

/// The annotations with the release of an object, as Helm writes them.
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// Identifies an object among those of its kind: `namespace/name`.
pub type ObjectKey = Box<str>;

/// Returns the key of an object. Objects of the cluster have an empty namespace.
pub fn object_key(namespace: &str, name: &str) -> ObjectKey {
    format!("{namespace}/{name}").into()
}

/// Splits a key into namespace and name.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// Which object it is, and at which version. Of a bookmark, only the version is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    pub key: ObjectKey,
    /// `None` if the object does not say it.
    pub release: Option<ReleaseId>,
    pub version: String,
}

/// The parts of an object that its state depends on. The largest ones, such as managed fields and data, are skipped.
#[derive(Deserialize)]
struct Parts<'a> {
    metadata: Metadata,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Metadata {
    fn into_head(self) -> Result<ObjectHead, WatchError> {
        let annotation = |key| self.annotations.as_ref()?.get(key);
        let release = annotation(RELEASE_NAMESPACE).zip(annotation(RELEASE_NAME));
        let release_names = release.into_iter().flat_map(|(namespace, name)| [namespace, name]);
        let names =
            self.namespace.iter().chain([&self.name]).chain(&self.resource_version).chain(release_names);
        if names.map(String::len).max() > Some(MAX_NAME) {
            return Err(WatchError::Unreadable);
        }
        Ok(ObjectHead {
            key: object_key(self.namespace.as_deref().unwrap_or_default(), &self.name),
            release: release.map(|(namespace, name)| ReleaseId::new(namespace, name)),
            version: self.resource_version.unwrap_or_default(),
        })
    }

    /// Returns the fields that the state of an object depends on.
    fn to_value(&self) -> Value {
        json!({"generation": self.generation, "deletionTimestamp": self.deletion_timestamp})
    }
}

/// Reads an object and its state. Lists and metadata do not say of what kind it is.
pub fn read_object(kind: &ObjectKind, object: &RawValue) -> Result<(ObjectHead, ObjectState), WatchError> {
    let Parts { metadata, spec, status } = parse(object)?;
    let mut value =
        json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata.to_value()});
    let head = metadata.into_head()?;
    for (name, part) in [("spec", spec), ("status", status)] {
        let Some(part) = part.filter(|_| kind.has_status()) else { continue };
        match parse(part) {
            Ok(part) => value[name] = part,
            // It is nested too deeply to be read.
            Err(_) => return Ok((head, ObjectState::Unknown)),
        }
    }
    Ok((head, object_state(&value)))
}

/// Reads what a health check can be about. The managed fields, which are large and say nothing about health, are left out.
pub fn read_for_check(kind: &ObjectKind, object: &RawValue) -> Result<Value, WatchError> {
    let CheckedParts { mut metadata, spec, status, data } = parse(object)?;
    metadata.remove("managedFields");
    let mut value = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata});
    for (name, part) in [("spec", spec), ("status", status), ("data", data)] {
        if let Some(part) = part {
            value[name] = part;
        }
    }
    Ok(value)
}

/// The parts of an object that a health check can be about.
#[derive(Deserialize)]
struct CheckedParts {
    metadata: Map<String, Value>,
    spec: Option<Value>,
    status: Option<Value>,
    data: Option<Value>,
}

/// Reads which object it is.
pub fn read_head(object: &RawValue) -> Result<ObjectHead, WatchError> {
    parse::<MetadataOnly>(object)?.metadata.into_head()
}

#[derive(Deserialize)]
struct MetadataOnly {
    metadata: Metadata,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    #[test]
    fn the_release_and_the_version_are_read_from_the_metadata() {
        let annotations = json!({RELEASE_NAME: "web", RELEASE_NAMESPACE: "shop"});
        let rows = [
            (json!({"name": "a", "namespace": "shop", "annotations": annotations}), "shop/a", true),
            (json!({"name": "a", "annotations": {RELEASE_NAME: "web"}, "managedFields": [{}]}), "/a", false),
            (json!({"name": "a", "annotations": null, "resourceVersion": "7"}), "/a", false),
        ];
        for (metadata, key, has_release) in rows {
            let head = read_head(&raw(&json!({"metadata": metadata, "data": {"k": "v"}}))).unwrap();
            assert_eq!(&*head.key, key);
            assert_eq!(head.release, has_release.then(|| ReleaseId::new("shop", "web")), "{metadata}");
            assert_eq!(head.version, metadata["resourceVersion"].as_str().unwrap_or_default());
        }
    }

    #[test]
    fn names_and_versions_are_limited() {
        let long = "x".repeat(MAX_NAME + 1);
        let annotations = |name: &str| json!({RELEASE_NAME: name, RELEASE_NAMESPACE: "shop"});
        for metadata in [
            json!({"name": long}),
            json!({"name": "a", "namespace": long}),
            json!({"name": "a", "resourceVersion": long}),
            json!({"name": "a", "annotations": annotations(&long)}),
        ] {
            assert!(read_head(&raw(&json!({"metadata": metadata}))).is_err(), "{metadata}");
        }
        assert!(read_head(&raw(&json!({"metadata": {"name": &long[1..]}}))).is_ok());
    }

    #[test]
    fn a_health_check_is_about_all_but_the_managed_fields() {
        let kind = ObjectKind::new("example.dev/v1", "Widget");
        let object = json!({
            "metadata": {"name": "a", "labels": {"l": "v"}, "managedFields": [{}]}, "spec": {"s": 1}, "data": {"d": 2},
            "status": null, "other": 3,
        });
        let expected = json!({
            "apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"l": "v"}},
            "spec": {"s": 1}, "data": {"d": 2},
        });
        assert_eq!(read_for_check(&kind, &raw(&object)).unwrap(), expected);
    }

    #[test]
    fn what_is_no_object_is_refused_without_its_content() {
        for text in [json!({"metadata": "canary"}), json!("canary"), json!({"items": ["canary"]})] {
            let error = read_head(&raw(&text)).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
