//! Fleet for tests: its CRDs and its programs, from the Go module that pins them.

use std::path::{Path, PathBuf};

use chandler_sandbox::{
    apply,
    assets::Binary,
    crds::wait_served,
    dynamic_api,
    plane::Plane,
    process::{Child, Spec},
    testing,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use crate::{go_module, wait::eventually};

/// The API version of Fleet's kinds.
pub const API_VERSION: &str = "fleet.cattle.io/v1alpha1";
/// The namespace of Fleet's agent on workload clusters.
pub const AGENT_NAMESPACE: &str = "fleet-addon-agent";
/// The namespace of Fleet's controllers.
const SYSTEM_NAMESPACE: &str = "cattle-fleet-system";

/// Returns the objects of a kind of Fleet in a namespace.
pub fn objects(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    dynamic_api::namespaced(client, namespace, API_VERSION, kind)
}

/// Installs the CRDs of Fleet's chart `fleet-crd`, and waits until the API server serves the kinds that Chandler writes.
pub async fn install_crds(client: &Client) {
    let file = go_module::of_fleet().await.join("charts/fleet-crd/templates/crds.yaml");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
        apply::apply_all(client, document).await.unwrap();
    }
    for kind in ["Cluster", "ClusterGroup", "BundleNamespaceMapping"] {
        let resource: ApiResource = dynamic_api::resource(API_VERSION, kind);
        wait_served(client, &resource).await.unwrap();
    }
}

/// Binds the role that a manager with `--fleet` needs, as the chart does with `fleet.enabled`.
pub async fn bind_role(client: &Client) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "chandler-system-fleet"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "chandler-system-fleet",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "chandler-manager", "namespace": "chandler-system"}],
    });
    apply::apply(client, &binding).await.unwrap();
}

/// The running controllers of Fleet.
pub struct FleetControllers {
    dir: PathBuf,
    _controllers: [Child; 2],
}

impl FleetControllers {
    /// Configures Fleet on a management cluster and starts its controllers. The CRDs have to be installed.
    pub async fn start(management: &Plane) -> Self {
        let client = management.client().await.unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}});
        apply::apply(&client, &namespace).await.unwrap();
        apply::apply(&client, &config(management)).await.unwrap();
        let dir = testing::fresh_dir("fleet-programs").await.unwrap();
        let program = testing::installer(Binary::FleetController).await.unwrap();
        let kubeconfig = management.kubeconfig_path();
        let start = |name: &str, args: &[&str]| {
            spawn(&dir, name, &program, args, &kubeconfig, &[("NAMESPACE", SYSTEM_NAMESPACE)])
        };
        let controllers = [
            start("fleetcontroller", &["--disable-metrics", "--leader-elect=false"]),
            start("agentmanagement", &["agentmanagement", "--disable-bootstrap"]),
        ];
        Self { dir, _controllers: controllers }
    }

    /// Starts Fleet's agent for a workload cluster. kwok does not run the Pod that Fleet has created for it.
    pub async fn start_agent(&self, workload: &Plane) -> Child {
        let program = testing::installer(Binary::FleetAgent).await.unwrap();
        let environment = [("NAMESPACE", AGENT_NAMESPACE), ("AGENT_SCOPE", AGENT_NAMESPACE)];
        let (name, kubeconfig) = (format!("agent-{}", workload.name()), workload.kubeconfig_path());
        spawn(&self.dir, &name, &program, &["--leader-elect=false"], &kubeconfig, &environment)
    }
}

/// Waits until Fleet has installed its agent with the settings of a Fleet Cluster.
pub async fn wait_imported(client: &Client, namespace: &str, name: &str) -> DynamicObject {
    let clusters = objects(client, namespace, "Cluster");
    eventually(&format!("Fleet has imported {namespace}/{name}"), || async {
        let cluster = clusters.get_opt(name).await.unwrap()?;
        let status = &cluster.data["status"];
        // Fleet installs the agent again after it has first seen its settings.
        let has_seen_settings = status["agentTolerationsHash"].is_string();
        let is_installed =
            status["agentDeployedGeneration"].is_number() && status["agentConfigChanged"] != true;
        (has_seen_settings && is_installed).then_some(cluster)
    })
    .await
}

/// Returns the ConfigMap of Fleet's controllers, as its chart writes it.
fn config(management: &Plane) -> Value {
    let kubeconfig: Value = serde_saphyr::from_str(management.kubeconfig()).unwrap();
    let authority = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    let config = json!({
        "agentImage": "rancher/fleet-agent:test", "agentImagePullPolicy": "IfNotPresent",
        "apiServerURL": management.endpoint(), "apiServerCA": authority, "agentTLSMode": "strict",
        "agentCheckinInterval": "15m", "garbageCollectionInterval": "15m",
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "fleet-controller", "namespace": SYSTEM_NAMESPACE},
        "data": {"config": config.to_string()},
    })
}

fn spawn(
    dir: &Path,
    name: &str,
    program: &Path,
    args: &[&str],
    kubeconfig: &Path,
    environment: &[(&str, &str)],
) -> Child {
    let common = [
        ("KUBECONFIG", &*kubeconfig.to_string_lossy()),
        ("HOME", &*dir.to_string_lossy()),
        ("CATTLE_ELECTION_LEASE_DURATION", "30s"),
        ("CATTLE_ELECTION_RENEW_DEADLINE", "25s"),
        ("CATTLE_ELECTION_RETRY_PERIOD", "5s"),
        // What the Deployment of the agent gets. Without them, no cluster is imported.
        ("FLEET_AGENT_ELECTION_LEASE_DURATION", "30s"),
        ("FLEET_AGENT_ELECTION_RENEW_DEADLINE", "25s"),
        ("FLEET_AGENT_ELECTION_RETRY_PERIOD", "5s"),
        // No ports, so that several of them can run on one machine.
        ("FLEET_METRICS_BIND_ADDRESS", "0"),
        ("FLEET_HEALTHPROBE_BIND_ADDRESS", "0"),
        ("FLEET_AGENT_METRICS_BIND_ADDRESS", "0"),
        ("FLEET_AGENT_PROBE_BIND_ADDRESS", "0"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let additional = environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let spec = Spec {
        name: name.to_owned(),
        program: program.to_owned(),
        args: args.iter().map(|argument| (*argument).to_owned()).collect(),
        env: common.into_iter().chain(additional).collect(),
        home: dir.to_owned(),
    };
    Child::spawn(&spec).unwrap()
}
