//! The output of `cargo xtask dist`: chart, manifests and clusterctl components.

use std::{collections::BTreeMap, path::Path, time::Duration};

use chandler_e2e::{
    packaging::{chart, dist, xtask_dist},
    shell::{Shell, text},
};
use chandler_sandbox::{assets::Binary, testing};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use serde_json::{Value, json};

use crate::documents::{commands_of, document, root};

pub const INSTALLING: &str = "docs/guides/installing.md";
const EVERY_VALUE: &str = include_str!("packaging_values.yaml");

/// Returns the objects of a manifest by kind and name.
fn objects(yaml: &str) -> BTreeMap<(String, String), Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let key = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&object["kind"]), text(&object["metadata"]["name"]))
    };
    documents.into_iter().map(|object| (key(&object), object)).collect()
}

/// Returns an object without its labels and annotations.
fn content(object: &Value) -> Value {
    let mut object = normalize(object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|name, _| !["labels", "annotations"].contains(&name.as_str()));
    object
}

/// Removes null fields and converts numbers to floats, because Helm writes 0.0 as 0.
fn normalize(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name.clone(), normalize(value))).collect()
        }
        Value::Array(items) => items.iter().map(normalize).collect(),
        Value::Number(number) => number.as_f64().into(),
        other => other.clone(),
    }
}

async fn read_dist(name: &str) -> String {
    std::fs::read_to_string(dist().await.join(name)).unwrap()
}

/// Replaces variables by their defaults as clusterctl does. Returns the result and the names of the variables.
fn with_defaults(components: &str) -> (String, Vec<String>) {
    let mut parts = components.split("${");
    let mut substituted = parts.next().unwrap().to_owned();
    let mut names = Vec::new();
    for part in parts {
        let (variable, rest) = part.split_once('}').unwrap();
        let (name, default) =
            variable.split_once(":=").unwrap_or_else(|| panic!("{variable} has no default"));
        assert!(!default.is_empty(), "clusterctl requires {name} because its default is empty");
        names.push(name.to_owned());
        substituted.extend([default, rest]);
    }
    (substituted, names)
}

/// Runs `helm template` with the packaged chart.
async fn render(values: Option<&Path>, arguments: &[&str]) -> Result<String, String> {
    let helm = testing::assets().await.unwrap().path(Binary::Helm);
    let mut command = std::process::Command::new(helm);
    command.arg("template").arg("chandler").arg(chart().await).args(["--namespace", "chandler-system"]);
    command.args(values.into_iter().flat_map(|file| [Path::new("--values"), file])).args(arguments);
    let output = command.output().unwrap();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

async fn render_with_every_value() -> String {
    let file = testing::fresh_dir("values").await.unwrap().join("values.yaml");
    std::fs::write(&file, EVERY_VALUE).unwrap();
    render(Some(&file), &[]).await.unwrap()
}

fn deployment(objects: &BTreeMap<(String, String), Value>) -> &Value {
    &objects[&("Deployment".to_owned(), "chandler-manager".to_owned())]
}

fn arguments(manifest: &str) -> Vec<String> {
    container_arguments(deployment(&objects(manifest)))
}

fn container_arguments(deployment: &Value) -> Vec<String> {
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    serde_json::from_value(arguments.clone()).unwrap()
}

#[tokio::test]
async fn every_manifest_contains_the_tested_rbac_and_crds() {
    let components = with_defaults(&read_dist("addon-components.yaml").await).0;
    let helm = render(None, &[]).await.unwrap();
    for manifest in [&components, &read_dist("chandler.yaml").await, &helm] {
        let shipped = objects(manifest);
        for source in ["deploy/rbac.yaml", "deploy/crds.yaml"] {
            for (key, expected) in objects(&document(source)) {
                let Some(found) = shipped.get(&key) else {
                    assert!(key.0 == "Namespace" && manifest == &helm, "{key:?} is missing");
                    continue;
                };
                assert!(content(found) == content(&expected), "{key:?} differs from {source}");
            }
        }
        let bindings = shipped.keys().filter(|(kind, _)| kind.ends_with("RoleBinding")).count();
        let tested = objects(&document("deploy/rbac.yaml"));
        assert_eq!(bindings, tested.keys().filter(|(kind, _)| kind.ends_with("RoleBinding")).count());
    }
}

#[tokio::test]
async fn the_clusterctl_components_equal_the_chart_except_for_variables() {
    let (components, variables) = with_defaults(&read_dist("addon-components.yaml").await);
    assert!(!variables.is_empty(), "there are no variables");
    let guide = document(INSTALLING);
    for name in &variables {
        assert!(guide.contains(&format!("`{name}`")), "{INSTALLING} does not mention {name}");
    }
    let manifest = objects(&read_dist("chandler.yaml").await);
    let components = objects(&components);
    assert!(manifest.keys().eq(components.keys()));
    for (key, object) in &components {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["cluster.x-k8s.io/provider"], "addon-chandler", "{key:?}");
        assert_eq!(labels["clusterctl.cluster.x-k8s.io"], "", "{key:?}");
        if key.0 == "Deployment" {
            continue;
        }
        assert!(content(object) == content(&manifest[key]), "{key:?}");
    }
    let as_chart = arguments(&read_dist("chandler.yaml").await);
    let from_variables = arguments(&with_defaults(&read_dist("addon-components.yaml").await).0);
    assert_eq!(from_variables, as_chart);
    let mut pods =
        [deployment(&components), deployment(&manifest)].map(|d| d["spec"]["template"]["spec"].clone());
    for pod in &mut pods {
        pod["containers"][0]["args"] = Value::Null;
    }
    assert_eq!(pods[0], pods[1]);
}

