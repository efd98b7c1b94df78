//! Sources of extensions and of their parameters: catalogs, Kubernetes and platform versions, schemas in charts, and other
//! objects.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::ExtensionWorld,
    third_party,
    wait::eventually,
    world::{config_value, hello},
};
use chandler_sandbox::{
    assets::KubernetesVersion,
    chart::{self, Package},
    plane::Plane,
    registry::Registry,
    repository::ChartRepository,
    testing,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Arguments for a manager that polls every second.
const POLL_OFTEN: [&str; 2] = ["--poll-seconds", "1"];

/// Writes a copy of the hello chart with additional metadata in its `Chart.yaml`.
fn hello_with(test: &ExtensionWorld, metadata: &str) -> std::path::PathBuf {
    let folder = test.world.dir.join("hello");
    let mut files = vec![("Chart.yaml", format!("apiVersion: v2\nname: hello\nversion: 0.0.0\n{metadata}"))];
    let templates = std::fs::read_dir(hello().join("templates")).unwrap();
    let texts: Vec<_> = templates
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = format!("templates/{}", path.file_name().unwrap().to_string_lossy());
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.extend(texts.iter().map(|(name, text)| (name.as_str(), text.clone())));
    files.push(("values.yaml", std::fs::read_to_string(hello().join("values.yaml")).unwrap()));
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    chart::write(&folder, &files).unwrap()
}

/// Applies a catalog of the test's chart repository with an interval of one second; `fields` replaces fields of its spec.
async fn apply_catalog(test: &ExtensionWorld, name: &str, namespace: &str, fields: Value) {
    let mut spec = json!({
        "url": test.world.repository.url(), "interval": "1s",
        "certificateAuthority": {"name": "ca", "key": "ca.crt"},
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        }))
        .await;
}

#[tokio::test]
async fn a_chart_of_a_catalog_can_be_used_as_an_extension() {
    let test = ExtensionWorld::new("catalog-chart").await;
    let alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager_with(&POLL_OFTEN);
    let dependency =
        "kubeVersion: '>=1.30.0-0'\nannotations:\n  chandler.dev/dependencies: |\n    - {extension: base}\n";
    test.world.repository.publish_version(&hello_with(&test, dependency), "2.1.0").unwrap();
    let future = hello_with(&test, "kubeVersion: '>=1.40.0-0'\n");
    test.world.repository.publish_version(&future, "3.0.0").unwrap();
    apply_catalog(&test, "often", &test.world.namespace, json!({})).await;
    test.apply_extension("base", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    // An Extension of the same name is not used.
    test.apply_extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let reference = json!({"name": "hello", "catalog": "often"});
    test.apply_instance("from-catalog", "", json!({"extension": reference, "version": ">=2"})).await;

    let release = test.wait_ready("often/hello", "alpha", "2.1.0").await;
    let base = test.wait_ready("base", "alpha", "1.0.0").await;
    assert_eq!(release.spec.source.catalog.as_ref().unwrap().name, "often");
    assert_eq!(
        (&*release.spec.source.chart, release.spec.source.version.as_deref()),
        ("hello", Some("2.1.0"))
    );
    assert_eq!(release.spec.release.name, "hello");
    assert_eq!(test.wait_cluster_condition("alpha", "AddonsReady", "True").await, "");

    // An existing instance can use a version that is published later.
    let with_range = |range: &str| json!({"extension": reference, "version": range});
    test.apply_instance("from-catalog", "", with_range("2.2.x")).await;
    eventually("the status reports that no version is in the range", || async {
        let status = test.instances().get("from-catalog").await.unwrap().status?;
        status.resolution.first()?.message.contains("has no version in 2.2.x").then_some(())
    })
    .await;
    test.world.repository.publish_version(&hello_with(&test, dependency), "2.2.0").unwrap();
    test.wait_ready("often/hello", "alpha", "2.2.0").await;
    assert_eq!(test.world.history(&alpha, "hello").last().unwrap().0, 2);
    let current = test.wait_ready("base", "alpha", "1.0.0").await;
    assert_eq!(current.metadata.uid, base.metadata.uid, "the dependency is left unchanged");
    assert_eq!(current.status.unwrap().revision, Some(1));

    let absent = json!({"extension": {"name": "hello", "catalog": "absent"}});
    test.apply_instance("absent", "", absent).await;
    let message = test.wait_instance_reason("absent", "ResolutionFailed").await;
    assert!(message.contains("absent does not exist"), "{message}");
}

#[tokio::test]
async fn a_platform_catalog_serves_only_the_namespaces_it_selects() {
    let test = ExtensionWorld::new("namespace-selector").await;
    let _alpha = test.world.create_cluster("alpha").await;
    let platform = test.world.sandbox.namespace("selecting-platform").await.unwrap();
    let ca = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": platform},
        "stringData": {"ca.crt": test.world.repository.ca_pem()},
    });
    test.world.apply(&ca).await;
    let _manager = test.world.start_manager_with(&["--poll-seconds", "1", "--platform-namespace", &platform]);
    let selector = json!({"namespaces": {"matchLabels": {"selected": "yes"}}});
    apply_catalog(&test, "some", &platform, selector).await;
    let reference = json!({"name": "hello", "catalog": "some", "scope": "Platform"});
    test.apply_instance("hello", "", json!({"extension": reference, "version": "1.x"})).await;
    let message = test.wait_instance_reason("hello", "ResolutionFailed").await;
    let refusal =
        format!("ExtensionCatalog {platform}/some does not allow namespace {}", test.world.namespace);
    assert!(message.contains(&refusal), "{message}");
    assert!(test.release("platform/some/hello", "alpha").await.is_none());

    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(test.world.client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"selected": "yes"}}}));
    namespaces.patch(&test.world.namespace, &PatchParams::default(), &label).await.unwrap();
    // A change of the instance makes the manager evaluate the selector again.
    test.apply_instance("hello", "", json!({"extension": reference, "version": "1.1.x"})).await;
    test.wait_ready("platform/some/hello", "alpha", "1.1.0").await;
}

