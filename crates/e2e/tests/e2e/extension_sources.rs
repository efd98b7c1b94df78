//! Where extensions and their parameters come from: catalogs, ranges of Kubernetes and of the platform, packages, and
//! objects of others.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::Extensions,
    wait::eventually,
    world::{config_value, hello},
};
use chandler_sandbox::{
    assets::KubernetesVersion,
    chart::{self, Package},
    registry::Registry,
    repository::ChartRepository,
    testing,
};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Looks so often that a test need not wait.
const OFTEN: [&str; 2] = ["--poll-seconds", "1"];

/// The hello chart with a `Chart.yaml` of its own.
fn hello_with(test: &Extensions, metadata: &str) -> std::path::PathBuf {
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

/// A catalog of the world's charts, read again every second.
async fn catalog(test: &Extensions, name: &str, namespace: &str, further: Value) {
    let mut spec = json!({
        "url": test.world.repository.url(), "interval": "1s",
        "certificateAuthority": {"name": "ca", "key": "ca.crt"},
    });
    spec.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        }))
        .await;
}

#[tokio::test]
async fn a_package_of_a_catalog_is_an_extension() {
    let test = Extensions::new("offered").await;
    let alpha = test.world.cluster("alpha").await;
    let _manager = test.world.manager_with(&OFTEN);
    let needs =
        "kubeVersion: '>=1.30.0-0'\nannotations:\n  chandler.dev/dependencies: |\n    - {extension: base}\n";
    test.world.repository.publish_version(&hello_with(&test, needs), "2.1.0").unwrap();
    let future = hello_with(&test, "kubeVersion: '>=1.40.0-0'\n");
    test.world.repository.publish_version(&future, "3.0.0").unwrap();
    catalog(&test, "often", &test.world.namespace, json!({})).await;
    test.extension("base", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    // An Extension of the same name is something else.
    test.extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let reference = json!({"name": "hello", "catalog": "often"});
    test.instance("offered", "", json!({"extension": reference, "version": ">=2"})).await;

    let release = test.ready("often/hello", "alpha", "2.1.0").await;
    let base = test.ready("base", "alpha", "1.0.0").await;
    assert_eq!(release.spec.source.catalog.as_ref().unwrap().name, "often");
    assert_eq!(
        (&*release.spec.source.chart, release.spec.source.version.as_deref()),
        ("hello", Some("2.1.0"))
    );
    assert_eq!(release.spec.release.name, "hello");
    assert_eq!(test.cluster_condition("alpha", "AddonsReady", "True").await, "");

    // What a catalog offers later is offered to who is there.
    let wants = |range: &str| json!({"extension": reference, "version": range});
    test.instance("offered", "", wants("2.2.x")).await;
    eventually("it is told that nothing fits", || async {
        let status = test.instances().get("offered").await.unwrap().status?;
        status.resolution.first()?.message.contains("has no version in 2.2.x").then_some(())
    })
    .await;
    test.world.repository.publish_version(&hello_with(&test, needs), "2.2.0").unwrap();
    test.ready("often/hello", "alpha", "2.2.0").await;
    assert_eq!(test.world.history(&alpha, "hello").last().unwrap().0, 2);
    let still = test.ready("base", "alpha", "1.0.0").await;
    assert_eq!(still.metadata.uid, base.metadata.uid, "what runs keeps what it needs, whatever is asked for");
    assert_eq!(still.status.unwrap().revision, Some(1));

    let absent = json!({"extension": {"name": "hello", "catalog": "absent"}});
    test.instance("absent", "", absent).await;
    let why = test.instance_condition("absent", "NotPossible").await;
    assert!(why.contains("absent does not exist"), "{why}");
}

#[tokio::test]
async fn a_catalog_of_the_platform_is_for_whom_it_selects() {
    let test = Extensions::new("audience").await;
    let _alpha = test.world.cluster("alpha").await;
    let platform = test.world.sandbox.namespace("audience-platform").await.unwrap();
    let ca = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": platform},
        "stringData": {"ca.crt": test.world.repository.ca_pem()},
    });
    test.world.apply(&ca).await;
    let _manager = test.world.manager_with(&["--poll-seconds", "1", "--platform-namespace", &platform]);
    let some = json!({"namespaces": {"matchLabels": {"audience": "yes"}}});
    catalog(&test, "some", &platform, some).await;
    let reference = json!({"name": "hello", "catalog": "some", "scope": "Platform"});
    test.instance("hello", "", json!({"extension": reference, "version": "1.x"})).await;
    let why = test.instance_condition("hello", "NotPossible").await;
    let refusal = format!("ExtensionCatalog {platform}/some does not allow namespace {}", test.world.namespace);
    assert!(why.contains(&refusal), "{why}");
    assert!(test.release("platform/some/hello", "alpha").await.is_none());

    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(test.world.client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"audience": "yes"}}}));
    namespaces.patch(&test.world.namespace, &PatchParams::default(), &label).await.unwrap();
    // A wish that changes is looked at anew.
    test.instance("hello", "", json!({"extension": reference, "version": "1.1.x"})).await;
    test.ready("platform/some/hello", "alpha", "1.1.0").await;
}

