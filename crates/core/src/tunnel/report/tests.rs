use chandler_api::tunnel::{ClusterTunnelStatus, TunnelAgent, TunnelJoin};

use super::*;
use crate::{
    identity::{ClusterKey, cluster_owner},
    tunnel::{OwnHubs, new_tunnel},
};

type Dead = BTreeMap<String, Option<Timestamp>>;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn tunnel(epoch: u32, status: ClusterTunnelStatus) -> ClusterTunnel {
    let (key, hubs) = (ClusterKey::new("fleet", "blue"), OwnHubs { addresses: &[], ca_bundle: "" });
    let mut tunnel = new_tunnel(&key, cluster_owner("blue", "1"), "0".repeat(32), None, &hubs);
    tunnel.metadata.generation = Some(i64::from(epoch));
    tunnel.spec.epoch = epoch;
    tunnel.status = Some(status);
    tunnel
}

fn agent(hub: &str, epoch: u32) -> TunnelAgent {
    TunnelAgent {
        hub: hub.to_owned(),
        connection: "1".to_owned(),
        epoch,
        since: Time(at(0)),
        node: "node".to_owned(),
        version: "1".to_owned(),
    }
}

fn with_agents(agents: &[TunnelAgent]) -> ClusterTunnelStatus {
    ClusterTunnelStatus { agents: agents.to_vec(), ..ClusterTunnelStatus::default() }
}

fn proxied() -> KubeconfigState {
    KubeconfigState::Proxied { rotation: None }
}

fn reported(
    tunnel: &ClusterTunnel,
    kubeconfig: &KubeconfigState,
    dead_hubs: &Dead,
    now: i64,
) -> TunnelReport {
    let kubeconfig = Some(kubeconfig);
    report(&TunnelObservation { tunnel, kubeconfig, problem: None, dead_hubs }, at(now))
}

/// Returns `tunnel` with a report as its status.
fn stored(tunnel: &ClusterTunnel, report: &TunnelReport) -> ClusterTunnel {
    let mut stored = tunnel.clone();
    let status = stored.status.get_or_insert_default();
    let TunnelReport { conditions, last_seen, joined_epoch, observed_generation } = report.clone();
    status.conditions = conditions;
    status.last_seen = last_seen;
    status.joined_epoch = joined_epoch;
    status.observed_generation = observed_generation;
    stored
}

fn reasons(report: &TunnelReport) -> Vec<&str> {
    report.conditions.iter().map(|condition| condition.reason.as_str()).collect()
}

#[test]
fn the_conditions_follow_agents_and_kubeconfig() {
    let refused = KubeconfigState::Refused(KubeconfigRefusal::SelfHosted);
    let dead: Dead = [("gone".to_owned(), Some(at(40)))].into();
    let joined = ClusterTunnelStatus {
        joins: vec![TunnelJoin { hub: "a".to_owned(), epoch: 1, at: Time(at(0)) }],
        ..ClusterTunnelStatus::default()
    };
    // Epoch, status, kubeconfig, reasons of Ready, Joined, Connected and KubeconfigProxied.
    let rows = [
        (
            1,
            ClusterTunnelStatus::default(),
            KubeconfigState::NoEndpoint,
            ["NotJoined", "NotJoined", "NotConnected", "WaitingForEndpoint"],
        ),
        (
            1,
            joined,
            KubeconfigState::Waiting,
            ["NotConnected", "Joined", "NotConnected", "WaitingForKubeconfig"],
        ),
        (
            1,
            with_agents(&[agent("a", 1)]),
            KubeconfigState::Waiting,
            ["WaitingForKubeconfig", "Joined", "Connected", "WaitingForKubeconfig"],
        ),
        (
            1,
            with_agents(&[agent("a", 1)]),
            KubeconfigState::NoManagementCa,
            ["WaitingForKubeconfig", "Joined", "Connected", "WaitingForKubeconfig"],
        ),
        (1, with_agents(&[agent("a", 1)]), proxied(), ["Ready", "Joined", "Connected", "Proxied"]),
        (
            1,
            with_agents(&[agent("a", 1)]),
            refused,
            ["KubeconfigRefused", "Joined", "Connected", "KubeconfigRefused"],
        ),
        // The only replica has died.
        (
            1,
            with_agents(&[agent("gone", 1)]),
            proxied(),
            ["NotConnected", "Joined", "NotConnected", "Proxied"],
        ),
        (
            1,
            with_agents(&[agent("gone", 1), agent("a", 1)]),
            proxied(),
            ["Ready", "Joined", "Connected", "Proxied"],
        ),
        // The tunnel was revoked; the hub has not cut the connection yet.
        (2, with_agents(&[agent("a", 1)]), proxied(), ["NotJoined", "NotJoined", "NotConnected", "Proxied"]),
        (2, with_agents(&[agent("a", 2)]), proxied(), ["Ready", "Joined", "Connected", "Proxied"]),
        // No epoch 2 exists.
        (1, with_agents(&[agent("a", 2)]), proxied(), ["NotJoined", "NotJoined", "NotConnected", "Proxied"]),
    ];
    for (number, (epoch, status, kubeconfig, expected)) in rows.into_iter().enumerate() {
        let report = reported(&tunnel(epoch, status), &kubeconfig, &dead, 100);
        assert_eq!(reasons(&report), expected, "row {number}");
        assert_eq!(report.observed_generation, Some(i64::from(epoch)));
    }
}

