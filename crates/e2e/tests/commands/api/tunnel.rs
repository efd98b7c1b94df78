//! Validation of ClusterTunnel.

use serde_json::json;

use super::{
    objects::{TUNNEL, object, without},
    server::Server,
    validation::check,
};

#[tokio::test]
async fn tunnels_are_validated() {
    let server = Server::shared().await;
    let hub = |address: &str, ca: &str| json!({"hubs": [{"address": address, "caBundle": ca}]});
    let pem = "-----BEGIN CERTIFICATE-----\n";
    let hubs = |count: u32| {
        let hubs = (0..count).map(|number| json!({"address": format!("hub-{number}:443"), "caBundle": pem}));
        json!({"hubs": hubs.collect::<Vec<_>>()})
    };
    let rows = [
        (object(TUNNEL, &json!({})), None),
        (object(TUNNEL, &json!({"endpoint": "api.blue.example:6443", "connections": 1})), None),
        (object(TUNNEL, &json!({"proxy": "http://proxy.example:3128"})), None),
        (without(TUNNEL, "id"), Some("spec.id: Required value")),
        (object(TUNNEL, &json!({"id": "0123"})), Some("spec.id")),
        (object(TUNNEL, &json!({"id": "Z".repeat(32)})), Some("spec.id")),
        (object(TUNNEL, &json!({"epoch": 0})), Some("spec.epoch")),
        (
            object(TUNNEL, &json!({"clusterName": "green"})),
            Some("a ClusterTunnel has the name of its Cluster"),
        ),
        (object(TUNNEL, &json!({"hubs": []})), Some("spec.hubs")),
        (object(TUNNEL, &hubs(8)), None),
        (object(TUNNEL, &hubs(9)), Some("spec.hubs")),
        (object(TUNNEL, &hub("hub.example", pem)), Some("spec.hubs[0].address")),
        (object(TUNNEL, &hub("hub.example:443", "none")), Some("spec.hubs[0].caBundle")),
        (object(TUNNEL, &json!({"proxy": "socks5://proxy.example"})), Some("spec.proxy")),
        (object(TUNNEL, &json!({"connections": 9})), Some("spec.connections")),
    ];
    for (object, error) in rows {
        check(&server, &object, error).await;
    }
}

#[tokio::test]
async fn the_identity_of_a_tunnel_is_kept() {
    let server = Server::shared().await;
    let mut tunnel = object(TUNNEL, &json!({"clusterName": "kept", "epoch": 2}));
    tunnel["metadata"]["name"] = json!("kept");
    let tunnel = server.create(&tunnel).await.unwrap();
    let rows = [
        (json!({"epoch": 1}), Some("spec.epoch")),
        (json!({"epoch": 3}), None),
        (json!({"epoch": 2}), Some("spec.epoch")),
        (json!({"id": "f".repeat(32)}), Some("spec.id")),
        (json!({"clusterName": "other"}), Some("spec.clusterName")),
        (json!({"connections": 1}), None),
    ];
    for (change, error) in rows {
        match (server.patch(&tunnel, json!({"spec": change})).await, error) {
            (Ok(_), None) => {}
            (Err(message), Some(error)) => assert!(message.contains(error), "{change}: {message}"),
            (patched, _) => panic!("{change}: {patched:?}"),
        }
    }
}
