//! Takes out what may be secret. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

pub const GONE: &str = "REDACTED";

/// Fields that hold what users put in, wherever they are.
const SECRET_FIELDS: [&str; 6] =
    ["valuesTemplate", "parameters", "parametersTemplate", "defaults", "variables", "patches"];

/// Annotations that Chandler and Cluster API write themselves, by the domain that their key ends in.
const KNOWN_DOMAINS: [&str; 2] = ["chandler.dev", "cluster.x-k8s.io"];

/// Words in the names of fields that refer to a Secret.
const SECRET_REFERENCES: [&str; 2] = ["secret", "credentials"];

/// Takes out of an object, a list, or anything in them what users put in; `taken` is told what that was.
pub fn redact(value: &mut Value, taken: &mut impl FnMut(&Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, taken)),
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "annotations" => annotations(field, taken),
                    // Values of a release are text; those of a selector are a list, and status has digests of them.
                    "values" if field.is_string() => take(field, taken),
                    name if SECRET_FIELDS.contains(&name) => take(field, taken),
                    _ => redact(field, taken),
                }
            }
        }
        _ => {}
    }
}

fn take(field: &mut Value, taken: &mut impl FnMut(&Value)) {
    taken(field);
    *field = GONE.into();
}

fn annotations(field: &mut Value, taken: &mut impl FnMut(&Value)) {
    for (key, value) in field.as_object_mut().into_iter().flatten() {
        let domain = key.split('/').next().unwrap_or_default();
        let known = |ours: &str| domain == ours || domain.ends_with(&format!(".{ours}"));
        if KNOWN_DOMAINS.iter().any(|ours| known(ours)) {
            redact(value, taken);
        } else {
            *value = GONE.into();
        }
    }
}

/// The Secrets that an object names, as namespace and name: their values are looked for in all texts.
pub fn secrets_of(object: &Value) -> BTreeSet<(String, String)> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let mut secrets = BTreeSet::new();
    if object.get("kind").and_then(Value::as_str) == Some("Cluster") {
        secrets.insert((namespace.to_owned(), format!("{name}-kubeconfig")));
    }
    if let Some(spec) = object.get("spec") {
        named(spec, namespace, false, &mut secrets);
    }
    secrets
}

/// A map with a name, in a field that speaks of Secrets.
fn named(value: &Value, namespace: &str, about: bool, secrets: &mut BTreeSet<(String, String)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| named(item, namespace, about, secrets)),
        Value::Object(fields) => {
            if let Some(name) = fields.get("name").and_then(Value::as_str).filter(|_| about) {
                let elsewhere =
                    fields.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty());
                secrets.insert((elsewhere.unwrap_or(namespace).to_owned(), name.to_owned()));
            }
            for (field, inner) in fields {
                let field = field.to_lowercase();
                let about = SECRET_REFERENCES.iter().any(|word| field.contains(word));
                named(inner, namespace, about, secrets);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Put wherever users may put a secret.
    const CANARY: &str = "canary-7f3a";

    #[test]
    fn no_canary_survives() {
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
        let mut taken = Vec::new();
        redact(&mut object, &mut |value| taken.push(value.clone()));
        let text = object.to_string();
        assert!(!text.contains(CANARY), "{text}");
        assert_eq!(text.matches("kept").count(), 6, "{text}");
        assert_eq!(taken.len(), 8, "{taken:?}");
    }

    #[test]
    fn secrets_that_are_named_are_known() {
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
        assert_eq!(secrets_of(&object), expected);
        let cluster = json!({"kind": "Cluster", "metadata": {"name": "alpha", "namespace": "fleet"}});
        assert_eq!(secrets_of(&cluster), BTreeSet::from([pair("fleet", "alpha-kubeconfig")]));
    }
}
