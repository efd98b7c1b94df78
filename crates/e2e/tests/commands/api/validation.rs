//! Validation of HelmChartProxy and HelmReleaseProxy.

use serde_json::{Value, json};

use super::{
    objects::{CHART, RELEASE, object, without},
    server::Server,
};

const URL: &str =
    "spec.repoURL: Invalid value: \"string\": must begin with https:// or oci:// and name a host";
const DURATION: &str = "spec.options.timeout: Invalid value: \"string\": must be a duration such as";

/// Checks that the object is accepted or, if `error` is set, rejected with a message that contains it.
pub async fn check(server: &Server, object: &Value, error: Option<&str>) {
    let result = server.dry_run_create(object).await;
    match (result, error) {
        (Ok(_), None) => {}
        (Err(message), Some(expected)) => assert!(message.contains(expected), "{object:#}\n{message}"),
        (result, _) => panic!("{object:#}\n{result:?}\nexpected: {error:?}"),
    }
}

#[tokio::test]
async fn repositories_are_absolute_https_or_oci_urls_with_a_host() {
    let server = Server::shared().await;
    let good = [
        "https://charts.example",
        "https://charts.example:8443/stable/",
        "HTTPS://charts.example",
        "https://[::1]:8443",
        "oci://registry.example/charts",
        "oci://registry.example:5000",
    ];
    let bad = [
        "",
        "http://charts.example",
        "charts.example",
        "/charts",
        "https://",
        "https:///charts",
        "https://:8443",
        "https:charts.example",
        "https://charts example",
        "oci://",
        "oci:registry.example",
        "OCI://registry.example",
        "file:///charts",
        "git+https://charts.example",
    ];
    let rows = good.iter().map(|url| (url, None)).chain(bad.iter().map(|url| (url, Some(URL))));
    for (url, error) in rows {
        for kind in [CHART, RELEASE] {
            check(&server, &object(kind, &json!({"repoURL": url})), error).await;
        }
    }
}

#[tokio::test]
async fn timeouts_are_go_durations() {
    let server = Server::shared().await;
    let good = ["10m", "10m0s", "90s", "1h30m", "1.5h", "+5m", "0", "250ms", "7µs"];
    let bad = ["", "soon", "10", "-5m", "10 minutes", "5d"];
    let rows = good.iter().map(|text| (text, None)).chain(bad.iter().map(|text| (text, Some(DURATION))));
    for (text, error) in rows {
        for kind in [CHART, RELEASE] {
            check(&server, &object(kind, &json!({"options": {"timeout": text}})), error).await;
        }
    }
}

#[tokio::test]
async fn field_types_are_enforced() {
    let server = Server::shared().await;
    let rows = [
        (json!({"reconcileStrategy": ""}), None),
        (json!({"reconcileStrategy": "InstallOnce"}), None),
        (json!({"reconcileStrategy": "Continuous"}), None),
        (json!({"reconcileStrategy": "Sometimes"}), Some("spec.reconcileStrategy: Unsupported value")),
        (json!({"credentials": {"secret": {}, "key": ""}}), None),
        (json!({"credentials": {"secret": {"name": "login"}}}), Some("spec.credentials.key: Required value")),
        (json!({"credentials": {"key": "config.json"}}), Some("spec.credentials.secret: Required value")),
        (json!({"tlsConfig": {}}), None),
        (json!({"tlsConfig": {"caSecret": {}, "insecureSkipTLSVerify": true}}), None),
        (json!({"options": {"uninstall": {}}}), None),
        (json!({"options": {"uninstall": {"keepHistory": true, "description": "bye"}}}), None),
        (json!({"options": {"options": true, "upgrade": {"maxHistory": -1}}}), None),
        (json!({"options": {"timeout": 600}}), Some("spec.options.timeout in body must be of type string")),
        (json!({"options": {"upgrade": {"maxHistory": "ten"}}}), Some("must be of type integer")),
        (json!({"options": {"wait": "yes"}}), Some("must be of type boolean")),
        (json!({"unknown": {"field": "dropped"}}), None),
        (json!({"credentials": null, "tlsConfig": null, "options": null, "version": null}), None),
        (json!({"releaseName": "", "namespace": "", "version": ""}), None),
    ];
    for (changes, error) in rows {
        for kind in [CHART, RELEASE] {
            check(&server, &object(kind, &changes), error).await;
        }
    }
    check(&server, &object(RELEASE, &json!({"clusterRef": {}})), None).await;
}

#[tokio::test]
async fn required_fields_are_enforced() {
    let server = Server::shared().await;
    let rows = [
        (CHART, "clusterSelector"),
        (CHART, "chartName"),
        (CHART, "repoURL"),
        (RELEASE, "clusterRef"),
        (RELEASE, "chartName"),
        (RELEASE, "repoURL"),
    ];
    for (kind, field) in rows {
        let error = format!("spec.{field}: Required value");
        check(&server, &without(kind, field), Some(&error)).await;
    }
}
