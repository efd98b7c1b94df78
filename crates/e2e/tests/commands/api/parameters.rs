//! Parameters from other objects are read with Chandler's permissions or with those of a ServiceAccount.

use std::{
    io,
    sync::{Arc, Mutex},
};

use chandler_api::extensions::ParametersFrom;
use chandler_controller::ParameterSources;
use chandler_core::{
    failure::{Category, Failure},
    parameters::{Parameters, may_be_secret},
};
use chandler_sandbox::{apply, plane::Plane, requests::AuditEntry, service_account, testing};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

const CANARY: &str = "canary-4711";
const RBAC: &str = include_str!("../../../../../deploy/rbac.yaml");
/// ServiceAccount `fleet/reader` may read two ConfigMaps of namespace `other` and one cluster-scoped object.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: fleet}
---
apiVersion: v1
kind: Namespace
metadata: {name: other, annotations: {example.com/region: north}}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: fleet}
stringData: {password: canary-4711, values.yaml: "auth: {token: canary-4711}", broken: "{canary-4711", text: canary-4711}
data: {binary: /w==}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: fleet}
data: {values.yaml: "replicas: 2", level: "3"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shared, namespace: other}
data: {values.yaml: "zone: a", level: "3"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: closed, namespace: other}
data: {values.yaml: "zone: canary-4711"}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: other}
stringData: {password: canary-4711}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: fleet}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: other}
rules:
  - {apiGroups: [""], resources: [configmaps], resourceNames: [shared, absent], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: other}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: fleet}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: namespaces-of-fleet}
rules:
  - {apiGroups: [""], resources: [namespaces], resourceNames: [other], verbs: [get]}
---
# Bound to a group, to test that impersonation includes the groups of the ServiceAccount.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: namespaces-of-fleet}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespaces-of-fleet}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: "system:serviceaccounts:fleet"}]
"#;

/// A cluster with the objects above, and the manager's parameter sources.
struct ParameterTest {
    plane: Plane,
    client: Client,
    sources: ParameterSources,
}

impl ParameterTest {
    async fn new() -> Self {
        let plane = testing::bare_plane().await.unwrap();
        let client = plane.client().await.unwrap();
        apply::apply_all(&client, RBAC).await.unwrap();
        apply::apply_all(&client, OBJECTS).await.unwrap();
        let sources = ParameterSources::new(manager_client(&plane).await);
        Self { plane, client, sources }
    }

    async fn read(&self, from: Value) -> Result<Read, (Category, String)> {
        read(&self.sources, from).await
    }
}

/// Returns a client with the manager's ServiceAccount.
async fn manager_client(plane: &Plane) -> Client {
    let text = service_account::kubeconfig(plane, "chandler-system", "chandler-manager").await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The parameters of all entries.
#[derive(Debug)]
struct Read {
    layers: Vec<Parameters>,
    secret: bool,
}

async fn read_as(
    sources: &ParameterSources,
    namespace: &str,
    account: Option<&str>,
    from: &[ParametersFrom],
) -> Result<Read, Failure> {
    let mut layers = Vec::new();
    for entry in from {
        let found = sources.find(namespace, "", account, entry).await?;
        assert!(!format!("{found:?}").contains(CANARY), "it is in the debug output");
        layers.extend(found.layer(entry.parameter.as_deref())?);
    }
    Ok(Read { layers, secret: may_be_secret(from) })
}

async fn read(sources: &ParameterSources, from: Value) -> Result<Read, (Category, String)> {
    let from: Vec<ParametersFrom> = serde_json::from_value(from).unwrap();
    let read = read_as(sources, "fleet", Some("reader"), &from).await;
    read.map_err(|failure| (failure.category, failure.message))
}

fn config_map(namespace: &str, name: &str, path: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name, "path": path})
}

#[tokio::test]
async fn parameters_are_read_only_with_the_permissions_of_the_instance() {
    let captured = Log::default();
    let writer = captured.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let test = ParameterTest::new().await;

    assert_impersonation_needs_a_role_binding(&test).await;
    assert_sources_are_read(&test).await;
    assert_failures_are_explained(&test).await;
    assert_requests_are_impersonated_and_cached(&test).await;

    let log = captured.text();
    assert!(log.contains("/configmaps/shared"), "the log was not captured");
    assert!(!log.contains(CANARY), "a secret is in the log");
}