/// Extensions of the platform's lifecycle and of none, with the same ranges.
async fn platform_extensions(test: &Extensions) {
    let versions = json!([
        {"version": "1.0.0", "kubernetes": "*", "platform": "<2"},
        {"version": "1.1.0", "kubernetes": "*", "platform": ">=2"},
    ]);
    test.extension("tied", versions.clone(), json!({"lifecycle": "Platform"})).await;
    test.extension("free", versions, json!({"lifecycle": "Independent"})).await;
    test.instance("tied", "tied", json!({})).await;
    test.instance("free", "free", json!({"version": "1.0.x"})).await;
}

#[tokio::test]
async fn a_lifecycle_of_the_platform_is_held_against_its_version() {
    let test = Extensions::new("platform").await;
    test.world.cluster("alpha").await;
    let manager = test.world.manager();
    platform_extensions(&test).await;
    let why = test.instance_condition("tied", "NotPossible").await;
    assert!(why.contains("platform") && why.contains("not configured"), "{why}");
    test.ready("free", "alpha", "1.0.0").await;
    manager.stop().await;

    let _manager = test.world.manager_with(&["--platform-version", "1.9.3"]);
    test.ready("tied", "alpha", "1.0.0").await;
    test.ready("free", "alpha", "1.0.0").await;
}

#[tokio::test]
async fn a_new_version_of_the_platform_reaches_the_clusters() {
    let test = Extensions::new("platform-from").await;
    test.world.cluster("alpha").await;
    let version = |version: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"version": version},
            "metadata": {"name": "platform", "namespace": test.world.namespace},
        })
    };
    test.world.apply(&version("v1.9.3")).await;
    let from = format!("{}/platform:version", test.world.namespace);
    let manager = test.world.manager_with(&["--platform-version-from", &from, "--parameters-seconds", "1"]);
    platform_extensions(&test).await;
    test.ready("tied", "alpha", "1.0.0").await;
    test.ready("free", "alpha", "1.0.0").await;

    test.world.apply(&version("v2.0.0")).await;
    test.ready("tied", "alpha", "1.1.0").await;
    test.ready("free", "alpha", "1.0.0").await;
    assert_eq!(test.warnings().await, []);

    // A version that cannot be read leaves everything as it is.
    test.world.apply(&version("soon")).await;
    eventually("the manager has seen it", || async {
        manager.logs().contains("the version of the platform cannot be read").then_some(())
    })
    .await;
    manager.settled().await;
    test.ready("tied", "alpha", "1.1.0").await;
}

#[tokio::test]
async fn a_source_of_parameters_that_changes_reaches_the_cluster() {
    let test = Extensions::new("sources").await;
    let alpha = test.world.cluster("alpha").await;
    let _manager = test.world.manager_with(&["--parameters-seconds", "1"]);
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
    test.extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let from = json!([
        {"configMap": {"name": "settings", "key": "values.yaml"}},
        {"secret": {"name": "secret", "key": "cluster"}, "parameter": "cluster"},
    ]);
    test.instance("hello", "hello", json!({"parametersFrom": from})).await;
    let greets = |text: &'static str| {
        let alpha = alpha.clone();
        eventually(text, move || {
            let alpha = alpha.clone();
            async move { (config_value(&alpha, "hello", "greeting").await.as_deref() == Some(text)).then_some(()) }
        })
    };
    greets("Aye from here").await;
    test.world.apply(&settings("Ahoy")).await;
    greets("Ahoy from here").await;
    test.world.apply(&secret("there")).await;
    greets("Ahoy from there").await;
}

