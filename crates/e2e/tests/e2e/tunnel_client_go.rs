//! The Go code of Cluster API and Kubernetes with clusters that only dial out: the kubeadm control plane provider replaces
//! kubeconfigs, and forwards ports to reach etcd.

use std::{path::Path, process::Command, time::Duration};

use chandler_e2e::{
    agent::Agent,
    tunnel_world::{TunnelWorld, cluster_entry, parse_kubeconfig},
    wait::eventually,
};
use chandler_sandbox::{
    apply,
    assets::Binary,
    plane::{Plane, free_port},
    process::{Child, Spec},
    testing,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};
use tokio::{io::copy, net::TcpListener};

const START_LIMIT: Duration = Duration::from_mins(1);
/// Half of the life of a certificate of Cluster API, and a minute. Cluster API replaces the kubeconfig after that minute, so
/// Chandler looks at it then.
const SOON_REPLACED: Duration = Duration::from_mins(365 * 12 * 60 + 1);
/// The Node whose kubelet forwards ports.
const NODE: &str = "forwarding";

/// Runs the Go program. Returns its stdout.
async fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(testing::installer(Binary::CapiClient).await.unwrap());
    command.args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Creates the Cluster `alpha` with an agent, and waits until it is Available with the release `hello`.
async fn deploy(test: &TunnelWorld) -> Agent {
    test.world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    test.create_cluster("alpha", &json!({"chandler.dev/tunnel": "enabled"})).await;
    let agent = test.start_agent("alpha").await;
    test.world.wait_ready("hello", "alpha", 1).await;
    test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();
    agent
}

/// Writes the certificate authority of the cluster where Cluster API stores it. The sandbox does not store it there.
async fn write_authority(test: &TunnelWorld, plane: &Plane) {
    let read = |file: &str| std::fs::read_to_string(plane.dir().join("pki").join(file)).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": "alpha-ca", "namespace": test.world.namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": "alpha"},
        },
        "stringData": {"tls.crt": read("ca.pem"), "tls.key": read("ca.key")},
    });
    test.world.apply(&secret).await;
}

/// Replaces the kubeconfig by one with the same proxy whose certificate is half a year old.
async fn age_kubeconfig(test: &TunnelWorld, plane: &Plane) {
    let aged = plane.issue_kubeconfig(&plane.public_endpoint(), SOON_REPLACED).unwrap();
    let mut aged = Kubeconfig::from_yaml(&aged).unwrap();
    let proxy_url = test.wait_proxied("alpha", true).await.proxy_url;
    aged.clusters[0].cluster.as_mut().unwrap().proxy_url = proxy_url;
    let patch = Patch::Merge(json!({"stringData": {"value": serde_saphyr::to_string(&aged).unwrap()}}));
    test.secrets().patch("alpha-kubeconfig", &PatchParams::default(), &patch).await.unwrap();
}

fn certificate(kubeconfig: &Kubeconfig) -> Option<String> {
    kubeconfig.auth_infos.first()?.auth_info.as_ref()?.client_certificate_data.clone()
}

#[tokio::test]
#[ignore = "builds capi-client"]
async fn the_proxy_is_put_back_after_the_code_of_cluster_api_has_replaced_the_kubeconfig() {
    let test = TunnelWorld::new("tunnel-regenerate").await;
    let world = &test.world;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    let agent = deploy(&test).await;
    let plane = world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    write_authority(&test, &plane).await;
    // A manager that starts half a year later expects that the kubeconfig is replaced soon.
    manager.stop().await;
    age_kubeconfig(&test, &plane).await;
    let manager = test.start_manager();
    manager.wait_idle().await;
    let before = test.secrets().get("alpha-kubeconfig").await.unwrap();
    let proxied = cluster_entry(parse_kubeconfig(&before));

    let management = world.sandbox.management().kubeconfig_path();
    let written = run(&["regenerate", &management.to_string_lossy(), &world.namespace, "alpha"]).await;
    let written = Kubeconfig::from_yaml(&written).unwrap();
    let expected = certificate(&written);
    assert!(expected.is_some() && expected != certificate(&parse_kubeconfig(&before)));
    let replaced = cluster_entry(written);
    assert_eq!((replaced.proxy_url, replaced.server), (None, proxied.server), "only the server is kept");

    let repaired = eventually("the new kubeconfig has the proxy", || async {
        let secret = test.secrets().get("alpha-kubeconfig").await.unwrap();
        let kubeconfig = parse_kubeconfig(&secret);
        let is_new = certificate(&kubeconfig) == expected;
        (is_new && cluster_entry(kubeconfig).proxy_url == proxied.proxy_url).then_some(secret)
    })
    .await;
    assert_eq!((&repaired.type_, repaired.labels()), (&before.type_, before.labels()));
    assert_eq!(repaired.owner_references(), before.owner_references());
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    test.assert_no_leaks(&[&agent]);
    agent.stop().await;
    hub.stop().await;
    manager.stop().await;
}

