//! The Cluster API Operator installs Chandler from the files of a release.

use std::{io::Write as _, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chandler_e2e::go_module;
use chandler_sandbox::{
    apply,
    assets::Binary,
    certificates::Authority,
    plane::{Plane, free_port},
    process::{Child, Spec},
    testing,
};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    installed_manager,
    providers::{OLDER, Providers},
};

const LIMIT: Duration = Duration::from_mins(2);

/// Starts the operator as a process. Its webhooks are not registered: they only set defaults and validate.
async fn start_operator(plane: &Plane, home: &Path) -> Child {
    let certificates = home.join("webhook");
    let authority = Authority::open(&home.join("pki"), "operator").unwrap();
    authority.server(&[]).unwrap().write(&certificates, "tls").unwrap();
    std::fs::copy(certificates.join("tls.pem"), certificates.join("tls.crt")).unwrap();
    let spec = Spec {
        name: Binary::CapiOperator.file_name().to_owned(),
        program: testing::installer(Binary::CapiOperator).await.unwrap(),
        args: vec![
            format!("--kubeconfig={}", plane.kubeconfig_path().display()),
            format!("--webhook-port={}", free_port().unwrap()),
            format!("--webhook-cert-dir={}", certificates.display()),
            "--health-addr=0".to_owned(),
            "--profiler-address=".to_owned(),
            "--diagnostics-address=0".to_owned(),
        ],
        env: vec![("HOME".to_owned(), home.display().to_string())],
        home: home.to_owned(),
    };
    Child::spawn(&spec).unwrap()
}

/// Installs the CRDs of the operator, and those that the components of the Cluster API need.
async fn install_crds(client: &Client, providers: &Providers) {
    let crds = go_module::of_sandbox("sigs.k8s.io/cluster-api-operator").await.join("config/crd/bases");
    for file in std::fs::read_dir(crds).unwrap() {
        apply::apply_all(client, &std::fs::read_to_string(file.unwrap().path()).unwrap()).await.unwrap();
    }
    let cert_manager = std::fs::read_to_string(providers.path("cert-manager/v1.19.3/cert-manager.yaml"));
    apply::apply_all(client, &cert_manager.unwrap()).await.unwrap();
}

/// Returns a version of a provider in the format of the operator.
fn config_map(namespace: &str, version: &str, metadata: &str, components: &str) -> Value {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(components.as_bytes()).unwrap();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": version, "namespace": namespace, "labels": {"provider": "components"},
            "annotations": {"provider.cluster.x-k8s.io/compressed": "true"},
        },
        "data": {"metadata": metadata},
        "binaryData": {"components": STANDARD.encode(compressed.finish().unwrap())},
    })
}

fn provider(kind: &str, name: &str, namespace: &str, version: &str) -> Value {
    json!({
        "apiVersion": "operator.cluster.x-k8s.io/v1alpha2", "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"version": version, "fetchConfig": {"selector": {"matchLabels": {"provider": "components"}}}},
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

async fn wait_ready(client: &Client, operator: &Child, kind: &str, name: &str, namespace: &str) {
    let kind = GroupVersionKind::gvk("operator.cluster.x-k8s.io", "v1alpha2", kind);
    let providers: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let status = providers.get(name).await.unwrap().data["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True") {
            return;
        }
        operator.check().unwrap();
        assert!(std::time::Instant::now() < deadline, "{name}: {status:#}; see {}", operator.log().display());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_api_operator_installs_chandler() {
    testing::assets().await.unwrap();
    let home = testing::fresh_dir("operator").await.unwrap();
    let plane = testing::full_plane(1).await.unwrap();
    let client = plane.client().await.unwrap();
    let providers = Providers::without_core_process(&home.join("providers")).await;
    providers.chandler().await;
    install_crds(&client, &providers).await;
    let operator = start_operator(&plane, &home).await;

    let file = |name: &str| std::fs::read_to_string(providers.path(name)).unwrap();
    let (metadata, core) =
        (file("cluster-api/v1.12.3/metadata.yaml"), file("cluster-api/v1.12.3/core-components.yaml"));
    let ours = format!("addon-chandler/{OLDER}");
    let (our_metadata, components) =
        (file(&format!("{ours}/metadata.yaml")), file(&format!("{ours}/addon-components.yaml")));
    for object in [
        namespace("capi-system"),
        config_map("capi-system", "v1.12.3", &metadata, &core),
        provider("CoreProvider", "cluster-api", "capi-system", "v1.12.3"),
        namespace("chandler-system"),
        config_map("chandler-system", OLDER, &our_metadata, &components),
        provider("AddonProvider", "chandler", "chandler-system", OLDER),
    ] {
        apply::apply(&client, &object).await.unwrap();
    }
    wait_ready(&client, &operator, "CoreProvider", "cluster-api", "capi-system").await;
    wait_ready(&client, &operator, "AddonProvider", "chandler", "chandler-system").await;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "chandler-system");
    let deployment = deployments.get("chandler-manager").await.unwrap();
    let image = deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone();
    assert!(image.unwrap().ends_with(OLDER));
    installed_manager::start(&plane, &home, &[]).await;
}
