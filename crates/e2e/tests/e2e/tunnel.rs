//! A cluster whose API server nothing can dial is created, gets its add-ons through the hub, and keeps them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chandler_api::tunnel::{ClusterTunnel, JOINED, KUBECONFIG_PROXIED};
use chandler_e2e::{
    tunnel_world::{TunnelWorld, cluster_entry, condition, parse_kubeconfig},
    wait::eventually,
    world::config_value,
};
use chandler_sandbox::{clusters::unavailable_message, plane::Plane};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    config::Kubeconfig,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

/// Half of the life of a certificate of Cluster API. A kubeconfig whose certificate has less is replaced.
const HALF_LIFE: Duration = Duration::from_hours(365 * 12);

fn tunnel_label(value: &Value) -> Value {
    json!({"chandler.dev/tunnel": value})
}

#[tokio::test]
async fn a_cluster_that_only_dials_out_is_available_with_its_add_ons() {
    let test = TunnelWorld::new("tunnel").await;
    let world = &test.world;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    test.create_cluster("alpha", &tunnel_label(&json!("enabled"))).await;
    let tunnel = test.wait_tunnel("alpha", "it exists", |_| true).await;
    assert_belongs_to_cluster(&test, &tunnel).await;
    assert_bootstrap_secret(&test, &tunnel).await;

    // The control plane runs, but neither Cluster API nor Chandler can reach it.
    let message = test.wait_addons_ready("alpha", "False", "tunnel not connected since").await;
    assert!(message.contains("no agent has connected yet"), "{message}");
    let cluster = world.clusters().get("alpha").await.unwrap();
    assert!(unavailable_message(&cluster.data).is_some());

    let agent = test.start_agent("alpha").await;
    let connected = test.wait_connected("alpha", true).await;
    let status = connected.status.unwrap();
    assert!(status.agents.iter().all(|one| one.hub == hub.place.name && one.epoch == 1), "{status:?}");
    let entry = test.wait_proxied("alpha", true).await;
    let expected = format!("@{}", test.proxy.address());
    assert!(entry.proxy_url.is_some_and(|url| url.starts_with("http://") && url.ends_with(&expected)));
    world.wait_ready("hello", "alpha", 1).await;
    test.wait_addons_ready("alpha", "True", "").await;
    test.wait_tunnel("alpha", "it is ready", |tunnel| {
        ["Ready", JOINED, KUBECONFIG_PROXIED]
            .iter()
            .all(|type_| condition(tunnel, type_).as_deref() == Some("True"))
    })
    .await;
    // Cluster API reaches it through the hub, too.
    let plane = world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    assert_eq!(config_value(&plane, "hello", "greeting").await.as_deref(), Some("Hello from somewhere"));
    let metrics = hub.metrics().await;
    assert!(metrics["chandler_hub_connects_total"] > 0.0, "{metrics:?}");

    test.assert_no_leaks(&[&agent]);
    assert_disabled(&test).await;
    agent.stop().await;
    hub.stop().await;
    manager.stop().await;
}

/// The owner reference makes `clusterctl move` take the tunnel along.
async fn assert_belongs_to_cluster(test: &TunnelWorld, tunnel: &ClusterTunnel) {
    let cluster = test.world.clusters().get("alpha").await.unwrap();
    let [owner] = tunnel.owner_references() else { panic!("{:?}", tunnel.owner_references()) };
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Cluster", cluster.metadata.uid.as_ref()));
    assert_eq!((tunnel.spec.cluster_name.as_str(), tunnel.spec.epoch), ("alpha", 1));
    let hubs: Vec<_> = tunnel.spec.hubs.iter().map(|hub| hub.address.clone()).collect();
    assert_eq!(hubs, [test.agents.address().to_string()]);
}

async fn assert_bootstrap_secret(test: &TunnelWorld, tunnel: &ClusterTunnel) {
    let secret = eventually("the bootstrap Secret exists", || async {
        test.secrets().get_opt("alpha-tunnel").await.unwrap()
    })
    .await;
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(secret.labels()["cluster.x-k8s.io/cluster-name"], "alpha");
    let [owner] = secret.owner_references() else { panic!("{:?}", secret.owner_references()) };
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("ClusterTunnel", tunnel.metadata.uid.as_ref()));
    let data = secret.data.unwrap();
    let file = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let configuration: Value = serde_saphyr::from_str(&file("agent.yaml")).unwrap();
    assert_eq!(configuration["tunnel"], json!(tunnel.spec.id));
    assert_eq!(configuration["hubs"][0]["caBundle"], json!(tunnel.spec.hubs[0].ca_bundle));
    let pod: Value = serde_saphyr::from_str(&file("pod.yaml")).unwrap();
    assert_eq!((&pod["kind"], &pod["spec"]["hostNetwork"]), (&json!("Pod"), &json!(true)));
}

