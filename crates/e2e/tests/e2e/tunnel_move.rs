//! `clusterctl move` of a cluster that only dials out: its agent follows it to the hub of the other management cluster.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_e2e::{
    agent::{Agent, AgentPlace},
    shell::Shell,
    tunnel_installation::{CLUSTER, HOST, TunnelInstallation},
    tunnel_world::{cluster_entry, parse_kubeconfig},
    wait::eventually,
    world::{self, TestSlot, config_value, hello},
};
use chandler_sandbox::{
    plane::{Network, Plane, PlaneOptions},
    repository::ChartRepository,
    testing,
};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

/// The source or the target of the move: a management cluster with its own installation of Chandler.
type Side = TunnelInstallation;

/// Waits until the only release is Ready at this revision.
async fn wait_release(side: &Side, revision: u32) {
    let releases: Api<HelmReleaseProxy> = Api::namespaced(side.cluster.client.clone(), "default");
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

async fn upgrade(side: &Side, greeting: &str) {
    let placements: Api<HelmChartProxy> = Api::namespaced(side.cluster.client.clone(), "default");
    let patch = Patch::Merge(json!({"spec": {"valuesTemplate": format!("greeting: {greeting}")}}));
    placements.patch("hello", &PatchParams::default(), &patch).await.unwrap();
}

/// Checks that the move has left nothing behind.
async fn assert_empty(side: &Side) {
    assert_eq!(side.tunnels().get_opt(CLUSTER).await.unwrap().map(|tunnel| tunnel.name_any()), None);
    for secret in ["alpha-tunnel", "alpha-kubeconfig"] {
        assert!(side.secrets().get_opt(secret).await.unwrap().is_none(), "Secret {secret} is left");
    }
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

    /// Returns the objects of the add-on.
    fn addon_objects(&self) -> [Value; 2] {
        let metadata =
            |name: &str, labels: Value| json!({"name": name, "namespace": "default", "labels": labels});
        [
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
        for object in self.addon_objects() {
            source.apply(&object).await;
        }
        let configuration = source.create_cluster(&self.plane).await;
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
    let source = Box::pin(Side::start("tunnel-source")).await;
    let target = Box::pin(Side::start("tunnel-target")).await;
    let site = Site::new().await;
    let agent = Box::pin(site.deploy(&source)).await;
    let (pid, before) = (agent.pid(), source.wait_connected().await);
    source.wait_proxied().await;
    wait_release(&source, 1).await;
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
    assert_empty(&source).await;
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
    wait_release(&target, 1).await;
    assert_eq!(site.revisions().await, revisions, "no revision is added, none is lost");
    assert_eq!(audit.chandler_writes().unwrap(), [], "nothing is written to the workload cluster");
    assert_eq!(site.greeting().await.as_deref(), Some("Hello from somewhere"));

    upgrade(&target, "Moved").await;
    wait_release(&target, 2).await;
    assert_eq!(site.greeting().await.as_deref(), Some("Moved from somewhere"));
    let connects = target.hub.metrics().await["chandler_hub_connects_total"];
    assert!(connects > 0.0, "the second hub has accepted no connection");
    agent.stop().await;
    target.stop().await;
}
