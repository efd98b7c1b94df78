//! The environment of a test with tunnels: a management cluster with a hub, and clusters that only dial out.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use chandler_api::tunnel::{CONNECTED, ClusterTunnel};
use chandler_sandbox::{apply, clusters, provider::ClusterKey, service_account};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    config::{Cluster, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, AgentPlace},
    canary,
    hub::{Hub, HubPlace},
    manager::Manager,
    service::Service,
    wait::eventually,
    world::World,
};

/// The namespace in which Chandler is installed.
pub const SYSTEM: &str = "chandler-system";
/// The Secret with the keys of the installation.
pub const KEYS: &str = "chandler-tunnel-keys";

/// A namespace on the management cluster, with the Services of a hub.
pub struct TunnelWorld {
    pub world: World,
    /// In front of the ports for clients in the management cluster. Kubeconfigs name it.
    pub proxy: Service,
    /// In front of the ports for agents.
    pub agents: Service,
}

impl TunnelWorld {
    pub async fn new(name: &str) -> Self {
        Self::with(World::new(name).await).await
    }

    /// Returns an environment for a test that must not run in parallel with others, because `chandler doctor` reports
    /// tunnels of all namespaces.
    pub async fn exclusive(name: &str) -> Self {
        Self::with(World::exclusive(name).await).await
    }

    async fn with(world: World) -> Self {
        bind_hub_role(&world.client).await;
        let test = Self { world, proxy: Service::start().await, agents: Service::start().await };
        let kubeconfig =
            service_account::kubeconfig(test.world.sandbox.management(), SYSTEM, "chandler-hub").await;
        std::fs::write(test.hub_kubeconfig(), kubeconfig.unwrap()).unwrap();
        test
    }

    /// Starts a manager that lets clusters be reached through the hub.
    pub fn start_manager(&self) -> Manager {
        self.start_manager_for(self.proxy.address(), self.agents.address())
    }

    /// Starts a manager for a hub with these addresses for clients and for agents.
    pub fn start_manager_for(&self, proxy: SocketAddr, agents: SocketAddr) -> Manager {
        let (proxy, agents) = (proxy.to_string(), agents.to_string());
        self.world.start_manager_with(&[
            "--tunnel-hub-address",
            &agents,
            "--tunnel-proxy-service",
            &proxy,
            "--tunnel-agent-image",
            "chandler-agent:test",
        ])
    }

    /// Returns loopback addresses for a replica of the hub.
    pub fn hub_place(&self, name: &str) -> HubPlace {
        // The replicas of all tests have their Leases in the same namespace.
        let name = format!("hub-{}-{name}", self.world.namespace);
        HubPlace::on_loopback(&name, &self.hub_kubeconfig(), &self.keys_folder(), &self.world.dir)
    }

    /// Returns the places of two replicas that know each other.
    pub fn hub_places(&self) -> [HubPlace; 2] {
        let [mut first, mut second] = ["a", "b"].map(|name| self.hub_place(name));
        first.other = Some(second.peer);
        second.other = Some(first.peer);
        [first, second]
    }

    /// Starts a replica of the hub on loopback, with its endpoints in both Services.
    pub async fn start_hub(&self, place: &HubPlace) -> Hub {
        self.write_keys().await;
        let hub = Hub::start(place);
        hub.wait_ready().await;
        self.proxy.add_endpoint(place.proxy);
        self.agents.add_endpoint(place.agents);
        hub
    }

    /// Writes the keys that the manager has created, as the volume of a Pod contains them.
    pub async fn write_keys(&self) {
        write_keys(&self.world.client, &self.keys_folder()).await;
    }

    /// Creates a Cluster whose API server has a name that nothing resolves: only its agent reaches it.
    pub async fn create_cluster(&self, name: &str, labels: &Value) {
        for object in hidden_cluster(&self.world.namespace, name, labels) {
            self.world.apply(&object).await;
        }
    }