/// Starts a server that sends back what it receives. Returns its port.
async fn start_echo() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                // The client closes the connection in any way it likes.
                let _ = copy(&mut reader, &mut writer).await;
            });
        }
    });
    port
}

/// Starts a kubelet of kwok that forwards every port of every Pod to one server, and manages no Node. Returns it and its port.
async fn start_kubelet(plane: &Plane, home: &Path, server: u16) -> (Child, u16) {
    let forward = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterPortForward", "metadata": {"name": "echo"},
        "spec": {"forwards": [{"target": {"port": server, "address": "127.0.0.1"}}]},
    });
    // It does not start without a stage. This one is of no Pod.
    let stage = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": "none"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchLabels": {"no-such": "label"}}, "next": {},
        },
    });
    let (configuration, port) = (home.join("kubelet.yaml"), free_port().unwrap());
    std::fs::write(&configuration, format!("{forward}\n---\n{stage}\n")).unwrap();
    let kubelet = Child::spawn(&Spec {
        name: "kubelet".to_owned(),
        program: testing::assets().await.unwrap().path(Binary::Kwok).to_owned(),
        args: vec![
            format!("--kubeconfig={}", plane.kubeconfig_path().display()),
            format!("--config={}", configuration.display()),
            "--manage-single-node=none".to_owned(),
            format!("--server-address=127.0.0.1:{port}"),
        ],
        env: vec![("HOME".to_owned(), home.display().to_string())],
        home: home.to_owned(),
    })
    .unwrap();
    assert!(kubelet.accepts_connections(port, START_LIMIT).await.unwrap(), "the kubelet does not serve");
    (kubelet, port)
}

/// Creates a Node with this kubelet and a Pod on it.
async fn create_pod(plane: &Plane, kubelet: u16) {
    let client = plane.client().await.unwrap();
    let create = PostParams::default();
    let address = |type_: &str| json!({"type": type_, "address": "127.0.0.1"});
    // Not applied: server-side apply would drop the status. The API server prefers the host name.
    let node: Node = from_json(json!({
        "metadata": {"name": NODE},
        "status": {
            "addresses": [address("Hostname"), address("InternalIP")],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
        },
    }));
    Api::<Node>::all(client.clone()).create(&create, &node).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "echo", "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [{"name": "echo", "image": "example.invalid/echo"}]},
    });
    apply::apply(&client, &pod).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    eventually("the Pod runs", || async {
        let pod = pods.get("echo").await.unwrap();
        (pod.status?.phase? == "Running").then_some(())
    })
    .await;
}

fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
#[ignore = "builds capi-client"]
async fn ports_are_forwarded_over_websocket_and_spdy_through_the_hub() {
    let test = TunnelWorld::new("tunnel-forward").await;
    let world = &test.world;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    let agent = deploy(&test).await;
    let plane = world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    let (kubelet, port) = start_kubelet(&plane, &world.dir, start_echo().await).await;
    create_pod(&plane, port).await;

    // Nothing resolves the host of the API server: only the proxy of the kubeconfig leads to it.
    test.wait_proxied("alpha", true).await;
    let secret = test.secrets().get("alpha-kubeconfig").await.unwrap();
    let kubeconfig = world.dir.join("client-kubeconfig");
    std::fs::write(&kubeconfig, &secret.data.unwrap()["value"].0).unwrap();
    let connects = hub.metrics().await["chandler_hub_connects_total"];
    let answers = run(&["port-forward", &kubeconfig.to_string_lossy(), "default", "echo", "2379"]).await;
    assert_eq!(answers, "spdy: spdy\nwebsocket: websocket\n");
    assert!(hub.metrics().await["chandler_hub_connects_total"] > connects + 1.5, "one stream per protocol");

    kubelet.stop(Duration::from_secs(5)).await;
    test.assert_no_leaks(&[&agent]);
    agent.stop().await;
    hub.stop().await;
    manager.stop().await;
}
