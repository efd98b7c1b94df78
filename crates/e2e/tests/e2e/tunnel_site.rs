//! Clusters on networks of their own, which have a way out and no way in: each site is a network namespace. The management
//! cluster, the hub and the sites are connected as in reality:
//!
//! ```text
//! management 192.0.2.1 -- 192.0.2.2 hub 203.0.113.10 <-- 100.64.1.2 site a 10.0.0.2
//!                                                    <-- 100.64.2.2 site b 10.0.0.2
//! ```
//!
//! The hub forwards no packets. Both sites use the same addresses.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    sync::Arc,
    time::Duration,
};

use chandler_e2e::{
    agent::{Agent, AgentPlace},
    hub::{Hub, HubPlace},
    tunnel_world::TunnelWorld,
    wait::{eventually, eventually_within},
    world::{TestSlot, config_value},
};
use chandler_sandbox::{
    assets::KubernetesVersion,
    clusters,
    netns::{self, LinkEnd, NetworkNamespace, connect_namespaces},
    plane::Plane,
    provider::ClusterKey,
    testing::{self, MANAGEMENT_ADDRESS_VARIABLE},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const MANAGEMENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HUB_FOR_MANAGEMENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const HUB_FOR_AGENTS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// The address of the API server at every site.
const API_SERVER: &str = "10.0.0.2:6443";
/// The interface of the hub to site b.
const LINK_TO_B: &str = "to-b";
const SITES: [&str; 2] = ["a", "b"];
/// The variables with the names of the namespaces, for the process that runs in that of the management cluster.
const HUB_VARIABLE: &str = "CHANDLER_TEST_HUB_NETNS";
const SITE_VARIABLES: [&str; 2] = ["CHANDLER_TEST_SITE_A_NETNS", "CHANDLER_TEST_SITE_B_NETNS"];
const UPGRADE_LIMIT: Duration = Duration::from_mins(4);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The namespaces of the scenario. Dropping it deletes them.
struct Networks {
    management: NetworkNamespace,
    hub: NetworkNamespace,
    sites: [NetworkNamespace; 2],
}

impl Networks {
    fn create() -> Result<Self, netns::Error> {
        let create = NetworkNamespace::create;
        let networks =
            Self { management: create("mgmt")?, hub: create("hub")?, sites: [create("a")?, create("b")?] };
        let Self { management, hub, sites } = &networks;
        connect_namespaces(
            &LinkEnd { namespace: management, interface: "to-hub", address: "192.0.2.1/24" },
            &LinkEnd { namespace: hub, interface: "to-mgmt", address: "192.0.2.2/24" },
        )?;
        hub.ip(&["address", "add", &format!("{HUB_FOR_AGENTS}/32"), "dev", "lo"])?;
        for (number, (site, label)) in sites.iter().zip(SITES).enumerate() {
            let (near, far) = (format!("100.64.{}.1", number + 1), format!("100.64.{}.2/30", number + 1));
            connect_namespaces(
                &LinkEnd {
                    namespace: hub,
                    interface: &format!("to-{label}"),
                    address: &format!("{near}/30"),
                },
                &LinkEnd { namespace: site, interface: "wan", address: &far },
            )?;
            site.add_network("lan", "10.0.0.2/24")?;
            // Everything else is beyond the router, which is the hub here.
            site.ip(&["route", "add", "default", "via", &near])?;
        }
        Ok(networks)
    }

    /// Returns the command that runs this test again in the namespace of the management cluster.
    fn command(&self, test: &str) -> Command {
        let program = std::env::current_exe().unwrap();
        let mut command = self.management.command("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command.args([test, "--exact", "--nocapture"]);
        command.env(MANAGEMENT_ADDRESS_VARIABLE, MANAGEMENT.to_string());
        command.env(HUB_VARIABLE, self.hub.name());
        for (variable, site) in SITE_VARIABLES.iter().zip(&self.sites) {
            command.env(variable, site.name());
        }
        command
    }
}

#[tokio::test]
async fn clusters_behind_nat_are_created_upgraded_and_deleted() {
    if let Ok(hub) = std::env::var(HUB_VARIABLE) {
        return run_scenario(&hub, &SITE_VARIABLES.map(|variable| std::env::var(variable).unwrap())).await;
    }
    if netns::is_skipped() {
        println!("skipped, because {} is set", netns::SKIP_VARIABLE);
        return;
    }
    let _slot = TestSlot::shared().await;
    // The namespaces have no way to the internet, so everything has to be built before.
    testing::assets().await.unwrap();
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let networks = Networks::create().unwrap_or_else(|error| panic!("{error}"));
    let mut command = networks.command("tunnel_site::clusters_behind_nat_are_created_upgraded_and_deleted");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// A site with the Cluster of the same name, and its agent.
struct Site {
    name: &'static str,
    namespace: String,
    agent: Agent,
    plane: Arc<Plane>,
}

async fn run_scenario(hub_namespace: &str, site_namespaces: &[String; 2]) {
    let test = TunnelWorld::new("site").await;
    let world = &test.world;
    let management = world.sandbox.management().address();
    assert_no_way_to_management(hub_namespace, site_namespaces, management).await;
    let probes = Probes::start(site_namespaces, management);
    let proxy = SocketAddr::from((HUB_FOR_MANAGEMENT, 8132));
    let manager = test.start_manager_for(proxy, SocketAddr::from((HUB_FOR_AGENTS, 8443)));
    let hub = start_hub(&test, hub_namespace, proxy).await;
    world.apply_placement("hello", "hello", values("Hello")).await;
    apply_class(&test).await;

    for (name, namespace) in SITES.into_iter().zip(site_namespaces) {
        world.apply(&cluster(&world.namespace, name, namespace)).await;
    }
    let mut sites = Vec::new();
    for (name, namespace) in SITES.into_iter().zip(site_namespaces) {
        let configuration = test.set_target(name, API_SERVER).await;
        let location = AgentPlace { name, home: &world.dir, namespace: Some(namespace) };
        let agent = Agent::start(&location, &configuration);
        let plane = world.sandbox.wait_cluster(&world.namespace, name).await.unwrap();
        sites.push(Site { name, namespace: namespace.clone(), agent, plane });
    }
    let [a, b] = sites.as_slice() else { unreachable!("there are two sites") };
    for site in &sites {
        world.wait_ready("hello", site.name, 1).await;
        // Each cluster has got its own values, although both have the same address.
        assert_greeting(site, "Hello").await;
        assert_no_way_in(hub_namespace, &site.namespace).await;
    }

    cut_and_restore(&test, hub_namespace, b).await;
    world.wait_ready("hello", a.name, 2).await;
    upgrade(&test, a).await;

    test.assert_no_leaks(&[&a.agent, &b.agent]);
    for site in sites {
        let key = ClusterKey::new(&world.namespace, site.name);
        clusters::delete(&world.client, &key, Duration::from_mins(2)).await.unwrap();
        eventually("the tunnel is deleted with its Cluster", || async {
            test.tunnels().get_opt(site.name).await.unwrap().is_none().then_some(())
        })
        .await;
        site.agent.stop().await;
    }
    probes.assert_none_succeeded().await;
    hub.stop().await;
    manager.stop().await;
}

async fn start_hub(test: &TunnelWorld, namespace: &str, proxy: SocketAddr) -> Hub {
    test.write_keys().await;
    let hub = Hub::start(&HubPlace {
        proxy,
        agents: SocketAddr::from((HUB_FOR_AGENTS, 8443)),
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 8134)),
        metrics: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
        network_namespace: Some(namespace.to_owned()),
        ..test.hub_place("a")
    });
    hub.wait_ready().await;
    hub
}

fn values(greeting: &str) -> Value {
    json!({"valuesTemplate": format!("greeting: {greeting} {{{{ .Cluster.metadata.name }}}}")})
}

async fn assert_greeting(site: &Site, greeting: &str) {
    let expected = format!("{greeting} {} from somewhere", site.name);
    assert_eq!(config_value(&site.plane, "hello", "greeting").await, Some(expected));
}

/// Only the hub reaches the management API server, which shows that it could be reached.
async fn assert_no_way_to_management(hub: &str, sites: &[String; 2], management: SocketAddr) {
    netns::connect(hub, management, PROBE_TIMEOUT).await.unwrap();
    for site in sites {
        netns::connect(site, management, PROBE_TIMEOUT).await.unwrap_err();
    }
}

/// Only the site itself reaches its API server.
async fn assert_no_way_in(hub: &str, site: &str) {
    let address: SocketAddr = API_SERVER.parse().unwrap();
    netns::connect(site, address, PROBE_TIMEOUT).await.unwrap();
    netns::connect(hub, address, PROBE_TIMEOUT).await.unwrap_err();
    for outside in ["100.64.1.2:6443", "100.64.2.2:6443"] {
        netns::connect(hub, outside.parse().unwrap(), PROBE_TIMEOUT).await.unwrap_err();
    }
    // This process is in the namespace of the management cluster.
    let direct = tokio::time::timeout(PROBE_TIMEOUT, tokio::net::TcpStream::connect(address)).await;
    assert!(!matches!(direct, Ok(Ok(_))), "the management cluster reaches {address} directly");
}

/// Cuts the link of a site until it is noticed. A change that was made meanwhile arrives afterwards.
async fn cut_and_restore(test: &TunnelWorld, hub: &str, site: &Site) {
    let pid = site.agent.pid();
    netns::ip(&["-n", hub, "link", "set", LINK_TO_B, "down"]).unwrap();
    test.world.patch_placement("hello", values("Hi")).await;
    test.wait_addons_ready(site.name, "False", "tunnel not connected since").await;
    netns::ip(&["-n", hub, "link", "set", LINK_TO_B, "up"]).unwrap();
    test.wait_connected(site.name, true).await;
    test.world.wait_ready("hello", site.name, 2).await;
    assert_greeting(site, "Hi").await;
    assert!(site.agent.is_running() && site.agent.pid() == pid, "{}", site.agent.logs());
}

/// Upgrades Kubernetes of a site. Cluster API waits until it sees the new version through the tunnel.
async fn upgrade(test: &TunnelWorld, site: &Site) {
    let world = &test.world;
    let version = KubernetesVersion::V1_35.to_string();
    let patch = Patch::Merge(json!({"spec": {"topology": {"version": version}}}));
    world.clusters().patch(site.name, &PatchParams::default(), &patch).await.unwrap();
    eventually_within(UPGRADE_LIMIT, "the cluster is upgraded", || async {
        let client = site.plane.client().await.unwrap();
        let running = client.apiserver_version().await.ok()?;
        (running.git_version == version).then_some(())
    })
    .await;
    world.sandbox.wait_cluster(&world.namespace, site.name).await.unwrap();
    let release = world.wait_ready_at_any_revision("hello", site.name).await;
    assert_eq!(release, 2, "the upgrade of Kubernetes changes no release");
    eventually("the tunnel is connected", || async {
        let tunnel = test.tunnels().get(site.name).await.unwrap();
        (!tunnel.status?.agents.is_empty()).then_some(())
    })
    .await;
}

/// Tries to reach the management API server from every site, all the time.
struct Probes {
    stop: CancellationToken,
    /// The number of attempts, and that of those that succeeded.
    task: JoinHandle<(u32, u32)>,
}

impl Probes {
    fn start(sites: &[String; 2], management: SocketAddr) -> Self {
        let (stop, sites) = (CancellationToken::new(), sites.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let (mut attempts, mut successes) = (0, 0);
            while !stopped.is_cancelled() {
                for site in &sites {
                    attempts += 1;
                    successes += u32::from(netns::connect(site, management, PROBE_TIMEOUT).await.is_ok());
                }
                let _ = tokio::time::timeout(PROBE_TIMEOUT, stopped.cancelled()).await;
            }
            (attempts, successes)
        });
        Self { stop, task }
    }

    async fn assert_none_succeeded(self) {
        self.stop.cancel();
        let (attempts, successes) = self.task.await.unwrap();
        assert!(attempts > 10 && successes == 0, "{successes} of {attempts} attempts succeeded");
    }
}

