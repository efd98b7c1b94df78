//! Takes out what may be secret. Pure.

use serde_json::Value;

const GONE: &str = "REDACTED";

/// Fields that hold what users put in, wherever they are.
const SECRET_FIELDS: [&str; 6] =
    ["valuesTemplate", "parameters", "parametersTemplate", "defaults", "variables", "patches"];

/// Annotations that Chandler and Cluster API write themselves, by the domain that their key ends in.
const KNOWN_DOMAINS: [&str; 2] = ["chandler.dev", "cluster.x-k8s.io"];

/// Takes secrets out of an object, a list, or anything in them.
pub fn redact(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(clean) = without_password(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "annotations" => annotations(field),
                    // Values of a release are text; those of a selector are a list, and status has digests of them.
                    "values" if field.is_string() => *field = GONE.into(),
                    name if SECRET_FIELDS.contains(&name) => *field = GONE.into(),
                    _ => redact(field),
                }
            }
        }
        _ => {}
    }
}

fn annotations(field: &mut Value) {
    for (key, value) in field.as_object_mut().into_iter().flatten() {
        let domain = key.split('/').next().unwrap_or_default();
        let known = |ours: &str| domain == ours || domain.ends_with(&format!(".{ours}"));
        if KNOWN_DOMAINS.iter().any(|ours| known(ours)) {
            redact(value);
        } else {
            *value = GONE.into();
        }
    }
}

/// The text with `user:password@` taken out of every address in it. None: there is none.
fn without_password(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        let end = after.find(|c: char| c == '/' || c.is_whitespace() || c == '"').unwrap_or(after.len());
        let (authority, further) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                found = true;
                clean.push_str(GONE);
                clean.push('@');
                clean.push_str(host);
            }
            None => clean.push_str(authority),
        }
        rest = further;
    }
    clean.push_str(rest);
    found.then_some(clean)
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
                "repoURL": format!("https://user:{CANARY}@charts.example/x"),
                "topology": {"variables": [{"name": "x", "value": CANARY}], "workers": {"variables": {"overrides": CANARY}}},
                "clusterSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["kept"]}]},
            },
            "status": {"values": {"text": "sha256:kept"}, "message": format!("cannot read oci://{CANARY}@x \"y\"")},
        });
        redact(&mut object);
        let text = object.to_string();
        assert!(!text.contains(CANARY), "{text}");
        assert_eq!(text.matches("kept").count(), 6, "{text}");
        assert!(text.contains("https://REDACTED@charts.example/x"), "{text}");
    }
}