    pub fn tunnels(&self) -> Api<ClusterTunnel> {
        Api::namespaced(self.world.client.clone(), &self.world.namespace)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.client.clone(), &self.world.namespace)
    }

    /// Waits until the ClusterTunnel of a Cluster satisfies a predicate.
    pub async fn wait_tunnel(
        &self,
        cluster: &str,
        what: &str,
        predicate: impl Fn(&ClusterTunnel) -> bool,
    ) -> ClusterTunnel {
        eventually(&format!("the tunnel of {cluster}: {what}"), || async {
            self.tunnels().get_opt(cluster).await.unwrap().filter(&predicate)
        })
        .await
    }

    /// Waits until the tunnel of a Cluster has an agent, or has none.
    pub async fn wait_connected(&self, cluster: &str, connected: bool) -> ClusterTunnel {
        let expected = if connected { "True" } else { "False" };
        self.wait_tunnel(cluster, &format!("{CONNECTED} is {expected}"), |tunnel| {
            condition(tunnel, CONNECTED).as_deref() == Some(expected)
        })
        .await
    }

    /// Sets the target of the agents, and waits until the bootstrap Secret contains it. Returns `agent.yaml`.
    pub async fn set_target(&self, cluster: &str, target: &str) -> String {
        self.wait_tunnel(cluster, "it exists", |_| true).await;
        let patch = Patch::Merge(json!({"spec": {"target": target}}));
        self.tunnels().patch(cluster, &PatchParams::default(), &patch).await.unwrap();
        self.wait_agent_configuration(cluster, |text| text.contains(target)).await
    }

    /// Waits until `agent.yaml` in the bootstrap Secret of a Cluster satisfies a predicate. Returns it.
    pub async fn wait_agent_configuration(&self, cluster: &str, predicate: impl Fn(&str) -> bool) -> String {
        let name = format!("{cluster}-tunnel");
        eventually(&format!("agent.yaml in Secret {name}"), || async {
            let secret = self.secrets().get_opt(&name).await.unwrap()?;
            let text = String::from_utf8(secret.data?.remove("agent.yaml")?.0).unwrap();
            predicate(&text).then_some(text)
        })
        .await
    }

    /// Returns the address of the API server on this machine, once the sandbox has chosen it.
    pub async fn local_address(&self, cluster: &str) -> String {
        let endpoint =
            self.wait_tunnel(cluster, "it has an endpoint", |tunnel| tunnel.spec.endpoint.is_some()).await;
        let endpoint = endpoint.spec.endpoint.unwrap();
        format!("127.0.0.1:{}", endpoint.rsplit_once(':').unwrap().1)
    }

    /// Starts an agent for a Cluster of [`Self::create_cluster`], with the files of its bootstrap Secret.
    pub async fn start_agent(&self, cluster: &str) -> Agent {
        let configuration = self.set_target(cluster, &self.local_address(cluster).await).await;
        self.start_agent_with(cluster, &configuration)
    }

    pub fn start_agent_with(&self, cluster: &str, configuration: &str) -> Agent {
        Agent::start(&AgentPlace { name: cluster, home: &self.world.dir, namespace: None }, configuration)
    }

    /// Returns the kubeconfig of a Cluster, if it exists.
    pub async fn kubeconfig(&self, cluster: &str) -> Option<Kubeconfig> {
        let secret = self.secrets().get_opt(&format!("{cluster}-kubeconfig")).await.unwrap()?;
        Some(parse_kubeconfig(&secret))
    }

    /// Waits until the kubeconfig of a Cluster has a proxy, or has none. Returns its cluster entry.
    pub async fn wait_proxied(&self, cluster: &str, proxied: bool) -> Cluster {
        let what = if proxied { "has a proxy" } else { "has no proxy" };
        eventually(&format!("the kubeconfig of {cluster} {what}"), || async {
            let entry = cluster_entry(self.kubeconfig(cluster).await?);
            (entry.proxy_url.is_some() == proxied).then_some(entry)
        })
        .await
    }

    /// Waits until the condition `AddonsReady` of a Cluster has this status, and a message that contains the text.
    pub async fn wait_addons_ready(&self, cluster: &str, status: &str, text: &str) -> String {
        eventually(&format!("AddonsReady of {cluster} is {status}: {text}"), || async {
            let cluster = self.world.clusters().get(cluster).await.unwrap();
            let conditions = cluster.data.pointer("/status/conditions")?.as_array()?.clone();
            let ready = conditions.into_iter().find(|condition| condition["type"] == "AddonsReady")?;
            let message = ready["message"].as_str().unwrap_or_default().to_owned();
            (ready["status"] == status && message.contains(text)).then_some(message)
        })
        .await
    }

    /// Fails the test if objects or logs contain a secret of the tunnels. The other checks of [`World`] run when it ends.
    pub fn assert_no_leaks(&self, agents: &[&Agent]) {
        let mut secrets = self.world.secrets();
        for agent in agents {
            secrets.extend(agent.secrets());
        }
        for file in ["ca.key", "hub.key", "signing.key"] {
            secrets.add(&std::fs::read_to_string(self.keys_folder().join(file)).unwrap());
        }
        let objects = [self.world.events().unwrap(), self.world.reporting_objects().unwrap()].concat();
        let mut outputs = canary::objects(&objects);
        outputs.extend(canary::files(&self.world.dir.join("logs")));
        assert!(outputs.iter().any(|(origin, _)| origin.contains("Event")), "no Event is checked");
        canary::assert_no_leaks(&secrets, &outputs);
    }

    pub fn hub_kubeconfig(&self) -> PathBuf {
        self.world.dir.join("hub-kubeconfig")
    }

    pub fn keys_folder(&self) -> PathBuf {
        self.world.dir.join("keys")
    }
}