/// Applies two Extensions with the same ranges, one with lifecycle `Platform` and one with lifecycle `Independent`.
async fn apply_platform_extensions(test: &ExtensionWorld) {
    let versions = json!([
        {"version": "1.0.0", "kubernetes": "*", "platform": "<2"},
        {"version": "1.1.0", "kubernetes": "*", "platform": ">=2"},
    ]);
    test.apply_extension("tied", versions.clone(), json!({"lifecycle": "Platform"})).await;
    test.apply_extension("free", versions, json!({"lifecycle": "Independent"})).await;
    test.apply_instance("tied", "tied", json!({})).await;
    test.apply_instance("free", "free", json!({"version": "1.0.x"})).await;
}

#[tokio::test]
async fn versions_with_the_platform_lifecycle_are_matched_against_the_platform_version() {
    let test = ExtensionWorld::new("platform").await;
    test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    apply_platform_extensions(&test).await;
    let message = test.wait_instance_reason("tied", "ResolutionFailed").await;
    assert!(message.contains("platform") && message.contains("not configured"), "{message}");
    test.wait_ready("free", "alpha", "1.0.0").await;
    manager.stop().await;

    let _manager = test.world.start_manager_with(&["--platform-version", "1.9.3"]);
    test.wait_ready("tied", "alpha", "1.0.0").await;
    test.wait_ready("free", "alpha", "1.0.0").await;
}

#[tokio::test]
async fn a_new_platform_version_upgrades_extensions() {
    let test = ExtensionWorld::new("platform-from").await;
    test.world.create_cluster("alpha").await;
    let version = |version: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"version": version},
            "metadata": {"name": "platform", "namespace": test.world.namespace},
        })
    };
    test.world.apply(&version("v1.9.3")).await;
    let from = format!("{}/platform:version", test.world.namespace);
    let manager =
        test.world.start_manager_with(&["--platform-version-from", &from, "--parameters-seconds", "1"]);
    apply_platform_extensions(&test).await;
    test.wait_ready("tied", "alpha", "1.0.0").await;
    test.wait_ready("free", "alpha", "1.0.0").await;

    test.world.apply(&version("v2.0.0")).await;
    test.wait_ready("tied", "alpha", "1.1.0").await;
    test.wait_ready("free", "alpha", "1.0.0").await;
    assert_eq!(test.warning_events().await, []);

    // An invalid version changes nothing.
    test.world.apply(&version("soon")).await;
    eventually("the manager has read the invalid version", || async {
        manager.logs().contains("the version of the platform cannot be read").then_some(())
    })
    .await;
    manager.wait_idle().await;
    test.wait_ready("tied", "alpha", "1.1.0").await;
}