async fn assert_sources_are_read(test: &ParameterTest) {
    let read = test
        .read(json!([
            {"configMap": {"name": "settings", "key": "values.yaml"}},
            {"configMap": {"name": "settings", "key": "level"}, "parameter": "log.level"},
        ]))
        .await
        .unwrap();
    assert_eq!(layers(&read), json!([{"replicas": 2}, {"log": {"level": "3"}}]));
    assert!(!read.secret);

    let read = test
        .read(json!([
            {"secret": {"name": "login", "key": "values.yaml"}},
            {"secret": {"name": "login", "key": "password"}, "parameter": "auth.password"},
            {"secret": {"name": "absent", "key": "password", "optional": true}},
            {"secret": {"name": "login", "key": "absent", "optional": true}},
        ]))
        .await
        .unwrap();
    assert_eq!(layers(&read), json!([{"auth": {"token": CANARY}}, {"auth": {"password": CANARY}}]));
    assert!(read.secret);

    let optional = |mut object: Value| {
        object["optional"] = json!(true);
        json!({"object": object, "parameter": "x"})
    };
    let read = test
        .read(json!([
            {"object": config_map("other", "shared", "/data/values.yaml")},
            {"object": config_map("other", "shared", "/data/level"), "parameter": "level"},
            {"object": {"apiVersion": "v1", "kind": "Namespace", "name": "other",
                "path": "/metadata/annotations/example.com~1region"}, "parameter": "region"},
            optional(config_map("other", "absent", "/data/x")),
            optional(config_map("other", "shared", "/data/absent")),
            optional(json!({"apiVersion": "example.com/v1", "kind": "Absent", "name": "x", "path": "/x"})),
        ]))
        .await
        .unwrap();
    assert_eq!(layers(&read), json!([{"zone": "a"}, {"level": "3"}, {"region": "north"}]));
    assert!(read.secret, "values from an object are treated as secret");
}

async fn assert_failures_are_explained(test: &ParameterTest) {
    let key = |kind: &str, name: &str, key: &str| json!({kind: {"name": name, "key": key}});
    let object = |object: Value| json!({"object": object});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "namespace": "other", "name": "login", "path": "/data"});
    let rows = [
        (
            key("secret", "absent", "x"),
            Category::InvalidValues,
            "Secret fleet/absent does not exist: create it",
        ),
        (
            key("configMap", "absent", "x"),
            Category::InvalidValues,
            "ConfigMap fleet/absent does not exist: create it",
        ),
        (
            key("secret", "login", "absent"),
            Category::InvalidValues,
            "Secret fleet/login has no key absent: add it",
        ),
        (
            key("secret", "login", "broken"),
            Category::InvalidValues,
            "key broken of Secret fleet/login is not valid YAML",
        ),
        (
            key("secret", "login", "text"),
            Category::InvalidValues,
            "key text of Secret fleet/login is not a map of parameters",
        ),
        (
            key("secret", "login", "binary"),
            Category::InvalidValues,
            "key binary of Secret fleet/login is not UTF-8",
        ),
        (
            key("secret", "../../other/secrets/login", "password"),
            Category::InvalidSpec,
            "not a valid Kubernetes name",
        ),
        (key("secret", "login?x=y", "password"), Category::InvalidSpec, "not a valid Kubernetes name"),
        (
            object(config_map("other", "closed", "/data")),
            Category::Forbidden,
            "ConfigMap other/closed may not be read: in namespace other, bind ServiceAccount fleet/reader to a Role \
             with the rule {apiGroups: [\"\"], resources: [configmaps], resourceNames: [closed], verbs: [get]}",
        ),
        // Chandler itself may read it, but its permissions do not count.
        (object(secret), Category::Forbidden, "resources: [secrets], resourceNames: [login]"),
        (
            object(json!({"apiVersion": "v1", "kind": "Namespace", "name": "fleet", "path": "/x"})),
            Category::Forbidden,
            "bind ServiceAccount fleet/reader to a ClusterRole with the rule",
        ),
        (
            object(config_map("other", "absent", "/data")),
            Category::InvalidValues,
            "ConfigMap other/absent does not exist",
        ),
        (
            object(config_map("other", "shared", "/absent")),
            Category::InvalidValues,
            "has no field /absent: correct the path",
        ),
        (
            object(json!({"apiVersion": "example.com/v1", "kind": "Absent", "name": "x", "path": "/x"})),
            Category::InvalidValues,
            "or example.com/v1 does not have this kind",
        ),
        (
            object(json!({"apiVersion": "v1/../x", "kind": "Absent", "name": "x", "path": "/x"})),
            Category::InvalidSpec,
            "not a valid Kubernetes name",
        ),
    ];
    for (entry, expected, hint) in rows {
        let (category, message) = test.read(json!([entry])).await.unwrap_err();
        assert!(message.contains(hint), "{message:?} does not contain {hint:?}");
        assert_eq!(category, expected, "{message}");
        assert!(!message.contains(CANARY), "{message}");
    }
    let from: Vec<ParametersFrom> =
        serde_json::from_value(json!([{"object": config_map("other", "shared", "/data")}])).unwrap();
    for (account, hint) in
        [(None, "spec.serviceAccountName is not set"), (Some("a:b"), "not a valid Kubernetes name")]
    {
        let failure = read_as(&test.sources, "fleet", account, &from).await.err().unwrap();
        assert!(failure.message.contains(hint), "{failure}");
    }
    let failure = read_as(&test.sources, "fleet", Some("nobody"), &from).await.err().unwrap();
    assert_eq!(failure.category, Category::Forbidden, "{failure}");
}