/// Removes the label: the Cluster is reached directly again, and nothing is left of the tunnel.
async fn assert_disabled(test: &TunnelWorld) {
    let before = test.secrets().get("alpha-kubeconfig").await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": tunnel_label(&Value::Null)}}));
    test.world.clusters().patch("alpha", &PatchParams::default(), &patch).await.unwrap();
    let entry = test.wait_proxied("alpha", false).await;
    assert_eq!(entry.server, cluster_entry(parse_kubeconfig(&before)).server);
    let after = test.secrets().get("alpha-kubeconfig").await.unwrap();
    assert_same_secret(&before, &after);
    eventually("the tunnel is deleted", || async {
        test.tunnels().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
}

fn assert_same_secret(before: &Secret, after: &Secret) {
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_eq!((&before.type_, before.labels()), (&after.type_, after.labels()));
    assert_eq!(before.owner_references(), after.owner_references());
}

/// Whether the kubeconfig had a proxy, and its client certificate, at each change of the Secret.
type Changes = Arc<Mutex<Vec<(bool, String)>>>;

fn record_kubeconfigs(test: &TunnelWorld) -> Changes {
    let changes = Changes::default();
    let (secrets, recorded) = (test.secrets(), changes.clone());
    tokio::spawn(async move {
        let one = watcher::Config::default().fields("metadata.name=alpha-kubeconfig");
        let record = watcher(secrets, one).applied_objects().try_for_each(|secret| {
            let kubeconfig = parse_kubeconfig(&secret);
            let certificate = certificate(&kubeconfig);
            let is_proxied = cluster_entry(kubeconfig).proxy_url.is_some();
            recorded.lock().unwrap().push((is_proxied, certificate));
            futures::future::ready(Ok(()))
        });
        record.await.unwrap();
    });
    changes
}

fn certificate(kubeconfig: &Kubeconfig) -> String {
    kubeconfig.auth_infos[0].auth_info.as_ref().unwrap().client_certificate_data.clone().unwrap()
}

/// Replaces the kubeconfig by one that was issued so long ago that Cluster API replaces it in a few seconds.
async fn age_kubeconfig(test: &TunnelWorld, plane: &Plane) -> String {
    let aged = plane.issue_kubeconfig(&plane.public_endpoint(), HALF_LIFE + Duration::from_secs(5)).unwrap();
    let mut aged = Kubeconfig::from_yaml(&aged).unwrap();
    let current = cluster_entry(test.kubeconfig("alpha").await.unwrap());
    aged.clusters[0].cluster.as_mut().unwrap().proxy_url = current.proxy_url;
    let value = serde_saphyr::to_string(&aged).unwrap();
    let patch = Patch::Merge(json!({"stringData": {"value": value}}));
    test.secrets().patch("alpha-kubeconfig", &PatchParams::default(), &patch).await.unwrap();
    certificate(&aged)
}

#[tokio::test]
async fn the_proxy_is_put_back_after_cluster_api_has_renewed_the_kubeconfig() {
    let test = TunnelWorld::new("tunnel-rotation").await;
    let world = &test.world;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    test.create_cluster("alpha", &tunnel_label(&json!("enabled"))).await;
    let agent = test.start_agent("alpha").await;
    world.wait_ready("hello", "alpha", 1).await;
    let plane = world.sandbox.wait_cluster(&world.namespace, "alpha").await.unwrap();
    let before = test.secrets().get("alpha-kubeconfig").await.unwrap();

    // A manager that starts half a year later sees an old kubeconfig.
    manager.stop().await;
    let changes = record_kubeconfigs(&test);
    let aged = age_kubeconfig(&test, &plane).await;
    let manager = test.start_manager();
    let renewed = eventually("the kubeconfig is renewed and has its proxy again", || async {
        let (is_proxied, last) = changes.lock().unwrap().last().cloned()?;
        (is_proxied && last != aged && last != certificate(&parse_kubeconfig(&before))).then_some(last)
    })
    .await;
    let dropped = changes.lock().unwrap().iter().any(|(proxied, one)| !proxied && *one == renewed);
    assert!(dropped, "the renewal drops the proxy, as that of Cluster API does");
    assert_same_secret(&before, &test.secrets().get("alpha-kubeconfig").await.unwrap());

    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    test.assert_no_leaks(&[&agent]);
    agent.stop().await;
    hub.stop().await;
    manager.stop().await;
}