#[tokio::test]
async fn a_changed_parameter_source_upgrades_the_release() {
    let test = ExtensionWorld::new("sources").await;
    let alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager_with(&["--parameters-seconds", "1"]);
    let namespace = &test.world.namespace;
    let settings = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"values.yaml": format!("greeting: {text}\n")},
            "metadata": {"name": "settings", "namespace": namespace},
        })
    };
    let secret = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"cluster": text},
            "metadata": {"name": "secret", "namespace": namespace},
        })
    };
    test.world.apply(&settings("Aye")).await;
    test.world.apply(&secret("here")).await;
    test.apply_extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let from = json!([
        {"configMap": {"name": "settings", "key": "values.yaml"}},
        {"secret": {"name": "secret", "key": "cluster"}, "parameter": "cluster"},
    ]);
    test.apply_instance("hello", "hello", json!({"parametersFrom": from})).await;
    let wait_greeting = |text: &'static str| {
        let alpha = alpha.clone();
        eventually(text, move || {
            let alpha = alpha.clone();
            async move { (config_value(&alpha, "hello", "greeting").await.as_deref() == Some(text)).then_some(()) }
        })
    };
    wait_greeting("Aye from here").await;
    test.world.apply(&settings("Ahoy")).await;
    wait_greeting("Ahoy from here").await;
    test.world.apply(&secret("there")).await;
    wait_greeting("Ahoy from there").await;
}

#[tokio::test]
async fn parameters_from_objects_are_read_with_the_permissions_of_the_instance() {
    let test = ExtensionWorld::new("object-parameters").await;
    let alpha = test.world.create_cluster("alpha").await;
    let owner = test.world.sandbox.namespace("object-owner").await.unwrap();
    let _manager = test.world.start_manager_with(&["--parameters-seconds", "1"]);
    test.world
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "network", "namespace": owner},
            "data": {"proxy": "proxy.example"},
        }))
        .await;
    test.world
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "reader", "namespace": test.world.namespace},
        }))
        .await;
    test.apply_extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": owner, "name": "network", "path": "/data/proxy"});
    let from = json!([{"object": object, "parameter": "greeting"}]);
    test.apply_instance("hello", "hello", json!({"serviceAccountName": "reader", "parametersFrom": from}))
        .await;
    let namespace = &test.world.namespace;
    let message = test.wait_instance_reason("hello", "ResolutionFailed").await;
    assert!(message.contains(&format!("may not act as ServiceAccount {namespace}/reader")), "{message}");
    let command = message.split('`').nth(1).unwrap_or_default();
    test.world.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
    eventually("the condition names the missing permission", || async {
        let message = test.wait_instance_reason("hello", "ResolutionFailed").await;
        ["configmaps", "network", "reader", "get", &owner]
            .iter()
            .all(|part| message.contains(part))
            .then_some(())
    })
    .await;

    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "network", "namespace": owner},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["network"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "network", "namespace": owner},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "network"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": test.world.namespace}],
    });
    test.world.apply(&role).await;
    test.world.apply(&binding).await;
    let release = test.wait_ready("hello", "alpha", "1.0.0").await;
    assert!(
        release.spec.values.is_none() && release.spec.values_secret.is_some(),
        "values from an object are treated as secret"
    );
    let greeting = config_value(&alpha, "hello", "greeting").await;
    assert_eq!(greeting.as_deref(), Some("proxy.example from somewhere"));
}

/// Writes a chart with a schema for its values.
fn chart_with_schema(test: &ExtensionWorld) -> std::path::PathBuf {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: strict\nversion: 1.0.0\n"),
        ("values.yaml", "size: 3\nname: strict\n"),
        (
            "values.schema.json",
            r#"{"required": ["name"], "properties": {"size": {"type": "integer", "maximum": 7}}}"#,
        ),
        (
            "templates/config.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: strict}\ndata: {size: {{ .Values.size | quote }}}\n",
        ),
    ];
    chart::write(&test.world.dir.join("strict"), &files).unwrap()
}

