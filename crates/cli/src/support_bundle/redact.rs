//! Redacts fields that may contain secrets. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// The text that replaces secrets.
pub const REDACTED: &str = "REDACTED";

/// Names of fields with user input, at any depth.
const SECRET_FIELDS: [&str; 6] =
    ["valuesTemplate", "parameters", "parametersTemplate", "defaults", "variables", "patches"];

/// Domains of the annotations that Chandler and Cluster API write themselves. Other annotations are redacted.
const KNOWN_DOMAINS: [&str; 2] = ["chandler.dev", "cluster.x-k8s.io"];

/// Parts of the names of fields that refer to a Secret.
const SECRET_REFERENCES: [&str; 2] = ["secret", "credentials"];

/// Redacts user input in an object or a list, at any depth. Calls `on_redact` with each redacted value.
pub fn redact(value: &mut Value, on_redact: &mut impl FnMut(&Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, on_redact)),
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "annotations" => redact_annotations(field, on_redact),
                    // Values of a release are a string. The values of a selector are a list; in the status they are
                    // digests.
                    "values" if field.is_string() => replace(field, on_redact),
                    name if SECRET_FIELDS.contains(&name) => replace(field, on_redact),
                    _ => redact(field, on_redact),
                }
            }
        }
        _ => {}
    }
}

fn replace(field: &mut Value, on_redact: &mut impl FnMut(&Value)) {
    on_redact(field);
    *field = REDACTED.into();
}

fn redact_annotations(field: &mut Value, on_redact: &mut impl FnMut(&Value)) {
    for (key, value) in field.as_object_mut().into_iter().flatten() {
        let domain = key.split('/').next().unwrap_or_default();
        let is_in = |known: &str| domain == known || domain.ends_with(&format!(".{known}"));
        if KNOWN_DOMAINS.iter().any(|known| is_in(known)) {
            redact(value, on_redact);
        } else {
            *value = REDACTED.into();
        }
    }
}

/// Returns namespace and name of the Secrets that an object references.
pub fn referenced_secrets(object: &Value) -> BTreeSet<(String, String)> {
    let string = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (string("/metadata/namespace"), string("/metadata/name"));
    let mut secrets = BTreeSet::new();
    if object.get("kind").and_then(Value::as_str) == Some("Cluster") {
        secrets.insert((namespace.to_owned(), format!("{name}-kubeconfig")));
    }
    if let Some(spec) = object.get("spec") {
        collect_references(spec, namespace, false, &mut secrets);
    }
    secrets
}

/// Adds each object with a `name` whose field refers to a Secret. `is_reference` is whether the field of `value` does.
fn collect_references(
    value: &Value,
    namespace: &str,
    is_reference: bool,
    secrets: &mut BTreeSet<(String, String)>,
) {
    match value {
        Value::Array(items) => {
            for item in items {
                collect_references(item, namespace, is_reference, secrets);
            }
        }
        Value::Object(fields) => {
            if let Some(name) = fields.get("name").and_then(Value::as_str).filter(|_| is_reference) {
                let explicit =
                    fields.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty());
                secrets.insert((explicit.unwrap_or(namespace).to_owned(), name.to_owned()));
            }
            for (field, inner) in fields {
                let field = field.to_lowercase();
                let is_reference = SECRET_REFERENCES.iter().any(|part| field.contains(part));
                collect_references(inner, namespace, is_reference, secrets);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Stands for a secret wherever users may write one.
    const CANARY: &str = "canary-7f3a";

    #[test]
    fn user_input_is_redacted() {
        let mut object = json!({
            "metadata": {
                "name": "kept", "labels": {"fleet": "kept"},
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"valuesTemplate\":\"{CANARY}\"}}"),
                    "someone.example/note": CANARY, "bare": CANARY, "evilchandler.dev/x": CANARY,
                    "chandler.dev/input": "kept", "helmreleaseproxy.addons.cluster.x-k8s.io/is-release-name-generated": "kept",
                },
                "managedFields": [{"fieldsV1": {"f:x": CANARY}}],
            },
            "spec": {
                "values": CANARY, "valuesTemplate": CANARY, "parameters": {"deep": [CANARY]},
                "parametersTemplate": CANARY, "versions": [{"parameters": {"defaults": {"a": CANARY}}, "defaults": CANARY}],
                "topology": {"variables": [{"name": "x", "value": CANARY}], "workers": {"variables": {"overrides": CANARY}}},
                "clusterSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["kept"]}]},
            },
            "status": {"values": {"text": "sha256:kept"}},
        });
        let mut redacted = Vec::new();
        redact(&mut object, &mut |value| redacted.push(value.clone()));
        let text = object.to_string();
        assert!(!text.contains(CANARY), "{text}");
        assert_eq!(text.matches("kept").count(), 6, "{text}");
        assert_eq!(redacted.len(), 8, "{redacted:?}");
    }

    #[test]
    fn referenced_secrets_are_found() {
        let object = json!({
            "kind": "HelmChartProxy", "metadata": {"name": "x", "namespace": "fleet"},
            "spec": {
                "credentials": {"secret": {"name": "login", "namespace": "other"}, "key": "k"},
                "tlsConfig": {"caSecret": {"name": "ca"}}, "clusterRef": {"name": "alpha"},
                "parametersFrom": [{"secret": {"name": "token", "key": "t"}}, {"configMap": {"name": "no", "key": "k"}}],
            },
        });
        let pair = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let expected = BTreeSet::from([pair("other", "login"), pair("fleet", "ca"), pair("fleet", "token")]);
        assert_eq!(referenced_secrets(&object), expected);
        let cluster = json!({"kind": "Cluster", "metadata": {"name": "alpha", "namespace": "fleet"}});
        assert_eq!(referenced_secrets(&cluster), BTreeSet::from([pair("fleet", "alpha-kubeconfig")]));
    }
}
