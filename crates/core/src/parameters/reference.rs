//! The references of `parametersFrom` entries: which of their texts are templates, and what templates see of what they name.

use chandler_api::extensions::{ObjectList, ParametersFrom};
use k8s_openapi::ByteString;
use serde_json::{Map, Value};

use crate::placement::visible_to_templates;

/// Returns whether values with parameters of these entries have to be stored in a Secret: one of them refers to a Secret, or to
/// objects with unknown content.
pub fn may_be_secret(entries: &[ParametersFrom]) -> bool {
    entries.iter().any(|entry| entry.config_map.is_none())
}

/// What of an entry's content is masked for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretContent {
    None,
    All,
    /// The data of the listed Secrets, but not their metadata.
    DataOfObjects,
}

impl SecretContent {
    /// Returns what is masked of an entry. A field of an object may be a password; of listed objects, which have all kinds of
    /// fields, only Secrets are masked.
    pub fn of(entry: &ParametersFrom) -> Self {
        let is_secret = |list: &ObjectList| list.api_version == "v1" && list.kind == "Secret";
        match entry {
            ParametersFrom { secret: Some(_), .. } | ParametersFrom { object: Some(_), .. } => Self::All,
            ParametersFrom { objects: Some(list), .. } if is_secret(list) => Self::DataOfObjects,
            _ => Self::None,
        }
    }
}

/// Returns whether an entry refers to other objects for each cluster.
pub fn depends_on_cluster(entry: &ParametersFrom) -> bool {
    reference_texts(&mut entry.clone()).iter().any(|text| text.contains("{{"))
}

/// Returns the texts of an entry's reference that may be templates, always in the same order.
pub fn reference_texts(entry: &mut ParametersFrom) -> Vec<&mut String> {
    let ParametersFrom { secret, config_map, object, objects, parameter: _, template: _ } = entry;
    let mut texts = Vec::new();
    for reference in [secret, config_map].into_iter().flatten() {
        texts.extend([&mut reference.name, &mut reference.key]);
    }
    if let Some(field) = object {
        texts.extend([&mut field.name, &mut field.path]);
        texts.extend(&mut field.namespace);
    }
    if let Some(list) = objects {
        texts.extend(&mut list.namespace);
        let labels = list.selector.match_labels.iter_mut();
        texts.extend(labels.flat_map(|labels| labels.values_mut()));
        let expressions = list.selector.match_expressions.iter_mut().flatten();
        texts.extend(expressions.flat_map(|expression| expression.values.iter_mut().flatten()));
    }
    texts
}

/// Returns what templates see of an object that a selector matched: without metadata that changes with every write, and with the
/// data of a Secret as text, except for keys that are no text.
pub fn visible_object(object: &Value, is_secret: bool) -> Value {
    let mut object = visible_to_templates(object);
    if is_secret && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
        let decode = |(key, value): (String, Value)| Some((key, Value::String(decoded(&value)?)));
        let decoded: Map<_, _> = std::mem::take(data).into_iter().filter_map(decode).collect();
        *data = decoded;
    }
    object
}

/// Returns whether a Secret contains the values of a release. They are no source: values that contain themselves would never come to
/// rest.
pub fn has_values_of_release(secret: &Value) -> bool {
    let owners = secret.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let kinds = ["AddonRelease", "HelmReleaseProxy", "ExtensionInstance", "HelmChartProxy"];
    owners.is_some_and(|owners| owners.iter().any(|owner| kinds.iter().any(|kind| owner["kind"] == **kind)))
}

fn decoded(value: &Value) -> Option<String> {
    let bytes: ByteString = serde_json::from_value(value.clone()).ok()?;
    String::from_utf8(bytes.0).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(entry: Value) -> ParametersFrom {
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn secrets_and_fields_of_objects_are_masked() {
        let list = |kind: &str| {
            entry(json!({"objects": {"apiVersion": "v1", "kind": kind, "selector": {}}, "parameter": "all"}))
        };
        let rows = [
            (entry(json!({"secret": {"name": "a", "key": "b"}})), SecretContent::All),
            (entry(json!({"configMap": {"name": "a", "key": "b"}})), SecretContent::None),
            (
                entry(json!({"object": {"apiVersion": "v1", "kind": "Any", "name": "a", "path": "spec"}})),
                SecretContent::All,
            ),
            (list("Secret"), SecretContent::DataOfObjects),
            (list("Service"), SecretContent::None),
        ];
        for (entry, expected) in rows {
            assert_eq!(SecretContent::of(&entry), expected, "{entry:?}");
        }
    }

    #[test]
    fn references_may_depend_on_the_cluster() {
        let name = "{{ .Cluster.metadata.name }}";
        let rows = [
            (json!({"secret": {"name": "a", "key": "b"}}), false),
            (json!({"secret": {"name": name, "key": "b"}}), true),
            (json!({"configMap": {"name": "a", "key": name}}), true),
            (json!({"configMap": {"name": "a", "key": "b"}, "template": name}), false),
            (json!({"object": {"apiVersion": "v1", "kind": "A", "name": "a", "path": name}}), true),
            (
                json!({"object": {"apiVersion": "v1", "kind": "A", "name": "a", "path": "/a", "namespace": name}}),
                true,
            ),
            (
                json!({"objects": {"apiVersion": "v1", "kind": "A", "selector": {"matchLabels": {"a": "b"}}}}),
                false,
            ),
            (
                json!({"objects": {"apiVersion": "v1", "kind": "A", "selector": {"matchLabels": {"a": name}}}}),
                true,
            ),
            (
                json!({"objects": {"apiVersion": "v1", "kind": "A", "selector": {"matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["b", name]}, {"key": "a", "operator": "Exists"},
                ]}}}),
                true,
            ),
        ];
        for (row, expected) in rows {
            assert_eq!(depends_on_cluster(&entry(row.clone())), expected, "{row}");
        }
    }

    #[test]
    fn only_config_maps_are_not_secret() {
        let config_map = entry(json!({"configMap": {"name": "a", "key": "b"}}));
        let secret = entry(json!({"secret": {"name": "a", "key": "b"}}));
        let objects = entry(json!({"objects": {"apiVersion": "v1", "kind": "ConfigMap", "selector": {}}}));
        assert!(!may_be_secret(&[]) && !may_be_secret(std::slice::from_ref(&config_map)));
        assert!(may_be_secret(&[config_map, secret]) && may_be_secret(&[objects]));
    }

    #[test]
    fn values_of_releases_are_no_source() {
        let owned =
            |kind: &str| json!({"metadata": {"ownerReferences": [{"kind": "Cluster"}, {"kind": kind}]}});
        assert!(
            has_values_of_release(&owned("AddonRelease"))
                && has_values_of_release(&owned("HelmReleaseProxy"))
        );
        assert!(
            !has_values_of_release(&owned("Machine")) && !has_values_of_release(&json!({"metadata": {}}))
        );
    }

    #[test]
    fn data_of_secrets_is_decoded() {
        let secret = json!({
            "metadata": {"name": "anna", "resourceVersion": "1"}, "data": {"key": "c3NoLXJzYQ==", "binary": "//8="},
        });
        let visible = visible_object(&secret, true);
        assert_eq!(visible, json!({"metadata": {"name": "anna"}, "data": {"key": "ssh-rsa"}}));
        assert_eq!(visible_object(&secret, false)["data"], secret["data"]);
    }
}