#[tokio::test]
async fn parameters_are_validated_against_the_schema_in_the_chart() {
    let test = ExtensionWorld::new("chart-schema").await;
    let alpha = test.world.create_cluster("alpha").await;
    test.world.repository.publish(&chart_with_schema(&test)).unwrap();
    let manager = test.world.start_manager_with(&POLL_OFTEN);
    apply_catalog(&test, "often", &test.world.namespace, json!({})).await;
    let with_size = |size: u32| json!({"extension": {"name": "strict", "catalog": "often"}, "parameters": {"size": size}});
    test.apply_instance("strict", "", with_size(9001)).await;
    let message = test.wait_instance_reason("strict", "ResolutionFailed").await;
    assert!(message.contains("size") && message.contains('7') && !message.contains("9001"), "{message}");
    assert!(test.release("often/strict", "alpha").await.is_none(), "no release object is created");
    assert_eq!(manager.started(OperationKind::INSTALL), 0);

    test.apply_instance("strict", "", with_size(5)).await;
    test.wait_ready("often/strict", "alpha", "1.0.0").await;
    assert_eq!(config_value(&alpha, "strict", "size").await.as_deref(), Some("5"));
    let downloads = test.world.repository.requests()["/strict-1.0.0.tgz"];
    manager.wait_idle().await;
    assert_eq!(test.world.repository.requests()["/strict-1.0.0.tgz"], downloads);
    assert_eq!(downloads, 1, "a chart is downloaded once for its schema and its installation");

    test.apply_instance("strict", "", with_size(9001)).await;
    test.wait_instance_reason("strict", "ResolutionFailed").await;
    assert_eq!(
        config_value(&alpha, "strict", "size").await.as_deref(),
        Some("5"),
        "the running release is left unchanged"
    );
}

/// Creates a copy of a cluster with another Kubernetes version.
async fn copy_cluster(test: &ExtensionWorld, original: &str, name: &str, version: &str) {
    let original: DynamicObject = test.clusters().get(original).await.unwrap();
    let mut topology = original.data["spec"]["topology"].clone();
    topology["version"] = json!(version);
    test.world
        .apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": test.world.namespace, "labels": {"fleet": "test"}},
            "spec": {"topology": topology, "clusterNetwork": original.data["spec"]["clusterNetwork"]},
        }))
        .await;
    test.world.sandbox.wait_cluster(&test.world.namespace, name).await.unwrap();
}

async fn apply_extension_spec(test: &ExtensionWorld, name: &str, spec: Value) {
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": name, "namespace": test.world.namespace}, "spec": spec,
        }))
        .await;
}

#[tokio::test]
async fn each_kubernetes_version_can_have_its_own_source() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("ranges").await;
    test.world.create_topology_cluster("alpha").await;
    copy_cluster(&test, "alpha", "beta", "v1.35.4").await;
    let authority = test.world.sandbox.authority();
    let newer = ChartRepository::start(authority, &test.world.dir.join("newer")).await.unwrap();
    let tags = ["v1.34", "v1.35"];
    for version in tags.into_iter().chain(["2.0.0"]) {
        newer.publish_version(&hello(), version).unwrap();
    }
    let home = test.world.dir.join("registry");
    let registry = Registry::start(test.world.sandbox.assets(), authority, &home).await.unwrap();
    for tag in tags {
        registry.push(&Package::pack(&hello(), Some(tag)).unwrap()).await.unwrap();
    }
    let manager = test.world.start_manager_with(&POLL_OFTEN);
    let own = &test.world.namespace;
    apply_catalog(&test, "newer", own, json!({"url": newer.url()})).await;
    apply_catalog(&test, "registry", own, json!({"url": registry.url(), "filter": {"include": ["hello"]}}))
        .await;
    let source = |catalog: &str| json!({"catalog": {"name": catalog}, "chart": "hello"});
    let versions = json!([
        {"version": "1.0.0", "kubernetes": "<1.35", "source": source("charts")},
        {"version": "2.0.0", "kubernetes": ">=1.35", "source": source("newer")},
    ]);
    apply_extension_spec(&test, "ranges", json!({"versions": versions})).await;
    apply_extension_spec(&test, "tags", json!({"followKubernetes": source("newer")})).await;
    apply_extension_spec(&test, "registry", json!({"followKubernetes": source("registry")})).await;
    for name in ["ranges", "tags", "registry"] {
        test.apply_instance(name, name, json!({"release": {"name": name, "namespace": "default"}})).await;
    }
    let rows = [
        ("alpha", "ranges", "1.0.0", "charts"),
        ("beta", "ranges", "2.0.0", "newer"),
        ("alpha", "tags", "v1.34", "newer"),
        ("beta", "tags", "v1.35", "newer"),
        ("alpha", "registry", "v1.34", "registry"),
        ("beta", "registry", "v1.35", "registry"),
    ];
    for (cluster, extension, version, catalog) in rows {
        let release = test.wait_ready(extension, cluster, version).await;
        assert_eq!(release.spec.source.catalog.unwrap().name, catalog, "{extension} on {cluster}");
        let installed = release.status.unwrap();
        assert_eq!((installed.package.unwrap().version.as_str(), installed.revision), (version, Some(1)));
    }
    assert_eq!(test.warning_events().await, []);
    manager.stop().await;
    registry.stop().await;
}

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.example.dev}
spec:
  group: example.dev
  names: {kind: KIND, plural: KINDs, singular: KIND}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {size: {type: integer}}}}
