//! User names and passwords in URLs are refused in new objects, and kept in old ones.

use serde_json::{Value, json};

use super::{
    objects::{ADDON, CATALOG, CHART, EXTENSION, INSTANCE, RELEASE, object, without},
    server::Server,
    validation::check,
};

const LOGIN: &str = "https://user:word@charts.example";
const REFUSED: &str = "must not contain a user name or password";

fn package(version: &str) -> Value {
    json!({"repository": LOGIN, "chart": "hello", "version": version})
}

fn instance(source: &Value) -> Value {
    let mut instance = without(INSTANCE, "extension");
    instance["spec"]["source"] = source.clone();
    instance
}

/// Returns objects of all kinds that users write, each with a login in a URL.
fn objects() -> Vec<Value> {
    vec![
        object(CHART, &json!({"repoURL": LOGIN})),
        object(CATALOG, &json!({"url": LOGIN})),
        object(EXTENSION, &json!({"versions": [{"version": "1.0.0", "source": package("1.0.0")}]})),
        object(EXTENSION, &json!({"followKubernetes": {"repository": LOGIN, "chart": "hello"}})),
        instance(&package("1.0.0")),
    ]
}

#[tokio::test]
async fn logins_are_refused_in_new_objects() {
    let server = Server::shared().await;
    for object in objects() {
        check(&server, &object, Some(REFUSED)).await;
    }
    for url in ["HTTPS://user@charts.example", "oci://user:word@registry.example/charts"] {
        check(&server, &object(CHART, &json!({"repoURL": url})), Some(REFUSED)).await;
    }
    check(&server, &object(CHART, &json!({"repoURL": "https://charts.example/a@b"})), None).await;
    // The controller makes these of objects that may be older than the rule.
    check(&server, &object(RELEASE, &json!({"repoURL": LOGIN})), None).await;
    check(&server, &object(ADDON, &json!({"source": package("1.0.0")})), None).await;
}

/// Creates objects with logins on a server without the rule.
pub async fn create_old(server: &Server) -> Vec<Value> {
    let mut created = Vec::new();
    for object in objects() {
        created.push(server.create(&object).await.unwrap());
    }
    created
}

/// Checks that a server with the rule accepts changes of these objects that do not change the login.
pub async fn assert_kept(server: &Server, objects: &[Value]) {
    // Each CRD takes effect on its own.
    for object in self::objects() {
        server.wait_rejected(&object).await;
    }
    for object in objects {
        server.patch(object, json!({"metadata": {"finalizers": ["example.org/keep"]}})).await.unwrap();
        server.patch(object, json!({"metadata": {"finalizers": null}})).await.unwrap();
    }
    let [chart, catalog, extension, _, instance] = objects else { panic!("other objects") };
    let versions = json!([
        {"version": "1.0.0", "source": package("1.0.0")},
        {"version": "2.0.0", "source": {"repository": "https://charts.example", "chart": "hello"}},
    ]);
    let other = "https://user:other@charts.example";
    let rows = [
        (chart, json!({"version": "2.0.0"}), true),
        (chart, json!({"repoURL": other}), false),
        (catalog, json!({"interval": "5m"}), true),
        (catalog, json!({"url": other}), false),
        (extension, json!({"versions": versions}), true),
        (instance, json!({"clusters": {"name": "green"}}), true),
        (instance, json!({"source": package("2.0.0")}), false),
    ];
    for (object, change, accepted) in rows {
        match server.patch(object, json!({"spec": change})).await {
            Ok(_) => assert!(accepted, "{change}"),
            Err(message) => assert!(!accepted && message.contains(REFUSED), "{change}: {message}"),
        }
    }
}