#[tokio::test]
async fn the_manager_accepts_every_argument_of_the_manifests() {
    let shell = Shell::new("arguments").await;
    let manifests = [
        with_defaults(&read_dist("addon-components.yaml").await).0,
        read_dist("chandler.yaml").await,
        render_with_every_value().await,
        render(None, &["--set", "hooks.enabled=false"]).await.unwrap(),
    ];
    for manifest in manifests {
        let arguments = arguments(&manifest).join(" ").replace("$(POD_NAMESPACE)", "chandler-system");
        let line = format!("chandler {arguments} --kubeconfig /nowhere --tool /bin/true");
        // The Deployment sets it from `status.podIP`.
        let environment = [("POD_IP", "10.0.0.7")];
        let output = shell.run(&line, &environment, Duration::from_secs(20)).await;
        let stderr = text(&output.stderr);
        assert!(stderr.contains("/nowhere") && !stderr.contains("Usage:"), "{line}: {stderr}");
    }
}

/// The Deployment mounts the keys that the manager creates; here they are missing.
#[tokio::test]
async fn the_hub_accepts_every_argument_of_the_chart() {
    let objects = objects(&render_with_every_value().await);
    let hub = &objects[&("Deployment".to_owned(), "chandler-hub".to_owned())];
    let keys = "/nowhere/keys";
    let arguments = container_arguments(hub).join(" ").replace("/etc/chandler-tunnel", keys);
    assert!(arguments.contains(keys), "the keys are mounted elsewhere: {arguments}");
    let line = format!("chandler {arguments} --kubeconfig /nowhere/config");
    let shell = Shell::new("hub-arguments").await;
    let output = shell.run(&line, &[("POD_NAME", "hub-1")], Duration::from_secs(20)).await;
    let stderr = text(&output.stderr);
    assert!(stderr.contains("/nowhere/") && !stderr.contains("Usage:"), "{line}: {stderr}");
    assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
}

/// No selector of the manager matches a Pod of the hub: it would get the traffic and the budget of the manager.
#[tokio::test]
async fn the_pods_of_hub_and_manager_have_different_labels() {
    let objects = objects(&render_with_every_value().await);
    let pods = |name: &str| {
        let deployment = &objects[&("Deployment".to_owned(), name.to_owned())];
        deployment["spec"]["template"]["metadata"]["labels"].as_object().unwrap().clone()
    };
    let (manager, hub) = (pods("chandler-manager"), pods("chandler-hub"));
    for ((kind, name), object) in &objects {
        let spec = &object["spec"];
        let selector = match kind.as_str() {
            "Service" => &spec["selector"],
            "NetworkPolicy" => &spec["podSelector"]["matchLabels"],
            "PodDisruptionBudget" | "Deployment" => &spec["selector"]["matchLabels"],
            _ => continue,
        };
        let Some(selector) = selector.as_object() else { continue };
        let matches = |labels: &serde_json::Map<String, Value>| {
            selector.iter().all(|(label, value)| labels.get(label) == Some(value))
        };
        assert_ne!(matches(&manager), matches(&hub), "{kind} {name} selects both or none");
        assert_eq!(matches(&hub), name.starts_with("chandler-hub"), "{kind} {name}");
    }
}