";

/// Publishes a chart with these templates and, if `crd` is set, the CRD of that kind.
fn publish_chart(test: &ExtensionWorld, name: &str, crd: Option<&str>, templates: &[(&str, &str)]) {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let crd = crd.map(|kind| CRD.replace("KIND", kind));
    let mut files = vec![("Chart.yaml", metadata.as_str())];
    files.extend(crd.as_deref().map(|crd| ("crds/kind.yaml", crd)));
    files.extend(templates);
    let folder = chart::write(&test.world.dir.join(name), &files).unwrap();
    test.world.repository.publish(&folder).unwrap();
}

/// Custom resources of cert-manager.
const CERTIFICATES: &str = "apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: first}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: first}
spec: {secretName: first, dnsNames: [first.example], issuerRef: {name: first}}
";

/// Counts the objects of a kind in namespace `default`.
async fn count(plane: &Plane, group: &str, kind: &str) -> usize {
    let resource = kube::api::ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    let all: Api<DynamicObject> = Api::namespaced_with(plane.client().await.unwrap(), "default", &resource);
    all.list(&ListParams::default()).await.unwrap().items.len()
}

#[tokio::test]
async fn an_operator_and_its_custom_resources_are_installed_without_a_retry() {
    let test = ExtensionWorld::new("operators").await;
    let alpha = test.world.create_cluster("alpha").await;
    let operator = third_party::cert_manager(&test.world.dir.join("cert-manager")).await;
    test.world.repository.publish_version(&operator, "1.0.0").unwrap();
    publish_chart(&test, "certificates", None, &[("templates/certificates.yaml", CERTIFICATES)]);
    let gadget = "apiVersion: example.dev/v1\nkind: gadget\nmetadata: {name: first}\nspec: {size: 3}\n";
    publish_chart(&test, "both", Some("gadget"), &[("templates/gadget.yaml", gadget)]);
    let manager = test.world.start_manager();
    let versions = |chart: &str, dependencies: Value| {
        json!({"versions": [{
            "version": "1.0.0", "kubernetes": "*", "dependencies": dependencies,
            "source": {"catalog": {"name": "charts"}, "chart": chart},
        }]})
    };
    apply_extension_spec(&test, "operator", versions("cert-manager", json!([]))).await;
    let needs_operator = json!([{"extension": "operator"}]);
    apply_extension_spec(&test, "resources", versions("certificates", needs_operator)).await;
    apply_extension_spec(&test, "both", versions("both", json!([]))).await;
    let values: Value = serde_json::from_str(third_party::CERT_MANAGER_VALUES).unwrap();
    test.apply_instance("operator", "operator", json!({"options": {"wait": true}, "parameters": values}))
        .await;
    test.apply_instance("resources", "resources", json!({})).await;
    test.apply_instance("both", "both", json!({})).await;
    for extension in ["operator", "resources", "both"] {
        let status = test.wait_ready(extension, "alpha", "1.0.0").await.status.unwrap();
        assert_eq!((status.revision, status.history.len()), (Some(1), 1), "{extension}");
        assert!(status.last_failure.is_none());
    }
    for (group, kind) in
        [("cert-manager.io", "Issuer"), ("cert-manager.io", "Certificate"), ("example.dev", "gadget")]
    {
        assert_eq!(count(&alpha, group, kind).await, 1, "{kind}");
    }
    assert_eq!(manager.ended(OperationKind::INSTALL), 3, "each was installed once");
    assert_eq!(test.warning_events().await, []);
}
