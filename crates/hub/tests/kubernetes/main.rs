//! What hubs read from and write to a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic on failure")]

use std::time::Duration;

use chandler_api::tunnel::{ClusterTunnel, ClusterTunnelStatus, HUB_RENEWAL_PREFIX, HUBS_LEASE};
use chandler_hub::{AgentRecord, JoinReport, Kubernetes, Metrics, Replica};
use chandler_sandbox::{apply, crds::wait_served, testing};
use chandler_tunnel::{TunnelId, TunnelKey, TunnelOwner};
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

const NAMESPACE: &str = "default";
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

fn start(client: &Client, name: &str) -> Kubernetes {
    let replica = Replica { name: name.to_owned(), namespace: NAMESPACE.to_owned() };
    Kubernetes::start(client.clone(), replica, Metrics::new())
}

fn agent(connection: &str) -> AgentRecord {
    AgentRecord {
        connection: connection.to_owned(),
        epoch: 1,
        since: Timestamp::now(),
        node: "node-1".to_owned(),
        version: "0.1.0".to_owned(),
    }
}

/// Waits until the API server returns what is expected.
async fn eventually<T>(what: &str, mut read: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(value) = read().await {
                return value;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what} within {LIMIT:?}"))
}

/// Waits until the status has these connections, as `hub/connection`.
async fn wait_agents(tunnels: &Api<ClusterTunnel>, expected: &[&str]) -> ClusterTunnelStatus {
    eventually(&format!("the connections {expected:?}"), async || {
        let status = tunnels.get_status("blue").await.unwrap().status.unwrap_or_default();
        let mut agents: Vec<_> =
            status.agents.iter().map(|agent| format!("{}/{}", agent.hub, agent.connection)).collect();
        agents.sort();
        (agents == expected).then_some(status)
    })
    .await
}

/// Waits until the Lease has the annotations of these replicas.
async fn wait_alive(leases: &Api<Lease>, expected: &[&str]) -> Lease {
    eventually(&format!("the renewals of {expected:?}"), async || {
        let lease = leases.get_opt(HUBS_LEASE).await.unwrap()?;
        let annotations = lease.metadata.annotations.iter().flatten();
        let alive = annotations.filter_map(|(key, _)| key.strip_prefix(HUB_RENEWAL_PREFIX));
        alive.eq(expected.iter().copied()).then_some(lease)
    })
    .await
}

#[tokio::test]
async fn replicas_follow_the_tunnels_and_own_their_part_of_the_status() {
    let plane = testing::bare_plane().await.unwrap();
    let client = plane.client().await.unwrap();
    for crd in chandler_api::crds() {
        apply::apply(&client, &serde_json::to_value(&crd).unwrap()).await.unwrap();
    }
    wait_served(&client, &ApiResource::erase::<ClusterTunnel>(&())).await.unwrap();
    let id = TunnelId::random().unwrap();
    let key = TunnelKey { id, owner: TunnelOwner::of(NAMESPACE, "blue") };
    let tunnel = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel",
        "metadata": {"name": "blue", "namespace": NAMESPACE},
        "spec": {
            "id": id, "epoch": 1, "clusterName": "blue", "endpoint": "10.0.0.10:6443",
            "hubs": [{"address": "hub.example:443", "caBundle": "-----BEGIN CERTIFICATE-----"}],
        },
    });
    apply::apply(&client, &tunnel).await.unwrap();
    let tunnels: Api<ClusterTunnel> = Api::namespaced(client.clone(), NAMESPACE);
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);

    let (one, two) = (start(&client, "hub-1"), start(&client, "hub-2"));
    let mut directory = one.directory();
    let listed = tokio::time::timeout(LIMIT, directory.wait_for(|directory| directory.is_listed()));
    let entry = listed.await.unwrap().unwrap().of_cluster(NAMESPACE, "blue").cloned().unwrap();
    assert_eq!((entry.id, entry.epoch, entry.endpoint.as_deref()), (id, 1, Some("10.0.0.10:6443")));

    one.reporter().agents_changed(key, vec![agent("a"), agent("b")]);
    two.reporter().agents_changed(key, vec![agent("a")]);
    wait_agents(&tunnels, &["hub-1/a", "hub-1/b", "hub-2/a"]).await;
    one.reporter().agents_changed(key, vec![agent("b")]);
    one.reporter().join(key, JoinReport::Joined { epoch: 1, from: "192.0.2.1".to_owned() });
    let status = wait_agents(&tunnels, &["hub-1/b", "hub-2/a"]).await;
    assert!(status.joins.iter().any(|join| join.hub == "hub-1" && join.epoch == 1), "{:?}", status.joins);
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the Event of the join", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.items.into_iter().find(|event| event.reason.as_deref() == Some("AgentJoined"))
    })
    .await;

    // Killed, and started again under the same name, as a container of the same Pod.
    drop(one);
    wait_alive(&leases, &["hub-1", "hub-2"]).await;
    let one = start(&client, "hub-1");
    let status = wait_agents(&tunnels, &["hub-2/a"]).await;
    assert!(status.joins.iter().any(|join| join.hub == "hub-1"), "a join is kept: {:?}", status.joins);

    two.reporter().agents_changed(key, Vec::new());
    two.stop().await;
    wait_agents(&tunnels, &[]).await;
    let lease = wait_alive(&leases, &["hub-1"]).await;
    let managers = lease.metadata.managed_fields.unwrap();
    assert!(
        managers.iter().all(|entry| entry.manager.as_deref() != Some("chandler-hub-hub-2")),
        "{managers:?}"
    );

    let patch = Patch::Merge(json!({"spec": {"epoch": 2}}));
    tunnels.patch("blue", &PatchParams::default(), &patch).await.unwrap();
    let mut directory = one.directory();
    let revoked = directory.wait_for(|directory| directory.revokes(key, 1));
    drop(tokio::time::timeout(LIMIT, revoked).await.unwrap().unwrap());
    tunnels.delete("blue", &DeleteParams::default()).await.unwrap();
    let deleted = directory.wait_for(|directory| directory.tunnel(id).is_none());
    drop(tokio::time::timeout(LIMIT, deleted).await.unwrap().unwrap());
    one.stop().await;
    plane.stop().await;
}