#[tokio::test]
async fn every_chart_value_has_an_effect_and_the_api_server_accepts_the_manifest() {
    let manifest = render_with_every_value().await;
    for value in [
        "registry.example/team/chandler:v9.9.9@sha256:0123456789abcdef",
        "name: registry",
        "--log-level=info,chandler_tool=debug",
        "--log-format=text",
        "--concurrency=32",
        "--concurrency-per-cluster=8",
        "--tool-processes=6",
        "--concurrency-per-namespace=6",
        "--template-seconds-per-minute=20",
        "--max-timeout-seconds=1800",
        "--watch-filter=blue",
        "--namespace=fleet",
        "--health=false",
        "--platform-namespace=platform",
        "--platform-version-from=platform/about:version",
        "--refuse-private-addresses",
        "--refuse-unverified-tls",
        "--allow-address=10.9.0.0/16",
        "--allow-source-address=fd00::/8",
        "--refuse-source-address=10.1.2.3",
        "--store-limit=4096",
        "--store-quota-per-namespace=512",
        "--index-quota-per-namespace=32",
        "--require-login-hosts",
        "--default-workload-service-account=addons/tenant",
        "--ignore-tenancies",
        "sizeLimit: 6144Mi",
        "--hooks-endpoint=fleet/hooks:8443",
        "--hooks-failure-policy=fail",
        "--cluster-deletion-timeout-seconds=900",
        "name: chandler-system-kubernetes-upgrades",
        "- planes.example",
        "--receiver-address=0.0.0.0:9292",
        "--receiver-service=chandler-receiver",
        "name: chandler-receiver",
        "- --fleet\n",
        "name: chandler-system-fleet",
        "--tunnel-hub-address=hub.example:443",
        "--tunnel-hub-address=[fd00::7]:8443",
        "--tunnel-agent-image=registry.example/team/agent:v9.9.8@sha256:fedcba9876543210",
        "name: chandler-system-hub",
        "--peers=chandler-hub-peers.chandler-system.svc:8134",
        "replicas: 4",
        "type: NodePort",
        "balancer: internal",
        "externalTrafficPolicy: Local",
        "--buffer-limit=128",
        "--drain-seconds=90",
        "terminationGracePeriodSeconds: 120",
        "memory: 3Gi",
        "kubernetes.io/metadata.name: capi-kubeadm-control-plane-system",
        "cidr: 192.0.2.0/24",
        "--poll-seconds=60",
        "memory: 5Gi",
        "pool: infrastructure",
        "key: pool",
        "key: zone",
        "replicas: 3",
        "topologyKey: rack",
        "maxUnavailable: 50%",
        "priorityClassName: system-cluster-critical",
        "imagePullPolicy: Always",
        "team: platform",
        "owner: platform",
        "kubernetes.io/metadata.name: cluster-api",
        "kubernetes.io/metadata.name: monitoring",
        "kubernetes.io/metadata.name: ingress",
        "- 192.0.2.128/25",
        "- 2001:db8::/32",
    ] {
        assert!(manifest.contains(value), "{value} is missing");
    }
    assert!(!manifest.contains("helm.sh/resource-policy"));
    let set: Value = serde_saphyr::from_str(EVERY_VALUE).unwrap();
    let defaults: Value = serde_saphyr::from_str(&document("deploy/chart/values.yaml")).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&set), names(&defaults), "every value is set");

    let shell = Shell::new("every-value").await;
    let plane = testing::bare_plane().await.unwrap();
    let config = plane.kubeconfig_path();
    let environment = [("KUBECONFIG", &*config.to_string_lossy())];
    shell.expect("kubectl create namespace chandler-system", &environment).await;
    let components = with_defaults(&read_dist("addon-components.yaml").await).0;
    for manifest in [manifest, components] {
        let file = shell.home.join("manifest.yaml");
        std::fs::write(&file, &manifest).unwrap();
        let apply = "kubectl apply --server-side --force-conflicts --validate=strict --dry-run=server -f";
        shell.expect(&format!("{apply} {}", file.display()), &environment).await;
    }
}

#[tokio::test]
async fn metadata_services_are_kept_out_by_default() {
    let manifest =
        render(None, &["--set", "tunnel.enabled=true,tunnel.hubAddresses={hub.example:443}"]).await.unwrap();
    let policies: Vec<Value> =
        objects(&manifest).into_values().filter(|one| one["kind"] == "NetworkPolicy").collect();
    assert_eq!(policies.len(), 2);
    for policy in &policies {
        let [rest, dns] = policy["spec"]["egress"].as_array().unwrap().as_slice() else { panic!("{policy}") };
        assert_eq!(dns["ports"], json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]));
        let except = |index: usize| rest["to"][index]["ipBlock"]["except"].as_array().unwrap().clone();
        assert!(except(0).contains(&json!("169.254.0.0/16")), "{policy}");
        for range in
            ["fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128"]
        {
            assert!(except(1).contains(&json!(range)), "{range}: {policy}");
        }
    }
}

