//! The kubeadm bootstrap provider of Cluster API puts the files of the agent into the bootstrap data of a node.

use std::{collections::BTreeMap, time::Duration};

use chandler_e2e::{
    capi_crds, go_module, management_cluster::ManagementCluster, manager::Manager, shell::Shell,
    wait::eventually,
};
use chandler_sandbox::{
    apply,
    assets::Binary,
    certificates::Authority,
    plane::{Plane, free_port},
    process::{Child, Spec},
    provider::cluster_resource,
    testing,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

const GROUP: &str = "bootstrap.cluster.x-k8s.io";
const CRDS: [(&str, &str); 2] = [
    ("KubeadmConfig", "bootstrap.cluster.x-k8s.io_kubeadmconfigs.yaml"),
    ("KubeadmConfigTemplate", "bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml"),
];
/// What the provider reports while a Secret of a file does not exist.
const HELD_BACK: &str = "Failed to read content from secrets for spec.files";
/// Where nodes have the files, and their keys in the Secret of the tunnel.
const FILES: [(&str, &str); 2] = [
    ("/etc/chandler-agent/agent.yaml", "agent.yaml"),
    ("/etc/kubernetes/manifests/chandler-agent.yaml", "pod.yaml"),
];

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind))
}

/// Starts the bootstrap provider. Its webhooks are not installed.
async fn start_provider(plane: &Plane) -> Child {
    let home = testing::fresh_dir("kubeadm-bootstrap").await.unwrap();
    let certificates = home.join("webhook");
    let authority = Authority::open(&home.join("pki"), "kubeadm bootstrap").unwrap();
    authority.server(&[]).unwrap().write(&certificates, "tls").unwrap();
    Child::spawn(&Spec {
        name: "kubeadm-bootstrap".to_owned(),
        program: testing::installer(Binary::KubeadmBootstrap).await.unwrap(),
        args: vec![
            format!("--kubeconfig={}", plane.kubeconfig_path().display()),
            format!("--webhook-port={}", free_port().unwrap()),
            format!("--webhook-cert-dir={}", certificates.display()),
            "--webhook-cert-name=tls.pem".to_owned(),
            "--webhook-key-name=tls.key".to_owned(),
            "--health-addr=127.0.0.1:0".to_owned(),
            "--diagnostics-address=0".to_owned(),
            "--leader-elect=false".to_owned(),
            // No object has an old version, and the CRDs have no webhook that converts them.
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields".to_owned(),
        ],
        env: vec![
            ("POD_NAMESPACE".to_owned(), "default".to_owned()),
            ("HOME".to_owned(), home.display().to_string()),
        ],
        home: home.clone(),
    })
    .unwrap()
}

/// Returns the files that the printed patch adds to the control plane of a Cluster.
async fn printed_files(cluster: &str) -> Value {
    let shell = Shell::new("tunnel-bootstrap").await;
    let printed =
        shell.expect("chandler tunnel patch --for kubeadm --without-files --output json", &[]).await;
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let operation = &printed["patches"][0]["definitions"][0]["jsonPatches"][0];
    let template = operation["valueFrom"]["template"].as_str().unwrap();
    serde_saphyr::from_str(&template.replace("{{ .builtin.cluster.name }}", cluster)).unwrap()
}

/// Creates a Cluster with infrastructure, without its tunnel.
async fn create_cluster(client: &Client) -> Api<DynamicObject> {
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "alpha", "namespace": "default"},
        "spec": {"controlPlaneEndpoint": {"host": "api.alpha.example", "port": 6443}},
    });
    apply::apply(client, &cluster).await.unwrap();
    let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &cluster_resource());
    let provisioned = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
    clusters.patch_status("alpha", &PatchParams::default(), &Patch::Merge(provisioned)).await.unwrap();
    clusters
}

/// Creates the Machine of the first control plane node and its `KubeadmConfig`, as the control plane provider does.
async fn create_machine(client: &Client, files: &Value) {
    let metadata = json!({
        "name": "first", "namespace": "default",
        "labels": {"cluster.x-k8s.io/cluster-name": "alpha", "cluster.x-k8s.io/control-plane": ""},
    });
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
        "spec": {
            "clusterName": "alpha", "version": "v1.34.4",
            "bootstrap": {"configRef": {"apiGroup": GROUP, "kind": "KubeadmConfig", "name": "first"}},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "SandboxMachine", "name": "first",
            },
        },
    });
    apply::apply(client, &machine).await.unwrap();
    let machines: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &resource("cluster.x-k8s.io", "Machine"));
    let owner = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "first", "controller": true,
        "uid": machines.get("first").await.unwrap().uid(),
    });
    let mut config = json!({
        "apiVersion": format!("{GROUP}/v1beta2"), "kind": "KubeadmConfig", "metadata": metadata,
        "spec": {"files": files},
    });
    config["metadata"]["ownerReferences"] = json!([owner]);
    apply::apply(client, &config).await.unwrap();
}

/// Returns the files in bootstrap data in the format of cloud-init: path → content.
fn written_files(data: &str) -> BTreeMap<String, String> {
    let data: Value = serde_saphyr::from_str(data).unwrap();
    let files = data["write_files"].as_array().unwrap().iter();
    let text = |file: &Value, field: &str| file[field].as_str().unwrap_or_default().to_owned();
    files.map(|file| (text(file, "path"), text(file, "content"))).collect()
}

#[tokio::test]
#[ignore = "builds kubeadm-bootstrap"]
async fn bootstrap_data_contains_the_files_of_the_agent() {
    let management = ManagementCluster::new("tunnel-bootstrap").await;
    let client = management.client.clone();
    capi_crds::install_core(&client).await;
    let module = go_module::of_sandbox("sigs.k8s.io/cluster-api").await;
    capi_crds::install(&client, &module.join("bootstrap/kubeadm/config/crd/bases"), &CRDS).await;
    let manager = management.start_manager_with(&["--tunnel-hub-address", "hub.example:443"]);
    let manager = Manager::from_process(manager);
    let provider = start_provider(&management.plane).await;
    let clusters = create_cluster(&client).await;
    create_machine(&client, &printed_files("alpha").await).await;

    let configs: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &resource(GROUP, "KubeadmConfig"));
    let held_back = eventually("the bootstrap data is held back", || async {
        provider.check().unwrap();
        let config = configs.get("first").await.unwrap();
        let conditions = config.data.pointer("/status/conditions")?.as_array()?;
        conditions.iter().any(|condition| condition["message"] == HELD_BACK).then_some(config)
    })
    .await;
    assert_eq!(held_back.data.pointer("/status/dataSecretName"), None);

    let enabled = Patch::Merge(json!({"metadata": {"labels": {"chandler.dev/tunnel": "enabled"}}}));
    clusters.patch("alpha", &PatchParams::default(), &enabled).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    let data = eventually("the bootstrap data exists", || async {
        provider.check().unwrap();
        let config = configs.get("first").await.unwrap();
        let name = config.data.pointer("/status/dataSecretName")?.as_str()?;
        secrets.get(name).await.unwrap().data?.remove("value")
    })
    .await;
    let written = written_files(std::str::from_utf8(&data.0).unwrap());
    let expected = secrets.get("alpha-tunnel").await.unwrap().data.unwrap();
    for (path, key) in FILES {
        let expected = std::str::from_utf8(&expected[key].0).unwrap();
        assert!(!expected.is_empty());
        assert_eq!(written.get(path).map(|text| text.trim_end()), Some(expected.trim_end()), "{path}");
    }
    provider.stop(Duration::from_secs(10)).await;
    manager.stop().await;
}
