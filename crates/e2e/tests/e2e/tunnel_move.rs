//! `clusterctl move` of a cluster that only dials out: its agent follows it to the hub of the other management cluster.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    tunnel::{CONNECTED, ClusterTunnel},
};
use chandler_e2e::{
    agent::{Agent, AgentPlace},
    capi_crds,
    hub::{Hub, HubPlace},
    management_cluster::ManagementCluster,
    manager::Manager,
    shell::Shell,
    tunnel_world::{self, SYSTEM, cluster_entry, parse_kubeconfig},
    wait::eventually,
    world::{self, TestSlot, config_value, hello},
};
use chandler_sandbox::{
    apply,
    plane::{Network, Plane, PlaneOptions},
    provider::cluster_resource,
    repository::ChartRepository,
    service_account, testing,
};
use futures::TryStreamExt as _;
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    config::{Cluster, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

const CLUSTER: &str = "alpha";
/// Nothing resolves it: only the agent reaches the API server.
const HOST: &str = "api.alpha.invalid";
const CERTIFICATE_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// The source or the target of the move: a management cluster with its own installation of Chandler.
struct Side {
    cluster: ManagementCluster,
    manager: Manager,
    hub: Hub,
}

impl Side {
    async fn new(name: &str) -> Self {
        let cluster = ManagementCluster::new(name).await;
        capi_crds::install_core(&cluster.client).await;
        label_as_clusterctl_does(&cluster.client).await;
        tunnel_world::bind_hub_role(&cluster.client).await;
        publish_root_ca(&cluster).await;
        let home = testing::fresh_dir(&format!("{name}-hub")).await.unwrap();
        let account = service_account::kubeconfig(&cluster.plane, SYSTEM, "chandler-hub").await.unwrap();
        let (kubeconfig, keys) = (home.join("kubeconfig"), home.join("keys"));
        std::fs::write(&kubeconfig, account).unwrap();
        let place = HubPlace::on_loopback(&format!("hub-{name}"), &kubeconfig, &keys, &home);
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

    fn kubeconfig(&self) -> String {
        self.cluster.plane.kubeconfig_path().to_string_lossy().into_owned()
    }

    /// Returns the address of the hub, as agents reach it.
    fn hub_address(&self) -> String {
        self.hub.place.agents.to_string()
    }

    /// Returns the random name of this installation.
    fn installation(&self) -> String {
        let file = self.hub.place.keys.join("installation");
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    fn tunnels(&self) -> Api<ClusterTunnel> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    async fn apply(&self, object: &Value) {
        apply::apply(&self.cluster.client, object).await.unwrap();
    }

    /// Sets the status that Cluster API sets once the control plane runs. `clusterctl move` requires it, and does not move it.
    async fn set_provisioned(&self) {
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

    /// Waits until the tunnel has an agent at the hub of this side.
    async fn wait_connected(&self) -> ClusterTunnel {
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

    /// Waits until the kubeconfig of the Cluster leads to the hub of this side.
    async fn wait_proxied(&self) -> Cluster {
        let suffix = format!("@{}", self.hub.place.proxy);
        eventually(&format!("the proxy of the kubeconfig ends with {suffix}"), || async {
            let secret = self.secrets().get_opt("alpha-kubeconfig").await.unwrap()?;
            let entry = cluster_entry(parse_kubeconfig(&secret));
            entry.proxy_url.as_ref().is_some_and(|url| url.ends_with(&suffix)).then_some(entry)
        })
        .await
    }

    /// Waits until the only release is Ready at this revision.
    async fn wait_release(&self, revision: u32) {
        let releases: Api<HelmReleaseProxy> = Api::namespaced(self.cluster.client.clone(), "default");
        eventually(&format!("the release is Ready at revision {revision}"), || async {
            let mut all = releases.list(&ListParams::default()).await.unwrap().items;
            assert!(all.len() <= 1, "{all:?}");
            let release = all.pop()?;
            let status = release.status?;
            let is_current = status.observed_generation == release.metadata.generation;
            let is_ready = world::condition(&status, "Ready")?.status == "True";
            (is_current && is_ready && status.revision == Some(revision)).then_some(())
        })
        .await;
    }

    async fn upgrade(&self, greeting: &str) {
        let placements: Api<HelmChartProxy> = Api::namespaced(self.cluster.client.clone(), "default");
        let patch = Patch::Merge(json!({"spec": {"valuesTemplate": format!("greeting: {greeting}")}}));
        placements.patch("hello", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Checks that the move has left nothing behind.
    async fn assert_empty(&self) {
        assert_eq!(self.tunnels().get_opt(CLUSTER).await.unwrap().map(|tunnel| tunnel.name_any()), None);
        for secret in ["alpha-tunnel", "alpha-kubeconfig"] {
            assert!(self.secrets().get_opt(secret).await.unwrap().is_none(), "Secret {secret} is left");
        }
    }

    async fn stop(self) {
        self.hub.stop().await;
        self.manager.stop().await;
    }
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

/// The cluster that only its agent reaches, and the repository of its add-ons.
struct Site {
    plane: Plane,
    repository: ChartRepository,
    dir: PathBuf,
}

impl Site {
    async fn new() -> Self {
        let dir = testing::fresh_dir("tunnel-move-site").await.unwrap();
        let network = Network { host_name: Some(HOST.to_owned()), ..Network::default() };
        let options = PlaneOptions { network, ..PlaneOptions::bare(CLUSTER, &dir.join("plane")) };
        let plane = Plane::start(testing::assets().await.unwrap(), options).await.unwrap();
        let repository = ChartRepository::start_self_signed(&dir.join("charts")).await.unwrap();
        repository.publish(&hello()).unwrap();
        Self { plane, repository, dir }
    }

    /// Returns the objects of the Cluster and of its add-on.
    fn objects(&self) -> [Value; 4] {
        let metadata =
            |name: &str, labels: Value| json!({"name": name, "namespace": "default", "labels": labels});
        let kubeconfig = self.plane.issue_kubeconfig(&self.plane.public_endpoint(), CERTIFICATE_LIFETIME);
        [
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": metadata(CLUSTER, json!({"fleet": "test", "chandler.dev/tunnel": "enabled"})),
                "spec": {"paused": false, "controlPlaneEndpoint": {"host": HOST, "port": self.plane.port()}},
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": metadata("alpha-kubeconfig", json!({"cluster.x-k8s.io/cluster-name": CLUSTER})),
                "stringData": {"value": kubeconfig.unwrap()},
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": metadata("ca", json!({"clusterctl.cluster.x-k8s.io/move": ""})),
                "stringData": {"ca.crt": self.repository.ca_pem()},
            }),
            json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                "metadata": metadata("hello", json!({})),
                "spec": {
                    "clusterSelector": {"matchLabels": {"fleet": "test"}}, "repoURL": self.repository.url(),
                    "chartName": "hello", "version": "1.0.0", "releaseName": "hello", "namespace": "default",
                    "valuesTemplate": "greeting: Hello", "tlsConfig": {"caSecret": {"name": "ca"}},
                },
            }),
        ]
    }

    /// Creates the Cluster on the source, and starts its agent with the files of the bootstrap Secret.
    async fn deploy(&self, source: &Side) -> Agent {
        for object in self.objects() {
            source.apply(&object).await;
        }
        source.set_provisioned().await;
        let tunnels = source.tunnels();
        eventually("the tunnel exists", || async { tunnels.get_opt(CLUSTER).await.unwrap() }).await;
        let target = self.plane.address().to_string();
        let patch = Patch::Merge(json!({"spec": {"target": target}}));
        tunnels.patch(CLUSTER, &PatchParams::default(), &patch).await.unwrap();
        let configuration = eventually("agent.yaml names the target", || async {
            let secret = source.secrets().get_opt("alpha-tunnel").await.unwrap()?;
            let text = String::from_utf8(secret.data?.remove("agent.yaml")?.0).unwrap();
            text.contains(&target).then_some(text)
        })
        .await;
        Agent::start(&AgentPlace { name: CLUSTER, home: &self.dir, namespace: None }, &configuration)
    }

    /// Returns the names and UIDs of the revisions that Helm has stored.
    async fn revisions(&self) -> Vec<(String, Option<String>)> {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client().await.unwrap(), "default");
        let all = secrets.list(&ListParams::default().labels("owner=helm")).await.unwrap();
        all.into_iter().map(|secret| (secret.name_any(), secret.uid())).collect()
    }

    async fn greeting(&self) -> Option<String> {
        config_value(&self.plane, "hello", "greeting").await
    }
}

/// Returns the addresses of the hubs that the agent has received through the tunnel.
fn stored_hubs(agent: &Agent) -> Option<BTreeSet<String>> {
    let stored = std::fs::read(agent.state().join("hubs.json")).ok()?;
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let hubs = stored["hubs"].as_array().unwrap().iter();
    Some(hubs.map(|hub| hub["address"].as_str().unwrap().to_owned()).collect())
}

async fn wait_stored_hubs(agent: &Agent, sides: &[&Side]) {
    let expected: BTreeSet<_> = sides.iter().map(|side| side.hub_address()).collect();
    eventually(&format!("the agent has stored {expected:?}"), || async {
        (stored_hubs(agent)? == expected).then_some(())
    })
    .await;
}

/// Records whether the kubeconfig on the source has a proxy, at each change until it is deleted.
fn record_proxies(source: &Side) -> Arc<Mutex<Vec<bool>>> {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let (secrets, changes) = (source.secrets(), recorded.clone());
    tokio::spawn(async move {
        let one = watcher::Config::default().fields("metadata.name=alpha-kubeconfig");
        let record = watcher(secrets, one).applied_objects().try_for_each(|secret| {
            let is_proxied = cluster_entry(parse_kubeconfig(&secret)).proxy_url.is_some();
            changes.lock().unwrap().push(is_proxied);
            futures::future::ready(Ok(()))
        });
        // The watch fails when the management cluster stops, at the end of the test.
        let _ = record.await;
    });
    recorded
}

#[tokio::test]
async fn the_agent_of_a_moved_cluster_joins_the_hub_of_the_other_management_cluster() {
    let _slot = TestSlot::shared().await;
    let shell = Shell::with_clusterctl("tunnel-move").await;
    let source = Box::pin(Side::new("tunnel-source")).await;
    let target = Box::pin(Side::new("tunnel-target")).await;
    let site = Site::new().await;
    let agent = Box::pin(site.deploy(&source)).await;
    let (pid, before) = (agent.pid(), source.wait_connected().await);
    source.wait_proxied().await;
    source.wait_release(1).await;
    let revisions = site.revisions().await;
    assert_eq!(revisions.len(), 1, "{revisions:?}");

    let (from, to, hub) = (source.kubeconfig(), target.kubeconfig(), target.hub_address());
    let environment = [("KUBECONFIG", from.as_str())];
    let prepare =
        format!("chandler tunnel prepare-move alpha --namespace default --to-kubeconfig {to} --hub {hub}");
    shell.expect(&prepare, &environment).await;
    wait_stored_hubs(&agent, &[&source, &target]).await;
    source.wait_connected().await;

    let proxies = record_proxies(&source);
    let mut audit = site.plane.audit_log();
    shell.expect(&format!("clusterctl move --namespace default --to-kubeconfig {to}"), &environment).await;
    source.assert_empty().await;
    let proxies = proxies.lock().unwrap().clone();
    let kept = !proxies.is_empty() && proxies.iter().all(|is_proxied| *is_proxied);
    assert!(kept, "the source has removed its proxy: {proxies:?}");
    target.set_provisioned().await;

    let moved = target.wait_connected().await;
    assert_eq!(
        (&moved.spec.id, moved.spec.epoch),
        (&before.spec.id, before.spec.epoch),
        "nothing is revoked"
    );
    wait_stored_hubs(&agent, &[&target]).await;
    for side in [&source, &target] {
        let certificate = agent.state().join(format!("{}.crt", side.installation()));
        assert!(certificate.is_file(), "there is no {}", certificate.display());
    }
    assert_ne!(source.installation(), target.installation());
    assert!(agent.is_running() && agent.pid() == pid, "{}", agent.logs());
    // From now on, only the second hub leads to the cluster.
    source.stop().await;
    let entry = target.wait_proxied().await;
    assert!(entry.proxy_url.is_some_and(|url| url.starts_with("http://default.alpha:")));
    target.wait_release(1).await;
    assert_eq!(site.revisions().await, revisions, "no revision is added, none is lost");
    assert_eq!(audit.chandler_writes().unwrap(), [], "nothing is written to the workload cluster");
    assert_eq!(site.greeting().await.as_deref(), Some("Hello from somewhere"));

    target.upgrade("Moved").await;
    target.wait_release(2).await;
    assert_eq!(site.greeting().await.as_deref(), Some("Moved from somewhere"));
    let connects = target.hub.metrics().await["chandler_hub_connects_total"];
    assert!(connects > 0.0, "the second hub has connected nobody");
    agent.stop().await;
    target.stop().await;
}