/// Returns who may call the hooks.
async fn hooks_from(arguments: &[&str]) -> Value {
    callers_of_hooks(&objects(&render(None, arguments).await.unwrap()))
}

fn callers_of_hooks(objects: &BTreeMap<(String, String), Value>) -> Value {
    let policy = &objects[&("NetworkPolicy".to_owned(), "chandler-manager".to_owned())];
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    rules.iter().find(|rule| rule["ports"][0]["port"] == "hooks").unwrap()["from"].clone()
}

/// Returns the NetworkPolicy peers for all Pods of a namespace.
fn pods_of(namespace: &str) -> Value {
    json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}])
}

#[tokio::test]
async fn only_cluster_api_may_call_the_hooks() {
    assert_eq!(hooks_from(&[]).await, pods_of("capi-system"));
    assert_eq!(hooks_from(&["--set", "security.strict=true"]).await, pods_of("capi-system"));
    // `helm template` cannot see what an earlier chart has admitted.
    assert_eq!(hooks_from(&["--is-upgrade", "--set", "security=null"]).await, pods_of("capi-system"));
    let other = format!("networkPolicy.hooksFrom={}", pods_of("capi"));
    assert_eq!(hooks_from(&["--set", "security.strict=true", "--set-json", &other]).await, pods_of("capi"));
    let everyone = r#"networkPolicy.hooksFrom=[{"namespaceSelector": {}}]"#;
    assert_eq!(hooks_from(&["--set-json", everyone]).await, json!([{"namespaceSelector": {}}]));

    let components = read_dist("addon-components.yaml").await;
    let variable = "${CHANDLER_CLUSTER_API_NAMESPACE:=capi-system}";
    assert!(components.contains(variable), "{components}");
    let elsewhere = with_defaults(&components.replace(variable, "capi")).0;
    assert_eq!(callers_of_hooks(&objects(&elsewhere)), pods_of("capi"));
}

#[tokio::test]
async fn values_that_an_earlier_chart_did_not_have_may_be_missing() {
    // So they are with --reuse-values.
    let missing = "clusterDeletion=null,security=null,toolProcesses=null";
    let earlier = arguments(&render(None, &["--set", missing]).await.unwrap());
    for flag in ["--cluster-deletion", "--allow-address", "--tool-processes"] {
        assert!(!earlier.iter().any(|argument| argument.starts_with(flag)), "{earlier:?}");
    }
}

#[tokio::test]
async fn the_values_schema_accepts_valid_and_rejects_invalid_values() {
    let automatic = arguments(&render(None, &["--set", "hooks.endpoint=auto"]).await.unwrap());
    assert!(automatic.contains(&"--hooks-endpoint=auto".to_owned()), "{automatic:?}");
    for (invalid, path) in [
        ("logFormat=xml", "/logFormat"),
        ("concurrency=0", "/concurrency"),
        ("concurrency=many", "/concurrency"),
        ("replicas=0", "/replicas"),
        ("podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"),
        ("topologySpreadConstraints[0].maxSkew=1", "/topologySpreadConstraints/0"),
        ("hooks.failurePolicy=maybe", "/hooks/failurePolicy"),
        ("hooks.endpoint=http://plain", "/hooks/endpoint"),
        ("clusterDeletion.timeoutSeconds=0", "/clusterDeletion/timeoutSeconds"),
        ("upgradePolicy.controlPlaneGroups={Not A Group}", "/upgradePolicy/controlPlaneGroups/0"),
        ("image.digest=abc", "/image/digest"),
        ("platform.version=1.0,platform.versionFrom=a/b:c", "/platform"),
        ("watchNamespace=Not_A_Name", "/watchNamespace"),
        ("extraArgs={foo}", "/extraArgs/0"),
        ("security.strict=maybe", "/security/strict"),
        ("security.allowAddresses={everywhere}", "/security/allowAddresses/0"),
        ("sources.allowAddresses={everywhere}", "/sources/allowAddresses/0"),
        ("store.limit=1", "/store/limit"),
        ("networkPolicy.refuse={none}", "/networkPolicy/refuse/0"),
        ("tunnel.enabled=true", "/tunnel"),
        ("tunnel.hubAddresses={hub.example}", "/tunnel/hubAddresses/0"),
        ("tunnel.hubAddresses={hub:1,hub:2,hub:3,hub:4,hub:5}", "/tunnel/hubAddresses"),
        ("tunnel.service.type=ExternalName", "/tunnel/service/type"),
        ("tunnel.service.externalTrafficPolicy=Remote", "/tunnel/service/externalTrafficPolicy"),
        ("tunnel.bufferLimit=0", "/tunnel/bufferLimit"),
        ("tunnel.drainSeconds=4000", "/tunnel/drainSeconds"),
    ] {
        let error = render(None, &["--set", invalid]).await.expect_err(invalid);
        assert!(error.contains(path), "{invalid}: {error}");
    }
}

