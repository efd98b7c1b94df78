//! Parameters that are kept elsewhere, read with the rights that Chandler ships with and a ServiceAccount's own.

use std::{
    io,
    sync::{Arc, Mutex},
};

use chandler_api::extensions::ParametersFrom;
use chandler_controller::{ParameterSources, Read};
use chandler_core::failure::Category;
use chandler_sandbox::{apply, plane::Plane, requests::AuditEntry, service_account, testing};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

const CANARY: &str = "canary-4711";
const RIGHTS: &str = include_str!("../../../../../deploy/rbac.yaml");
/// `reader` of namespace fleet may read two objects of namespace other and a cluster-wide one.
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
# By group, so that it is seen that the API server takes the groups of the ServiceAccount's own tokens.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: namespaces-of-fleet}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespaces-of-fleet}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: "system:serviceaccounts:fleet"}]
"#;

struct World {
    plane: Plane,
    client: Client,
    sources: ParameterSources,
}

impl World {
    async fn new() -> Self {
        let plane = testing::bare_plane().await.unwrap();
        let client = plane.client().await.unwrap();
        apply::apply_all(&client, RIGHTS).await.unwrap();
        apply::apply_all(&client, OBJECTS).await.unwrap();
        let sources = ParameterSources::new(manager(&plane).await);
        Self { plane, client, sources }
    }

    async fn read(&self, from: Value) -> Result<Read, (Category, String)> {
        read(&self.sources, from).await
    }
}

/// With the manager's own ServiceAccount.
async fn manager(plane: &Plane) -> Client {
    let text = service_account::kubeconfig(plane, "chandler-system", "chandler-manager").await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn read(sources: &ParameterSources, from: Value) -> Result<Read, (Category, String)> {
    let from: Vec<ParametersFrom> = serde_json::from_value(from).unwrap();
    let read = sources.read("fleet", Some("reader"), &from).await;
    read.map_err(|failure| (failure.category, failure.message))
}

fn config_map(namespace: &str, name: &str, path: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name, "path": path})
}

#[tokio::test]
async fn parameters_are_read_with_the_rights_of_the_instance_and_no_others() {
    let logged = Log::default();
    let writer = logged.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let world = World::new().await;

    consented(&world).await;
    found(&world).await;
    refused(&world).await;
    traced(&world).await;

    let log = logged.text();
    assert!(log.contains("/configmaps/shared"), "the log was not captured");
    assert!(!log.contains(CANARY), "a secret is in the log");
}

async fn found(world: &World) {
    let read = world
        .read(json!([
            {"configMap": {"name": "settings", "key": "values.yaml"}},
            {"configMap": {"name": "settings", "key": "level"}, "parameter": "log.level"},
        ]))
        .await
        .unwrap();
    assert_eq!(layers(&read), json!([{"replicas": 2}, {"log": {"level": "3"}}]));
    assert!(!read.secret);

    let read = world
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
    assert!(!format!("{read:?}").contains(CANARY));

    let optional = |mut object: Value| {
        object["optional"] = json!(true);
        json!({"object": object, "parameter": "x"})
    };
    let read = world
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
    assert!(read.secret, "nobody knows what an object holds");
}

async fn refused(world: &World) {
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
            "key broken of Secret fleet/login is not YAML",
        ),
        (
            key("secret", "login", "text"),
            Category::InvalidValues,
            "key text of Secret fleet/login does not hold",
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
        // Chandler itself may; that does not help.
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
        let (category, message) = world.read(json!([entry])).await.unwrap_err();
        assert!(message.contains(hint), "{message:?} does not say {hint:?}");
        assert_eq!(category, expected, "{message}");
        assert!(!message.contains(CANARY), "{message}");
    }
    let from: Vec<ParametersFrom> =
        serde_json::from_value(json!([{"object": config_map("other", "shared", "/data")}])).unwrap();
    for (account, hint) in [(None, "spec.serviceAccountName is not set"), (Some("a:b"), "not a valid Kubernetes name")] {
        let failure = world.sources.read("fleet", account, &from).await.unwrap_err();
        assert!(failure.message.contains(hint), "{failure}");
    }
    let failure = world.sources.read("fleet", Some("nobody"), &from).await.unwrap_err();
    assert_eq!(failure.category, Category::Forbidden, "{failure}");
}

/// The audit log names the ServiceAccount; what was read serves for a moment.
async fn traced(world: &World) {
    let sources = ParameterSources::new(manager(&world.plane).await);
    let mut audit = world.plane.audit_log();
    let from = json!([
        {"object": config_map("other", "shared", "/data")},
        {"secret": {"name": "login", "key": "values.yaml"}},
    ]);
    for _ in 0..5 {
        read(&sources, from.clone()).await.unwrap();
    }
    let mut seen: Vec<AuditEntry> = Vec::new();
    for _ in 0..100 {
        seen.extend(audit.read().unwrap());
        if seen.iter().any(|entry| entry.resource == "secrets") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let of = |resource: &str| {
        let asked = seen.iter().filter(|entry| entry.resource == resource && !entry.name.is_empty());
        asked.map(|entry| (entry.user.as_str(), entry.impersonated.as_deref())).collect::<Vec<_>>()
    };
    let manager = "system:serviceaccount:chandler-system:chandler-manager";
    assert_eq!(of("configmaps"), [(manager, Some("system:serviceaccount:fleet:reader"))]);
    assert_eq!(of("secrets"), [(manager, None)]);
    let verbs = seen.iter().filter(|entry| entry.user == manager).map(|entry| entry.verb.as_str());
    assert!(verbs.clone().all(|verb| verb == "get"), "{:?}", verbs.collect::<Vec<_>>());
}

/// To act as a ServiceAccount is a right that Chandler does not come with: a namespace gives it.
async fn consented(world: &World) {
    let from = json!([{"object": config_map("other", "shared", "/data")}]);
    let read_anew = async || read(&ParameterSources::new(manager(&world.plane).await), from.clone()).await;
    let (category, refusal) = read_anew().await.unwrap_err();
    assert_eq!(category, Category::Forbidden, "{refusal}");
    let next = "in namespace fleet, bind ClusterRole chandler-impersonator to Chandler's own ServiceAccount (`kubectl \
                create rolebinding chandler-impersonator --clusterrole chandler-impersonator --serviceaccount \
                chandler-system:chandler-manager --namespace fleet`)";
    assert!(refusal.contains(next), "{refusal:?}");

    apply::apply(&world.client, &impersonator("fleet")).await.unwrap();
    let mut answer = read_anew().await;
    for _ in 0..100 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        answer = read_anew().await;
    }
    answer.expect("a RoleBinding in the namespace suffices");
    let from: Vec<ParametersFrom> = serde_json::from_value(from).unwrap();
    let sources = ParameterSources::new(manager(&world.plane).await);
    let elsewhere = sources.read("other", Some("default"), &from).await.unwrap_err();
    assert!(elsewhere.message.contains("may not act as ServiceAccount other/default"), "{elsewhere}");
}

/// As the message about it says.
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
