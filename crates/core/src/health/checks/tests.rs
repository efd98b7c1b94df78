use serde_json::json;

use super::*;

fn check(fields: &Value) -> HealthCheck {
    let mut check =
        json!({"apiVersion": "example.dev/v1", "kind": "Widget", "current": "status.phase == 'Running'"});
    check.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(check).unwrap()
}

/// The state of a Widget with this status.
fn state(checks: &HealthChecks, status: &Value) -> ObjectState {
    let object = json!({
        "apiVersion": "example.dev/v1", "kind": "Widget", "metadata": {"generation": 2}, "spec": {}, "status": status,
    });
    checks.find("example.dev/v1", "Widget").unwrap().state(&object)
}

#[test]
fn the_first_expression_that_is_true_counts() {
    let checks = HealthChecks::compile(&[check(&json!({
        "inProgress": "status.phase == 'Starting'", "failed": "status.phase in ['Broken', 'Lost']",
    }))]);
    assert_eq!(checks.invalid(), None);
    let progressing = |text: &str| ObjectState::Progressing(text.to_owned());
    let refused = json!([{"type": "Ready", "status": "False", "reason": "NoQuota", "message": "no room"}]);
    let rows = [
        (json!({"phase": "Running"}), ObjectState::Healthy),
        (json!({"phase": "Running", "observedGeneration": 2}), ObjectState::Healthy),
        (json!({"phase": "Starting"}), progressing("its health check `inProgress` is true")),
        (json!({"phase": "Lost"}), ObjectState::failed("its health check `failed` is true")),
        (json!({"phase": "Paused"}), progressing("its health check `current` is not true")),
        (
            json!({"phase": "Paused", "conditions": refused}),
            progressing("its health check `current` is not true: NoQuota: no room"),
        ),
        // A rule that does not depend on the expressions.
        (
            json!({"phase": "Running", "observedGeneration": 1}),
            progressing("its controller has not seen the last change yet"),
        ),
        // The rules of Chandler do not apply.
        (json!({"phase": "Running", "conditions": refused}), ObjectState::Healthy),
        (
            json!({"ready": true}),
            progressing("its health check `inProgress` cannot be evaluated: there is no field `phase`"),
        ),
        (Value::Null, ObjectState::Unknown),
    ];
    for (status, expected) in rows {
        assert_eq!(state(&checks, &status), expected, "{status}");
    }
    let deleted =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
    let found = checks.find("example.dev/v1", "Widget").unwrap().state(&deleted);
    assert_eq!(found, progressing("it is being deleted"));
}

#[test]
fn a_check_that_takes_too_long_says_so() {
    let nested = "spec.items.all(a, spec.items.all(b, spec.items.all(c, a + b + c >= 0)))";
    let checks = HealthChecks::compile(&[check(&json!({"current": nested}))]);
    let items: Vec<_> = (0..100).collect();
    let object = json!({"metadata": {}, "spec": {"items": items}});
    let expected = "its health check `current` cannot be evaluated: it takes too many steps for this object";
    let found = checks.find("example.dev/v1", "Widget").unwrap().state(&object);
    assert_eq!(found, ObjectState::Progressing(expected.to_owned()));
}

#[test]
fn a_check_applies_to_its_kind_in_all_versions() {
    let checks = HealthChecks::compile(&[check(&json!({}))]);
    let rows = [
        ("example.dev/v1", "Widget", true),
        ("example.dev/v2", "Widget", true),
        ("example.dev/v1", "Gadget", false),
        ("other.dev/v1", "Widget", false),
        ("v1", "Widget", false),
    ];
    for (api_version, kind, expected) in rows {
        assert_eq!(checks.find(api_version, kind).is_some(), expected, "{api_version} {kind}");
    }
}

#[test]
fn an_invalid_check_is_left_out_and_named() {
    let rows = [
        (json!({"current": "status.phase =="}), "health.checks[1].current: line 1, column 16: "),
        (json!({"failed": "phase == 'x'"}), "health.checks[1].failed: unknown variable `phase`"),
        (json!({"inProgress": "now()"}), "health.checks[1].inProgress: function `now` is not supported"),
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            "health.checks[1]: Chandler only reads the metadata of a Secret",
        ),
        (json!({"apiVersion": "v1", "kind": "ConfigMap"}), "health.checks[1]: Chandler only reads"),
        (json!({"kind": "Gadget"}), "health.checks[1]: there is another check for this kind"),
    ];
    for (fields, expected) in rows {
        let gadget = check(&json!({"apiVersion": "example.dev/v2", "kind": "Gadget"}));
        let checks = HealthChecks::compile(&[gadget, check(&fields)]);
        let text = checks.invalid().unwrap();
        assert!(text.contains(expected) && text.ends_with("these checks are ignored"), "{fields}: {text}");
        assert!(checks.find("example.dev/v1", "Gadget").is_some(), "the other check applies: {fields}");
        assert!(checks.find("example.dev/v1", "Widget").is_none(), "{fields}");
    }
}

#[test]
fn checks_are_equal_if_their_texts_are() {
    let compile = |current: &str| HealthChecks::compile(&[check(&json!({"current": current}))]);
    assert_eq!(compile("true"), compile("true"));
    assert_ne!(compile("true"), compile("false"));
    assert_eq!(HealthChecks::compile(&[]), HealthChecks::default());
    assert!(HealthChecks::default().is_empty() && !compile("true").is_empty());
}