/// Returns the status of a condition of a ClusterTunnel.
pub fn condition(tunnel: &ClusterTunnel, type_: &str) -> Option<String> {
    let conditions = &tunnel.status.as_ref()?.conditions;
    Some(conditions.iter().find(|condition| condition.type_ == type_)?.status.clone())
}

/// Returns the kubeconfig in a Secret of Cluster API.
pub fn parse_kubeconfig(secret: &Secret) -> Kubeconfig {
    let value = &secret.data.as_ref().unwrap()["value"];
    Kubeconfig::from_yaml(std::str::from_utf8(&value.0).unwrap()).unwrap()
}

/// Returns the only cluster entry of a kubeconfig.
pub fn cluster_entry(mut kubeconfig: Kubeconfig) -> Cluster {
    assert_eq!(kubeconfig.clusters.len(), 1);
    kubeconfig.clusters.remove(0).cluster.unwrap()
}

/// Writes the keys that the manager of a management cluster has created, as the volume of a Pod contains them.
pub async fn write_keys(client: &Client, folder: &Path) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    let data = eventually("the manager has created the keys", || async {
        secrets.get_opt(KEYS).await.unwrap()?.data.filter(|data| data.len() >= 6)
    })
    .await;
    std::fs::create_dir_all(folder).unwrap();
    for (file, content) in data {
        std::fs::write(folder.join(file), content.0).unwrap();
    }
}

/// Gives the ServiceAccount of the hub the permissions that Chandler is shipped with.
pub async fn bind_hub_role(client: &Client) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let subjects = json!([{"kind": "ServiceAccount", "name": "chandler-hub", "namespace": SYSTEM}]);
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "chandler-hub", "namespace": SYSTEM},
        }),
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": "chandler-system-hub"}, "subjects": subjects,
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "chandler-system-hub"},
        }),
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding",
            "metadata": {"name": "chandler-hub", "namespace": SYSTEM}, "subjects": subjects,
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "chandler-hub"},
        }),
    ];
    for object in &objects {
        apply::apply(client, object).await.unwrap();
    }
}

fn hidden_cluster(namespace: &str, name: &str, labels: &Value) -> [Value; 3] {
    let mut all_labels = json!({"fleet": "test"});
    all_labels.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    let infrastructure = json!({"hostName": format!("api.{name}.invalid")});
    let mut objects =
        clusters::plain_cluster(&ClusterKey::new(namespace, name), 1, &all_labels, &infrastructure);
    objects[2]["spec"]["availabilityGates"] = json!([{"conditionType": "AddonsReady"}]);
    objects
}
