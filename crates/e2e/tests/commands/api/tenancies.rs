//! Validation of AddonTenancy.

use serde_json::json;

use super::{
    objects::{INSTANCE, TENANCY, object},
    server::Server,
    validation::check,
};

#[tokio::test]
async fn the_fields_of_a_tenancy_are_validated() {
    let prefixes = |prefix: &str| json!({"sources": {"urlPrefixes": [prefix]}});
    let targets = |name: &str| json!({"targetNamespaces": [name]});
    let account = |name: &str| json!({"workloadServiceAccount": {"name": name}});
    let selector = |operator: &str, values: &[&str]| {
        let expression = json!({"key": "tier", "operator": operator, "values": values});
        json!({"namespaces": {"selector": {"matchExpressions": [expression]}}})
    };
    let values = Some("values must be set for the operators In and NotIn, and only for them");
    let url = Some("must be beginnings of URLs");
    let rows = [
        (json!({}), None),
        (json!({"namespaces": {}}), Some("names or selector must be set")),
        (json!({"namespaces": {"names": []}}), Some("names or selector must be set")),
        (json!({"namespaces": {"selector": {}}}), None),
        (json!({"namespaces": {"selector": {"matchLabels": {"tier": "gold"}}}}), None),
        (selector("In", &["gold"]), None),
        (selector("DoesNotExist", &[]), None),
        (selector("in", &["gold"]), Some("Unsupported value")),
        (selector("Near", &[]), Some("Unsupported value")),
        (selector("In", &[]), values),
        (selector("Exists", &["gold"]), values),
        (json!({"namespaces": {"names": ["a", "a"]}}), Some("Duplicate value")),
        (prefixes("https://charts.example"), None),
        (prefixes("oci://registry.example:5000/team/"), None),
        (prefixes("ssh://git.example/team"), None),
        (prefixes("charts.example"), url),
        (prefixes("http://charts.example"), url),
        (prefixes("https://user@charts.example"), url),
        (prefixes("https://charts.example/a%2fb"), url),
        (prefixes("https://"), url),
        (targets("team"), None),
        (targets("team-*"), None),
        (targets("*"), None),
        (targets("*-team"), Some("must be names of namespaces")),
        (targets("Team"), Some("must be names of namespaces")),
        (
            json!({"kinds": {"clusterScoped": [{"group": "*", "kind": "*"}], "denied": [{"kind": "Secret"}]}}),
            None,
        ),
        (json!({"kinds": {"denied": [{"group": "apps"}]}}), Some("kind: Required value")),
        (account("deployer"), None),
        (account("kube-system:root"), Some("spec.workloadServiceAccount.name")),
    ];
    let server = Server::shared().await;
    for (fields, expected) in rows {
        check(&server, &object(TENANCY, &fields), expected).await;
    }
    for (name, expected) in [("deployer", None), ("a:b", Some("spec.workloadServiceAccountName"))] {
        let fields = json!({"workloadServiceAccountName": name});
        check(&server, &object(INSTANCE, &fields), expected).await;
    }
}
