//! Validation and defaults of AddonPolicy.

use chandler_api::extensions::AddonPolicySpec;
use serde_json::{Value, json};

use super::{
    objects::{POLICY, object},
    server::Server,
    validation::check,
};

#[tokio::test]
async fn the_fields_of_a_policy_are_validated() {
    let remediation = |fields: Value| json!({"remediation": fields});
    let on = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    let depends_on = |all: Vec<Value>| json!({"dependsOn": all});
    let many = |count: usize| (0..count).map(|number| on("HelmChartProxy", &format!("p{number}"))).collect();
    let ignore = |rule: Value| json!({"drift": {"mode": "Report", "ignore": [rule]}});
    let rollout = |fields: Value| json!({"rollout": fields});
    let wave = |name: &str, soak: &str| json!({"name": name, "selector": {}, "soak": soak});
    let unsupported = Some("Unsupported value");
    let rows = [
        (json!({}), None),
        (json!({"suspend": true, "health": {"enabled": false}}), None),
        (json!({"suspend": "yes"}), Some("spec.suspend in body must be of type boolean")),
        (remediation(json!({})), None),
        (remediation(json!({"retries": 0, "onFailure": "Rollback"})), None),
        (remediation(json!({"retries": 100, "onFailure": "Uninstall"})), None),
        (remediation(json!({"retries": 101})), Some("less than or equal to 100")),
        (remediation(json!({"retries": -1})), Some("greater than or equal to 0")),
        (remediation(json!({"onFailure": "Explode"})), unsupported),
        (json!({"conflicts": "IgnoreFields", "crds": "CreateReplace"}), None),
        (json!({"conflicts": "Ignore"}), unsupported),
        (json!({"crds": "Replace"}), unsupported),
        (json!({"onUnselect": "Orphan", "onClusterDelete": "Uninstall"}), None),
        (json!({"onUnselect": "Skip"}), unsupported),
        (json!({"onClusterDelete": "Orphan"}), unsupported),
        (depends_on(vec![on("HelmChartProxy", "cni"), on("ExtensionInstance", "cni")]), None),
        (depends_on(vec![on("HelmChartProxy", "cni"); 2]), Some("Duplicate value")),
        (depends_on(vec![on("HelmReleaseProxy", "cni")]), unsupported),
        (depends_on(vec![on("HelmChartProxy", "")]), Some("spec.dependsOn[0].name")),
        (depends_on(vec![json!({"kind": "HelmChartProxy"})]), Some("spec.dependsOn[0].name: Required value")),
        (depends_on(many(32)), None),
        (depends_on(many(33)), Some("must have at most 32 items")),
        (json!({"drift": {}, "test": {}}), None),
        (json!({"drift": {"mode": "Revert"}}), unsupported),
        (ignore(json!({"paths": ["/spec/replicas", "/metadata/annotations/a~1b"]})), None),
        (ignore(json!({"target": {"kind": "Deployment", "name": "web"}, "paths": ["/spec/replicas"]})), None),
        (
            ignore(json!({"target": {"kind": "Deployment"}})),
            Some("spec.drift.ignore[0].paths: Required value"),
        ),
        (ignore(json!({"paths": []})), Some("should have at least 1 items")),
        (ignore(json!({"paths": ["spec.replicas"]})), Some("spec.drift.ignore[0].paths[0]")),
        (ignore(json!({"paths": ["/"]})), Some("spec.drift.ignore[0].paths[0]")),
        (json!({"test": {"run": false, "onFailure": "Ignore", "logs": true}}), None),
        (json!({"test": {"onFailure": "Keep"}}), unsupported),
        (rollout(json!({"maxConcurrent": 3, "stopAfterFailures": 0, "timeout": "1h"})), None),
        (rollout(json!({"maxConcurrent": "100%"})), None),
        (rollout(json!({"maxConcurrent": 0})), Some("must be a number of at least 1")),
        (rollout(json!({"maxConcurrent": "0%"})), Some("must be a number of at least 1")),
        (rollout(json!({"maxConcurrent": "many"})), Some("must be a number of at least 1")),
        (rollout(json!({"stopAfterFailures": -1})), Some("greater than or equal to 0")),
        (rollout(json!({"timeout": "soon"})), Some("must be a duration")),
        (rollout(json!({"minReady": "soon"})), Some("must be a duration")),
        (rollout(json!({"waves": [wave("a", "1h"), wave("b", "0s")]})), None),
        (rollout(json!({"waves": [wave("a", "1h"), wave("a", "0s")]})), Some("Duplicate value")),
        (rollout(json!({"waves": [wave("others", "1h")]})), Some("no selector matches")),
        (rollout(json!({"waves": [wave("a", "later")]})), Some("must be a duration")),
        (rollout(json!({"waves": [{"name": "a"}]})), Some("selector: Required value")),
    ];
    let server = Server::shared().await;
    for (fields, error) in rows {
        check(&server, &object(POLICY, &fields), error).await;
    }
}

#[tokio::test]
async fn only_the_parts_of_a_policy_have_defaults() {
    let server = Server::shared().await;
    let rows = [
        (json!({}), json!({})),
        (
            json!({"remediation": {}, "health": {}, "drift": {}, "test": {}}),
            json!({
                "remediation": {"retries": 3, "onFailure": "Keep"}, "health": {"enabled": true},
                "drift": {"mode": "Ignore"}, "test": {"run": true, "onFailure": "Fail"},
            }),
        ),
        (
            json!({"rollout": {"waves": [{"name": "all", "selector": {}}]}}),
            json!({"rollout": {
                "maxConcurrent": "25%", "stopAfterFailures": 1, "timeout": "15m", "minReady": "30s",
                "waves": [{"name": "all", "selector": {}, "soak": "0s"}],
            }}),
        ),
    ];
    for (written, expected) in rows {
        let created = server.dry_run_create(&object(POLICY, &written)).await.unwrap();
        assert_eq!(created["spec"], expected);
        let [unset, filled]: [AddonPolicySpec; 2] =
            [&written, &created["spec"]].map(|spec| serde_json::from_value(spec.clone()).unwrap());
        assert_eq!(unset, filled, "the Rust types have the same defaults");
        assert_eq!(serde_json::to_value(&filled).unwrap(), expected);
    }
}
