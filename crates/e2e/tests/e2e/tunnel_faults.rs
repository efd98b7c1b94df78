//! Tunnels while agents and hubs are killed, restarted and revoked.

use chandler_api::tunnel::ClusterTunnel;
use chandler_e2e::{
    agent::Agent,
    chandler_command,
    hub::Hub,
    manager::Manager,
    tunnel_world::TunnelWorld,
    wait::{eventually, until},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

/// Creates the Cluster `alpha` with an agent, and waits until it is Available with the release `hello`.
async fn deploy(test: &TunnelWorld) -> Agent {
    test.world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    test.create_cluster("alpha", &json!({"chandler.dev/tunnel": "enabled"})).await;
    let agent = test.start_agent("alpha").await;
    test.world.wait_ready("hello", "alpha", 1).await;
    test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();
    agent
}

/// Upgrades the release `hello`, which shows that the cluster is reached.
async fn upgrade(test: &TunnelWorld, revision: u32) {
    let values = format!("greeting: Hello {revision}");
    test.world.patch_placement("hello", json!({"valuesTemplate": values})).await;
    test.world.wait_ready("hello", "alpha", revision).await;
}

async fn stop(test: TunnelWorld, manager: Manager, agent: Agent) {
    test.assert_no_leaks(&[&agent]);
    agent.stop().await;
    manager.stop().await;
}

#[tokio::test]
async fn a_killed_agent_is_reported_and_a_new_one_takes_over() {
    let test = TunnelWorld::new("tunnel-agent").await;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    let agent = deploy(&test).await;
    test.wait_addons_ready("alpha", "True", "").await;

    agent.kill().await;
    let tunnel = test.wait_connected("alpha", false).await;
    assert!(tunnel.status.unwrap().last_seen.is_some());
    let message = test.wait_addons_ready("alpha", "False", "tunnel not connected since").await;
    assert!(!message.contains("no agent has connected yet"), "{message}");

    // The new one has the key and the certificate of the old one, and needs no token.
    let configuration = test.wait_agent_configuration("alpha", |_| true).await;
    let agent = test.start_agent_with("alpha", &configuration);
    test.wait_connected("alpha", true).await;
    test.wait_addons_ready("alpha", "True", "").await;
    upgrade(&test, 2).await;
    let joins = hub.metrics().await[r#"chandler_hub_joins_total{result="joined"}"#];
    assert!((joins - 1.0).abs() < 0.5, "agents joined {joins} times");
    hub.stop().await;
    stop(test, manager, agent).await;
}

/// Returns how often the hub has refused a certificate or a join token.
async fn refusals(hub: &Hub) -> f64 {
    let metrics = hub.metrics().await;
    metrics[r#"chandler_hub_handshakes_total{result="revoked"}"#]
        + metrics[r#"chandler_hub_joins_total{result="refused"}"#]
}

#[tokio::test]
async fn a_revoked_agent_is_cut_off_until_it_joins_with_a_new_token() {
    let test = TunnelWorld::new("tunnel-revoke").await;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    let agent = deploy(&test).await;
    let before = test.wait_agent_configuration("alpha", |_| true).await;
    let proxied = test.wait_proxied("alpha", true).await.proxy_url;

    chandler_command::run_ok(&test.world, &["tunnel", "revoke", "alpha", "--yes"]).await;
    let tunnel = test.wait_connected("alpha", false).await;
    assert_eq!(tunnel.spec.epoch, 2);
    test.wait_addons_ready("alpha", "False", "tunnel not connected since").await;
    until("the hub has ended all streams", async || hub.metrics().await["chandler_hub_streams"].abs() < 0.5)
        .await;
    // Neither its certificate nor its token is accepted, however often it tries.
    let refused = refusals(&hub).await;
    until("the revoked agent tries again", async || refusals(&hub).await > refused + 1.5).await;
    assert!(agent.is_running(), "{}", agent.logs());
    assert!(test.wait_connected("alpha", false).await.status.unwrap().agents.is_empty());
    agent.stop().await;

    let configuration = test.wait_agent_configuration("alpha", |text| text != before).await;
    let agent = test.start_agent_with("alpha", &configuration);
    test.wait_connected("alpha", true).await;
    until("the kubeconfig has the new password", async || {
        test.wait_proxied("alpha", true).await.proxy_url != proxied
    })
    .await;
    upgrade(&test, 2).await;
    test.wait_addons_ready("alpha", "True", "").await;
    hub.stop().await;
    stop(test, manager, agent).await;
}

#[tokio::test]
async fn a_tunnel_with_the_id_of_a_deleted_one_gets_none_of_its_agents() {
    let test = TunnelWorld::new("tunnel-owner").await;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    test.create_cluster("alpha", &json!({"chandler.dev/tunnel": "enabled"})).await;
    let agent = test.start_agent("alpha").await;
    let deleted = test.wait_connected("alpha", true).await;

    let other = test.world.sandbox.namespace("tunnel-thief").await.unwrap();
    let thief = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel",
        "metadata": {"name": "alpha", "namespace": other}, "spec": deleted.spec,
    });
    test.world.apply(&thief).await;
    let disabled = Patch::Merge(json!({"metadata": {"labels": {"chandler.dev/tunnel": null}}}));
    test.world.clusters().patch("alpha", &PatchParams::default(), &disabled).await.unwrap();
    eventually("the tunnel is deleted", || async {
        test.tunnels().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
    // It has a certificate and a token that are valid, but for another Cluster.
    until("the hub refuses to renew the certificate", async || {
        agent.logs().contains("for the tunnel of another Cluster")
    })
    .await;
    let thieves: Api<ClusterTunnel> = Api::namespaced(test.world.client.clone(), &other);
    let status = thieves.get("alpha").await.unwrap().status.unwrap_or_default();
    assert!(status.agents.is_empty() && status.joins.is_empty(), "{status:?}");
    thieves.delete("alpha", &DeleteParams::default()).await.unwrap();
    hub.stop().await;
    stop(test, manager, agent).await;
}

#[tokio::test]
async fn a_killed_hub_loses_nothing() {
    let test = TunnelWorld::new("tunnel-hub").await;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    let agent = deploy(&test).await;
    let pid = agent.pid();

    let place = hub.kill().await;
    // The change is made while no hub runs, and arrives when one does.
    test.world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    let hub = test.start_hub(&place).await;
    test.world.wait_ready("hello", "alpha", 2).await;
    test.wait_connected("alpha", true).await;
    test.wait_addons_ready("alpha", "True", "").await;
    upgrade(&test, 3).await;
    assert!(agent.is_running() && agent.pid() == pid, "the agent connects again by itself");
    hub.stop().await;
    stop(test, manager, agent).await;
}

#[tokio::test]
async fn replicas_of_the_hub_forward_to_each_other_and_restart_one_by_one() {
    let test = TunnelWorld::new("tunnel-peers").await;
    let manager = test.start_manager();
    let [first, second] = test.hub_places();
    let hub_a = test.start_hub(&first).await;
    let hub_b = test.start_hub(&second).await;
    // The agent is connected to one replica only, and clients to the other.
    test.agents.set_endpoints(&[first.agents]);
    test.proxy.set_endpoints(&[second.proxy]);
    let agent = deploy(&test).await;
    let agents = test.wait_connected("alpha", true).await.status.unwrap().agents;
    assert!(agents.iter().all(|one| one.hub == first.name), "{agents:?}");
    let streams = hub_b.metrics().await["chandler_hub_connects_total"];
    assert!(streams > 0.0);

    // A rolling restart, as that of a Deployment: a replica that stops gets no new connections.
    test.proxy.set_endpoints(&[first.proxy, second.proxy]);
    test.agents.set_endpoints(&[second.agents]);
    hub_a.stop().await;
    until("the agent is connected to the other replica", async || {
        let agents = test.wait_connected("alpha", true).await.status.unwrap().agents;
        !agents.is_empty() && agents.iter().all(|one| one.hub == second.name)
    })
    .await;
    upgrade(&test, 2).await;
    let hub_a = test.start_hub(&first).await;
    test.agents.set_endpoints(&[first.agents]);
    hub_b.stop().await;
    until("the agent is connected to the first replica again", async || {
        let agents = test.wait_connected("alpha", true).await.status.unwrap().agents;
        !agents.is_empty() && agents.iter().all(|one| one.hub == first.name)
    })
    .await;
    upgrade(&test, 3).await;
    test.wait_addons_ready("alpha", "True", "").await;
    hub_a.stop().await;
    stop(test, manager, agent).await;
}