#[tokio::test]
async fn master_data_is_read_with_the_rights_of_the_instance() {
    let test = Extensions::new("master-data").await;
    let alpha = test.world.cluster("alpha").await;
    let owner = test.world.sandbox.namespace("master-data-owner").await.unwrap();
    let _manager = test.world.manager_with(&["--parameters-seconds", "1"]);
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
    test.extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": owner, "name": "network", "path": "/data/proxy"});
    let from = json!([{"object": object, "parameter": "greeting"}]);
    test.instance("hello", "hello", json!({"serviceAccountName": "reader", "parametersFrom": from})).await;
    let namespace = &test.world.namespace;
    let why = test.instance_condition("hello", "NotPossible").await;
    assert!(why.contains(&format!("may not act as ServiceAccount {namespace}/reader")), "{why}");
    let command = why.split('`').nth(1).unwrap_or_default();
    test.world.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
    eventually("the owner of the object is asked", || async {
        let why = test.instance_condition("hello", "NotPossible").await;
        ["configmaps", "network", "reader", "get", &owner].iter().all(|part| why.contains(part)).then_some(())
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
    let release = test.ready("hello", "alpha", "1.0.0").await;
    assert!(
        release.spec.values.is_none() && release.spec.values_secret.is_some(),
        "nobody knows what it holds"
    );
    let greeting = config_value(&alpha, "hello", "greeting").await;
    assert_eq!(greeting.as_deref(), Some("proxy.example from somewhere"));
}

/// A chart with a schema of its values.
fn strict(test: &Extensions) -> std::path::PathBuf {
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
async fn parameters_are_held_against_the_schema_in_the_package() {
    let test = Extensions::new("packaged").await;
    let alpha = test.world.cluster("alpha").await;
    test.world.repository.publish(&strict(&test)).unwrap();
    let manager = test.world.manager_with(&OFTEN);
    catalog(&test, "often", &test.world.namespace, json!({})).await;
    let of_size = |size: u32| json!({"extension": {"name": "strict", "catalog": "often"}, "parameters": {"size": size}});
    test.instance("strict", "", of_size(9001)).await;
    let why = test.instance_condition("strict", "NotPossible").await;
    assert!(why.contains("size") && why.contains('7') && !why.contains("9001"), "{why}");
    assert!(test.release("often/strict", "alpha").await.is_none(), "nothing was sent on its way");
    assert_eq!(manager.started(OperationKind::INSTALL), 0);

    test.instance("strict", "", of_size(5)).await;
    test.ready("often/strict", "alpha", "1.0.0").await;
    assert_eq!(config_value(&alpha, "strict", "size").await.as_deref(), Some("5"));
    let asked = test.world.repository.requests()["/strict-1.0.0.tgz"];
    manager.settled().await;
    assert_eq!(test.world.repository.requests()["/strict-1.0.0.tgz"], asked);
    assert_eq!(asked, 1, "who has looked into a package does not fetch it again");

    test.instance("strict", "", of_size(9001)).await;
    test.instance_condition("strict", "NotPossible").await;
    assert_eq!(config_value(&alpha, "strict", "size").await.as_deref(), Some("5"), "what runs stays");
}

/// A cluster like another, with another Kubernetes.
async fn cluster_at(test: &Extensions, like: &str, name: &str, version: &str) {
    let like: DynamicObject = test.clusters().get(like).await.unwrap();
    let mut topology = like.data["spec"]["topology"].clone();
    topology["version"] = json!(version);
    test.world
        .apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": test.world.namespace, "labels": {"fleet": "test"}},
            "spec": {"topology": topology, "clusterNetwork": like.data["spec"]["clusterNetwork"]},
        }))
        .await;
    test.world.sandbox.wait_cluster(&test.world.namespace, name).await.unwrap();
}

async fn apply_extension(test: &Extensions, name: &str, spec: Value) {
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": name, "namespace": test.world.namespace}, "spec": spec,
        }))
        .await;
}