/// The audit log names the ServiceAccount, and repeated reads are cached.
async fn assert_requests_are_impersonated_and_cached(test: &ParameterTest) {
    let sources = ParameterSources::new(manager_client(&test.plane).await);
    let mut audit = test.plane.audit_log();
    let from = json!([
        {"object": config_map("other", "shared", "/data")},
        {"secret": {"name": "login", "key": "values.yaml"}},
    ]);
    for _ in 0..5 {
        read(&sources, from.clone()).await.unwrap();
    }
    let mut entries: Vec<AuditEntry> = Vec::new();
    for _ in 0..100 {
        entries.extend(audit.read().unwrap());
        if entries.iter().any(|entry| entry.resource == "secrets") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let readers = |resource: &str| {
        let reads = entries.iter().filter(|entry| entry.resource == resource && !entry.name.is_empty());
        reads.map(|entry| (entry.user.as_str(), entry.impersonated.as_deref())).collect::<Vec<_>>()
    };
    let manager = "system:serviceaccount:chandler-system:chandler-manager";
    assert_eq!(readers("configmaps"), [(manager, Some("system:serviceaccount:fleet:reader"))]);
    assert_eq!(readers("secrets"), [(manager, None)]);
    let verbs = entries.iter().filter(|entry| entry.user == manager).map(|entry| entry.verb.as_str());
    assert!(verbs.clone().all(|verb| verb == "get"), "{:?}", verbs.collect::<Vec<_>>());
}

/// Chandler is shipped without the permission to impersonate ServiceAccounts: a `RoleBinding` in their namespace grants it.
async fn assert_impersonation_needs_a_role_binding(test: &ParameterTest) {
    let from = json!([{"object": config_map("other", "shared", "/data")}]);
    let read_uncached =
        async || read(&ParameterSources::new(manager_client(&test.plane).await), from.clone()).await;
    let (category, refusal) = read_uncached().await.unwrap_err();
    assert_eq!(category, Category::Forbidden, "{refusal}");
    let next = "in namespace fleet, bind ClusterRole chandler-impersonator to Chandler's own ServiceAccount (`kubectl \
                create rolebinding chandler-impersonator --clusterrole chandler-impersonator --serviceaccount \
                chandler-system:chandler-manager --namespace fleet`)";
    assert!(refusal.contains(next), "{refusal:?}");

    apply::apply(&test.client, &impersonator("fleet")).await.unwrap();
    let mut result = read_uncached().await;
    for _ in 0..100 {
        if result.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        result = read_uncached().await;
    }
    result.expect("a RoleBinding in the namespace is sufficient");
    let from: Vec<ParametersFrom> = serde_json::from_value(from).unwrap();
    let sources = ParameterSources::new(manager_client(&test.plane).await);
    let error = read_as(&sources, "other", Some("default"), &from).await.err().unwrap();
    assert!(error.message.contains("may not act as ServiceAccount other/default"), "{error}");
}

/// Returns the `RoleBinding` that the error message suggests.
fn impersonator(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "chandler-impersonator", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "chandler-impersonator"},
        "subjects": [{"kind": "ServiceAccount", "name": "chandler-manager", "namespace": "chandler-system"}],
    })
}

fn layers(read: &Read) -> Value {
    Value::from(read.layers.iter().cloned().map(Value::Object).collect::<Vec<_>>())
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