/// Applies a ClusterClass whose variable `site` is the network namespace of a Cluster.
async fn apply_class(test: &TunnelWorld) {
    const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
    const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io/v1alpha1";
    let metadata = json!({"name": "site", "namespace": test.world.namespace});
    let reference = |api_version: &str, kind: &str| json!({"templateRef": {"apiVersion": api_version, "kind": kind, "name": "site"}});
    let variable = |name: &str, required: bool, type_: &str| json!({"name": name, "required": required, "schema": {"openAPIV3Schema": {"type": type_}}});
    let network = json!({"namespace": "set-by-the-variable", "address": "10.0.0.2"});
    let objects = [
        json!({
            "apiVersion": INFRASTRUCTURE, "kind": "SandboxClusterTemplate", "metadata": metadata,
            "spec": {"template": {"spec": {"network": network}}},
        }),
        json!({
            "apiVersion": CONTROL_PLANE, "kind": "SandboxControlPlaneTemplate", "metadata": metadata,
            "spec": {"template": {"spec": {"nodes": 1}}},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": metadata,
            "spec": {
                "kubernetesVersions": KubernetesVersion::SUPPORTED.map(|version| version.to_string()),
                "infrastructure": reference(INFRASTRUCTURE, "SandboxClusterTemplate"),
                "controlPlane": reference(CONTROL_PLANE, "SandboxControlPlaneTemplate"),
                "variables": [variable("site", true, "string"), variable("tunnel", false, "boolean")],
                "patches": [{"name": "site", "definitions": [{
                    "selector": {
                        "apiVersion": INFRASTRUCTURE, "kind": "SandboxClusterTemplate",
                        "matchResources": {"infrastructureCluster": true},
                    },
                    "jsonPatches": [{
                        "op": "replace", "path": "/spec/template/spec/network/namespace",
                        "valueFrom": {"variable": "site"},
                    }],
                }]}],
            },
        }),
    ];
    for object in &objects {
        test.world.apply(object).await;
    }
}

fn cluster(namespace: &str, name: &str, site: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"fleet": "test"},
            // When Cluster API removes its last annotation, it also removes those of others.
            "annotations": {"sandbox.chandler.dev/made-here": ""},
        },
        "spec": {
            "clusterNetwork": {"services": {"cidrBlocks": ["10.96.0.0/16"]}},
            "availabilityGates": [{"conditionType": "AddonsReady"}],
            "topology": {
                "classRef": {"name": "site", "namespace": namespace},
                "version": KubernetesVersion::default().to_string(),
                "variables": [{"name": "site", "value": site}, {"name": "tunnel", "value": true}],
            },
        },
    })
}
