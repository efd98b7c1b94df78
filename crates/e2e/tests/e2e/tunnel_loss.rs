//! A tunnel over a link with a long round trip that loses packets. The hub and the agent are on both ends of it:
//!
//! ```text
//! management, clients, hub 198.19.x.1 ── 100 ms, 5 % loss ── 198.19.x.2 site: agent, API server 10.0.0.2
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::Ipv4Addr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use chandler_api::tunnel::{CONNECTED, ClusterTunnel};
use chandler_e2e::{
    agent::{Agent, AgentPlace},
    hub::free_address,
    tunnel_installation::{CLUSTER, HOST, TunnelInstallation},
    tunnel_world::condition,
    wait::eventually,
    world::{TestSlot, config_value},
};
use chandler_sandbox::{
    netns::{self, NetworkNamespace},
    packet_link::{Conditions, End, PacketLink},
    plane::{Network, Plane, PlaneOptions},
    testing,
};
use futures::{TryStreamExt as _, future::join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    config::KubeConfigOptions,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::time::timeout;

const MEGABITS_PER_SECOND: u32 = 100;
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// In each direction.
const LOSS: f64 = 0.05;
const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CLIENTS: usize = 6;
const REQUESTS_PER_CLIENT: usize = 5;
/// Several losses in a row take seconds.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// How fast the data passes depends on the congestion control of this machine: with cubic, some 60 kB a second for each connection.
const TRANSFER_LIMIT: Duration = Duration::from_mins(2);
const OBJECTS: usize = 2;
const OBJECT_BYTES: usize = 512 << 10;
const KEY: &str = "data";

/// Returns the addresses of both ends, from the range for benchmarks (RFC 2544). Runs of this test at the same time use different
/// ones, because one end is in the namespace of the process.
fn addresses() -> [Ipv4Addr; 2] {
    let network = u32::from(Ipv4Addr::new(198, 19, 0, 0)) + std::process::id() % (1 << 14) * 4;
    [1, 2].map(|host| Ipv4Addr::from(network + host))
}

fn start_link(site: &NetworkNamespace, addresses: [Ipv4Addr; 2]) -> PacketLink {
    let [near, far] = addresses.map(|address| format!("{address}/30"));
    let interface = format!("lossy-{}", std::process::id());
    let ends = [
        End { namespace: None, interface: &interface, address: &near },
        End { namespace: Some(site), interface: "wan", address: &far },
    ];
    let conditions = Conditions::new(MEGABITS_PER_SECOND, ROUND_TRIP).with_loss(LOSS);
    PacketLink::start(ends, conditions).unwrap_or_else(|error| panic!("{error}"))
}

async fn start_plane(site: &NetworkNamespace, dir: &Path) -> Plane {
    site.add_network("lan", &format!("{API_SERVER}/24")).unwrap();
    let network = Network {
        namespace: Some(site.name().to_owned()),
        address: API_SERVER.into(),
        host_name: Some(HOST.to_owned()),
    };
    // In a namespace of its own, all ports are free.
    let options =
        PlaneOptions { network, port: Some(6443), ..PlaneOptions::bare(CLUSTER, &dir.join("plane")) };
    Plane::start(testing::assets().await.unwrap(), options).await.unwrap()
}

#[tokio::test]
async fn a_tunnel_stays_connected_and_carries_everything_while_packets_are_lost() {
    if netns::is_skipped() {
        println!("skipped, because {} is set", netns::SKIP_VARIABLE);
        return;
    }
    let _slot = TestSlot::shared().await;
    let site = NetworkNamespace::create("lossy").unwrap_or_else(|error| panic!("{error}"));
    let addresses = addresses();
    let link = start_link(&site, addresses);
    let dir = testing::fresh_dir("tunnel-loss-site").await.unwrap();
    let hub_address = Some(free_address(addresses[0]));
    let (plane, installation) = tokio::join!(
        start_plane(&site, &dir),
        Box::pin(TunnelInstallation::start_at("tunnel-loss", hub_address))
    );
    let configuration = installation.create_cluster(&plane).await;
    let location = AgentPlace { name: CLUSTER, home: &dir, namespace: Some(site.name()) };
    let agent = Agent::start(&location, &configuration);
    let pid = agent.pid();
    wait_all_connections(&installation).await;
    installation.wait_proxied().await;
    let states = record_states(&installation);

    request_in_parallel(&installation).await;
    transfer(&installation, &plane).await;

    let states = states.lock().unwrap().clone();
    let expected = states.first().unwrap();
    assert!(expected.is_connected, "{expected:?}");
    assert!(states.iter().all(|state| state == expected), "the tunnel was interrupted: {states:?}");
    assert!(agent.is_running() && agent.pid() == pid, "{}", agent.logs());
    let counts = link.counts();
    // The transfers alone take about 1,500 packets.
    assert!(counts.lost > 30, "{counts:?}");
    println!("{counts:?}");
    agent.stop().await;
    installation.stop().await;
}

/// Waits until the agent has opened all its connections.
async fn wait_all_connections(installation: &TunnelInstallation) {
    eventually("the agent has opened all connections", || async {
        let tunnel = installation.wait_connected().await;
        let expected = usize::try_from(tunnel.spec.connections).unwrap();
        (tunnel.status?.agents.len() == expected).then_some(())
    })
    .await;
}

/// What the status of the tunnel says.
#[derive(Clone, Debug, PartialEq)]
struct TunnelState {
    is_connected: bool,
    connections: BTreeSet<String>,
}

impl TunnelState {
    fn of(tunnel: &ClusterTunnel) -> Self {
        let agents = tunnel.status.iter().flat_map(|status| &status.agents);
        Self {
            is_connected: condition(tunnel, CONNECTED).as_deref() == Some("True"),
            connections: agents.map(|agent| agent.connection.clone()).collect(),
        }
    }
}

/// Records the status of the tunnel at each change.
fn record_states(installation: &TunnelInstallation) -> Arc<Mutex<Vec<TunnelState>>> {
    let recorded = Arc::<Mutex<Vec<TunnelState>>>::default();
    let (tunnels, states) = (installation.tunnels(), recorded.clone());
    tokio::spawn(async move {
        let record = watcher(tunnels, watcher::Config::default()).applied_objects().try_for_each(|tunnel| {
            states.lock().unwrap().push(TunnelState::of(&tunnel));
            futures::future::ready(Ok(()))
        });
        // The watch fails when the management cluster stops, at the end of the test.
        let _ = record.await;
    });
    recorded
}

/// Returns a client with a connection of its own through the hub.
async fn client(installation: &TunnelInstallation) -> Client {
    let kubeconfig = installation.cluster_kubeconfig().await.unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Sends requests through several new connections at the same time. None of them may fail.
async fn request_in_parallel(installation: &TunnelInstallation) {
    join_all((0..CLIENTS).map(|_| async {
        let client = client(installation).await;
        for _ in 0..REQUESTS_PER_CLIENT {
            timeout(REQUEST_LIMIT, client.apiserver_version()).await.unwrap().unwrap();
        }
    }))
    .await;
}

/// Returns a text in which no part equals another.
fn text(number: usize) -> String {
    let mut text = String::new();
    for line in 0.. {
        writeln!(text, "line {line} of object {number}").unwrap();
        if text.len() >= OBJECT_BYTES {
            break;
        }
    }
    text
}

/// Writes large objects through the hub and reads them back.
async fn transfer(installation: &TunnelInstallation, plane: &Plane) {
    join_all((0..OBJECTS).map(|number| async move {
        let (name, text) = (format!("large-{number}"), text(number));
        let object = ConfigMap {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([(KEY.to_owned(), text.clone())])),
            ..ConfigMap::default()
        };
        let maps: Api<ConfigMap> = Api::namespaced(client(installation).await, "default");
        // The response contains the object, too.
        let parameters = PostParams::default();
        let created = timeout(TRANSFER_LIMIT, maps.create(&parameters, &object)).await.unwrap().unwrap();
        assert!(created.data == object.data, "the response about {name} differs");
        let is_stored = config_value(plane, &name, KEY).await.as_ref() == Some(&text);
        assert!(is_stored, "{name} differs on the cluster");
    }))
    .await;
}