#[tokio::test]
async fn each_kubernetes_has_a_source_of_its_own() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = Extensions::new("ranges").await;
    test.world.cluster("alpha").await;
    cluster_at(&test, "alpha", "beta", "v1.35.4").await;
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
    let manager = test.world.manager_with(&OFTEN);
    let own = &test.world.namespace;
    catalog(&test, "newer", own, json!({"url": newer.url()})).await;
    catalog(&test, "registry", own, json!({"url": registry.url(), "filter": {"include": ["hello"]}})).await;
    let source = |catalog: &str| json!({"catalog": {"name": catalog}, "chart": "hello"});
    let versions = json!([
        {"version": "1.0.0", "kubernetes": "<1.35", "source": source("charts")},
        {"version": "2.0.0", "kubernetes": ">=1.35", "source": source("newer")},
    ]);
    apply_extension(&test, "ranges", json!({"versions": versions})).await;
    apply_extension(&test, "tags", json!({"followKubernetes": source("newer")})).await;
    apply_extension(&test, "registry", json!({"followKubernetes": source("registry")})).await;
    for name in ["ranges", "tags", "registry"] {
        test.instance(name, name, json!({"release": {"name": name, "namespace": "default"}})).await;
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
        let release = test.ready(extension, cluster, version).await;
        assert_eq!(release.spec.source.catalog.unwrap().name, catalog, "{extension} on {cluster}");
        let installed = release.status.unwrap();
        assert_eq!((installed.package.unwrap().version.as_str(), installed.revision), (version, Some(1)));
    }
    assert_eq!(test.warnings().await, []);
    manager.stop().await;
    registry.stop().await;
}

const WIDGETS: &str = "apiVersion: apiextensions.k8s.io/v1
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

/// A chart with the definition of a kind, if it brings that, and further templates.
fn kinds(test: &Extensions, name: &str, defines: Option<&str>, templates: &[(&str, &str)]) {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let definition = defines.map(|kind| WIDGETS.replace("KIND", kind));
    let mut files = vec![("Chart.yaml", metadata.as_str())];
    files.extend(definition.as_deref().map(|definition| ("crds/kind.yaml", definition)));
    files.extend(templates);
    let folder = chart::write(&test.world.dir.join(name), &files).unwrap();
    test.world.repository.publish(&folder).unwrap();
}

#[tokio::test]
async fn an_operator_and_its_resources_come_up_without_a_retry() {
    let test = Extensions::new("operators").await;
    let alpha = test.world.cluster("alpha").await;
    let deployment = std::fs::read_to_string(hello().join("templates/deployment.yaml")).unwrap();
    let deployment = deployment
        .replace("{{ .Values.replicas }}", "1")
        .replace("{{ .Values.image }}", "operator")
        .replace("      serviceAccountName: {{ .Release.Name }}\n", "");
    kinds(&test, "operator", Some("widget"), &[("templates/deployment.yaml", deployment.as_str())]);
    let resource = |kind: &str| {
        format!("apiVersion: example.dev/v1\nkind: {kind}\nmetadata: {{name: first}}\nspec: {{size: 3}}\n")
    };
    kinds(&test, "resources", None, &[("templates/widget.yaml", &resource("widget"))]);
    kinds(&test, "both", Some("gadget"), &[("templates/gadget.yaml", &resource("gadget"))]);
    let manager = test.world.manager();
    let versions = |chart: &str, needs: Value| {
        json!({"versions": [{
            "version": "1.0.0", "kubernetes": "*", "dependencies": needs,
            "source": {"catalog": {"name": "charts"}, "chart": chart},
        }]})
    };
    apply_extension(&test, "operator", versions("operator", json!([]))).await;
    apply_extension(&test, "resources", versions("resources", json!([{"extension": "operator"}]))).await;
    apply_extension(&test, "both", versions("both", json!([]))).await;
    test.instance("operator", "operator", json!({"options": {"wait": true}})).await;
    test.instance("resources", "resources", json!({})).await;
    test.instance("both", "both", json!({})).await;
    for extension in ["operator", "resources", "both"] {
        let status = test.ready(extension, "alpha", "1.0.0").await.status.unwrap();
        assert_eq!((status.revision, status.history.len()), (Some(1), 1), "{extension}");
        assert!(status.last_failure.is_none());
    }
    for kind in ["widget", "gadget"] {
        let resource = kube::api::ApiResource {
            group: "example.dev".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.dev/v1".to_owned(),
            kind: kind.to_owned(),
            plural: format!("{kind}s"),
        };
        let all: Api<DynamicObject> =
            Api::namespaced_with(alpha.client().await.unwrap(), "default", &resource);
        assert_eq!(all.list(&ListParams::default()).await.unwrap().items.len(), 1, "{kind}");
    }
    assert_eq!(manager.ended(OperationKind::INSTALL), 3, "each was installed once");
    assert_eq!(test.warnings().await, []);
}