#[test]
fn the_time_of_the_disconnection_is_kept() {
    let connected = tunnel(1, with_agents(&[agent("a", 1)]));
    let report = reported(&connected, &proxied(), &Dead::new(), 100);
    assert_eq!(report.last_seen, None);
    let mut disconnected = stored(&connected, &report);
    disconnected.status.as_mut().unwrap().agents.clear();
    let report = reported(&disconnected, &proxied(), &Dead::new(), 200);
    assert_eq!(report.last_seen, Some(Time(at(200))));
    assert_eq!(reasons(&report)[1], "Joined", "an agent that has joined stays so");
    assert!(
        report.conditions[2].message.ends_with("since 1970-01-01T00:03:20Z"),
        "{:?}",
        report.conditions[2]
    );
    let again = reported(&stored(&disconnected, &report), &proxied(), &Dead::new(), 300);
    assert_eq!(again, report, "an unchanged tunnel needs no status update");
    let mut back = stored(&disconnected, &report);
    back.status.as_mut().unwrap().agents.push(agent("b", 1));
    assert_eq!(reported(&back, &proxied(), &Dead::new(), 400).last_seen, None);
}

#[test]
fn a_dead_replica_was_seen_when_it_renewed_its_lease_last() {
    // The last one has a clock that is ahead.
    for (renewed, expected) in [(Some(40), 40), (None, 100), (Some(400), 100)] {
        let dead: Dead = [("gone".to_owned(), renewed.map(at))].into();
        let report = reported(&tunnel(1, with_agents(&[agent("gone", 1)])), &proxied(), &dead, 100);
        assert_eq!(report.last_seen, Some(Time(at(expected))), "{renewed:?}");
    }
}

#[test]
fn a_kubeconfig_that_was_not_read_is_reported_as_before() {
    let connected = tunnel(1, with_agents(&[agent("a", 1)]));
    let known = stored(&connected, &reported(&connected, &proxied(), &Dead::new(), 100));
    for (tunnel, expected) in [(&known, "Ready"), (&connected, "WaitingForKubeconfig")] {
        let observed = TunnelObservation { tunnel, kubeconfig: None, problem: None, dead_hubs: &Dead::new() };
        assert_eq!(reasons(&report(&observed, at(200)))[0], expected);
    }
}

#[test]
fn a_problem_is_the_reason_why_a_tunnel_is_not_ready() {
    let tunnel = tunnel(1, with_agents(&[agent("a", 1)]));
    let problem = TunnelProblem::SecretConflict("fleet/blue-tunnel".to_owned());
    let kubeconfig = Some(&proxied());
    let observed =
        TunnelObservation { tunnel: &tunnel, kubeconfig, problem: Some(&problem), dead_hubs: &Dead::new() };
    let report = report(&observed, at(100));
    assert_eq!(reasons(&report), ["SecretConflict", "Joined", "Connected", "Proxied"]);
    assert!(report.conditions[0].message.contains("fleet/blue-tunnel"));
}

#[test]
fn add_ons_wait_for_the_tunnel() {
    let connected = tunnel(1, with_agents(&[agent("a", 1)]));
    let connected = stored(&connected, &reported(&connected, &proxied(), &Dead::new(), 100));
    assert_eq!(tunnel_problem(Some(&connected)), None);
    let mut lost = connected.clone();
    lost.status.as_mut().unwrap().agents.clear();
    let lost = stored(&lost, &reported(&lost, &proxied(), &Dead::new(), 200));
    assert_eq!(tunnel_problem(Some(&lost)).unwrap(), "tunnel not connected since 1970-01-01T00:03:20Z");
    let mut new = tunnel(1, ClusterTunnelStatus::default());
    new.metadata.creation_timestamp = Some(Time(at(60)));
    let problem = tunnel_problem(Some(&new)).unwrap();
    assert!(problem.starts_with("tunnel not connected since 1970-01-01T00:01:00Z: no agent"), "{problem}");
    assert!(tunnel_problem(None).unwrap().starts_with("tunnel not connected: "));
}