#[tokio::test]
async fn a_release_needs_a_section_in_the_changelog() {
    let out = testing::fresh_dir("refused").await.unwrap();
    let output = xtask_dist(&["--version", "99.0.0", "--out", &out.to_string_lossy()]).await;
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("CHANGELOG.md has no section `## 99.0.0`"), "{stderr}");
    let development =
        ["--version", "99.1.0-dev", "--image", "registry.example/chandler", "--out", &out.to_string_lossy()];
    assert!(xtask_dist(&development).await.status.success());
    let components = std::fs::read_to_string(out.join("addon-components.yaml")).unwrap();
    assert!(components.contains("image: \"registry.example/chandler:v99.1.0-dev\""));
    let metadata = std::fs::read_to_string(out.join("metadata.yaml")).unwrap();
    assert!(metadata.contains("- major: 99\n    minor: 1\n    contract: v1beta2\n"), "{metadata}");
}

/// Runs the commands of the guide in order, on a cluster on which Deployments become Available.
#[tokio::test]
async fn the_commands_of_the_installation_guide_work() {
    let shell = Shell::new("installing").await;
    let plane = testing::full_plane(1).await.unwrap();
    let config = plane.kubeconfig_path();
    let helm = testing::assets().await.unwrap().path(Binary::Helm).parent().unwrap().to_owned();
    let home = shell.home.to_string_lossy().into_owned();
    let config = config.to_string_lossy().into_owned();
    let environment = [("KUBECONFIG", &*config), ("HELM_CACHE_HOME", &*home), ("HELM_CONFIG_HOME", &*home)];
    let folder = dist().await.display();
    let policies: Api<NetworkPolicy> = Api::namespaced(plane.client().await.unwrap(), "chandler-system");
    for line in kubectl_and_helm_commands() {
        let line = line.replace("dist/", &format!("{folder}/"));
        let line = line.replace("VERSION", env!("CARGO_PKG_VERSION"));
        let run = format!("PATH={}:$PATH; cd {} && {line}", helm.display(), root().display());
        if !line.starts_with("helm upgrade ") {
            shell.expect(&run, &environment).await;
            continue;
        }
        assert_eq!(live_callers_of_hooks(&policies).await, pods_of("capi-system"));
        shell.expect(&run, &environment).await;
        assert_eq!(live_callers_of_hooks(&policies).await, pods_of("capi-system"));
        // As an earlier chart has left it.
        let everyone = json!([{"namespaceSelector": {}}]);
        shell.expect(&format!("{run} --set-json 'networkPolicy.hooksFrom={everyone}'"), &environment).await;
        shell.expect(&format!("{run} --set-json 'networkPolicy.hooksFrom=[]'"), &environment).await;
        assert_eq!(live_callers_of_hooks(&policies).await, everyone, "Cluster API may run anywhere");
    }
}

/// Returns who may call the hooks according to the API server.
async fn live_callers_of_hooks(policies: &Api<NetworkPolicy>) -> Value {
    let policy = policies.get("chandler-manager").await.unwrap();
    serde_json::to_value(&policy.spec.unwrap().ingress.unwrap()[0].from).unwrap()
}

/// Returns the commands of the guide that need neither clusterctl nor the Cluster API Operator nor a container builder.
pub fn kubectl_and_helm_commands() -> Vec<String> {
    let lines = commands_of(INSTALLING).into_iter();
    let matching: Vec<_> =
        lines.filter(|line| line.starts_with("kubectl ") || line.starts_with("helm ")).collect();
    assert!(!matching.is_empty(), "{INSTALLING} has no such commands");
    matching
}

#[test]
fn releases_are_built_with_the_pinned_toolchains() {
    let release = document(".github/workflows/release.yml");
    assert!(release.contains("run: rustup toolchain install\n"), "Rust is that of rust-toolchain.toml");
    let module = document("tools/helm/go.mod");
    let go = module.lines().find_map(|line| line.strip_prefix("go ")).unwrap();
    let minor = go.rsplit_once('.').unwrap().0;
    assert!(release.contains(&format!("go-version: \"{minor}\"\n")), "{go}");
}
