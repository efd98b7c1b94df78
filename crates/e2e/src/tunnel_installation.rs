//! A management cluster with an installation of Chandler of its own, and a hub: for tests with several of them, or whose hub has
//! another address than those of other tests.

use std::{net::SocketAddr, time::Duration};

use chandler_api::tunnel::{CONNECTED, ClusterTunnel};
use chandler_sandbox::{apply, plane::Plane, provider::cluster_resource, service_account, testing};
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    config::{Cluster, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    capi_crds,
    hub::{Hub, HubPlace},
    management_cluster::ManagementCluster,
    manager::Manager,
    tunnel_world::{self, SYSTEM, cluster_entry, parse_kubeconfig},
    wait::eventually,
};

/// The only Cluster, in namespace `default`.
pub const CLUSTER: &str = "alpha";
/// The host of its API server. Nothing resolves it: only the agent reaches the API server.
pub const HOST: &str = "api.alpha.invalid";
const CERTIFICATE_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// A management cluster on which Cluster API does not run, with a manager and a hub.
pub struct TunnelInstallation {
    pub cluster: ManagementCluster,
    pub manager: Manager,
    pub hub: Hub,
}

impl TunnelInstallation {
    pub async fn start(name: &str) -> Self {
        Self::start_at(name, None).await
    }

    /// Like [`Self::start`], with an address at which agents reach the hub. `None` means a free one on loopback.
    pub async fn start_at(name: &str, agents: Option<SocketAddr>) -> Self {
        let cluster = ManagementCluster::new(name).await;
        capi_crds::install_core(&cluster.client).await;
        label_as_clusterctl_does(&cluster.client).await;
        tunnel_world::bind_hub_role(&cluster.client).await;
        publish_root_ca(&cluster).await;
        let home = testing::fresh_dir(&format!("{name}-hub")).await.unwrap();
        let account = service_account::kubeconfig(&cluster.plane, SYSTEM, "chandler-hub").await.unwrap();
        let (kubeconfig, keys) = (home.join("kubeconfig"), home.join("keys"));
        std::fs::write(&kubeconfig, account).unwrap();
        let mut place = HubPlace::on_loopback(&format!("hub-{name}"), &kubeconfig, &keys, &home);
        place.agents = agents.unwrap_or(place.agents);
        let manager = cluster.start_manager_with(&[
            "--tunnel-hub-address",
            &place.agents.to_string(),
            "--tunnel-proxy-service",
            &place.proxy.to_string(),
        ]);
        tunnel_world::write_keys(&cluster.client, &keys).await;
        let hub = Hub::start(&place);
        hub.wait_ready().await;
        Self { manager: Manager::from_process(manager), cluster, hub }
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> String {
        self.cluster.plane.kubeconfig_path().to_string_lossy().into_owned()
    }

    /// Returns the address of the hub, as agents reach it.
    pub fn hub_address(&self) -> String {
        self.hub.place.agents.to_string()
    }

    /// Returns the random name of this installation.
    pub fn installation(&self) -> String {
        let file = self.hub.place.keys.join("installation");
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    pub fn tunnels(&self) -> Api<ClusterTunnel> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    pub async fn apply(&self, object: &Value) {
        apply::apply(&self.cluster.client, object).await.unwrap();
    }

    /// Creates the Cluster of a running control plane, with a tunnel whose target is that control plane. Returns `agent.yaml`
    /// of its bootstrap Secret.
    pub async fn create_cluster(&self, plane: &Plane) -> String {
        for object in cluster_objects(plane) {
            self.apply(&object).await;
        }
        self.set_provisioned().await;
        let tunnels = self.tunnels();
        eventually("the tunnel exists", || async { tunnels.get_opt(CLUSTER).await.unwrap() }).await;
        let target = plane.address().to_string();
        let patch = Patch::Merge(json!({"spec": {"target": target}}));
        tunnels.patch(CLUSTER, &PatchParams::default(), &patch).await.unwrap();
        eventually("agent.yaml names the target", || async {
            let secret = self.secrets().get_opt(&format!("{CLUSTER}-tunnel")).await.unwrap()?;
            let text = String::from_utf8(secret.data?.remove("agent.yaml")?.0).unwrap();
            text.contains(&target).then_some(text)
        })
        .await
    }

    /// Sets the status that Cluster API sets once the control plane runs. `clusterctl move` requires it, and does not move it.
    pub async fn set_provisioned(&self) {
        let initialized = json!({
            "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "conditions": [initialized],
        }});
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client.clone(), "default", &cluster_resource());
        clusters.patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Waits until the tunnel has an agent at this hub, and none at another one.
    pub async fn wait_connected(&self) -> ClusterTunnel {
        let hub = &self.hub.place.name;
        eventually(&format!("the agent is connected to {hub}"), || async {
            let tunnel = self.tunnels().get_opt(CLUSTER).await.unwrap()?;
            let status = tunnel.status.as_ref()?;
            let is_connected = tunnel_world::condition(&tunnel, CONNECTED).as_deref() == Some("True");
            let has_agents = !status.agents.is_empty() && status.agents.iter().all(|agent| agent.hub == *hub);
            (is_connected && has_agents).then_some(tunnel)
        })
        .await
    }

    /// Waits until the kubeconfig of the Cluster leads to this hub. Returns its cluster entry.
    pub async fn wait_proxied(&self) -> Cluster {
        let suffix = format!("@{}", self.hub.place.proxy);
        eventually(&format!("the proxy of the kubeconfig ends with {suffix}"), || async {
            let entry = cluster_entry(self.cluster_kubeconfig().await?);
            entry.proxy_url.as_ref().is_some_and(|url| url.ends_with(&suffix)).then_some(entry)
        })
        .await
    }

    /// Returns the kubeconfig of the Cluster, if it exists.
    pub async fn cluster_kubeconfig(&self) -> Option<Kubeconfig> {
        let secret = self.secrets().get_opt(&format!("{CLUSTER}-kubeconfig")).await.unwrap()?;
        Some(parse_kubeconfig(&secret))
    }

    pub async fn stop(self) {
        self.hub.stop().await;
        self.manager.stop().await;
    }
}

/// Returns the Cluster and the Secret with its kubeconfig.
fn cluster_objects(plane: &Plane) -> [Value; 2] {
    let metadata =
        |name: &str, labels: Value| json!({"name": name, "namespace": "default", "labels": labels});
    let kubeconfig = plane.issue_kubeconfig(&plane.public_endpoint(), CERTIFICATE_LIFETIME).unwrap();
    let secret = format!("{CLUSTER}-kubeconfig");
    [
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": metadata(CLUSTER, json!({"fleet": "test", "chandler.dev/tunnel": "enabled"})),
            "spec": {"paused": false, "controlPlaneEndpoint": {"host": HOST, "port": plane.port()}},
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": metadata(&secret, json!({"cluster.x-k8s.io/cluster-name": CLUSTER})),
            "stringData": {"value": kubeconfig},
        }),
    ]
}

/// Publishes the authority of the API server, as the controller manager does, which does not run here.
async fn publish_root_ca(cluster: &ManagementCluster) {
    let entry = cluster_entry(Kubeconfig::from_yaml(cluster.plane.kubeconfig()).unwrap());
    let pem: ByteString = serde_json::from_value(json!(entry.certificate_authority_data)).unwrap();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": SYSTEM},
        "data": {"ca.crt": String::from_utf8(pem.0).unwrap()},
    });
    apply::apply(&cluster.client, &object).await.unwrap();
}

/// `clusterctl init` labels the CRDs whose objects are moved. Those of Chandler have the label already.
async fn label_as_clusterctl_does(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"clusterctl.cluster.x-k8s.io": ""}}}));
    crds.patch("clusters.cluster.x-k8s.io", &PatchParams::default(), &label).await.unwrap();
}
