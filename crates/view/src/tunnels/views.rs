//! Tunnels as commands show them. Pure.

use std::fmt;

use chandler_api::{
    reasons::TunnelReason,
    tunnel::{CONNECTED, ClusterTunnel, JOINED, KUBECONFIG_PROXIED},
};
use chandler_core::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use serde::Serialize;

/// How far a tunnel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TunnelState {
    /// No manager has reported anything.
    Unknown,
    /// Something besides the agents keeps the tunnel from working; the message says what.
    Failed,
    /// No agent has joined in the current epoch: none ever has, or the tunnel was revoked.
    WaitingForAgent,
    /// Agents have joined, and none is connected.
    Disconnected,
    /// An agent is connected, and the kubeconfig Secret does not use the tunnel yet.
    Connected,
    Ready,
}

impl fmt::Display for TunnelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelView {
    pub namespace: String,
    pub cluster: String,
    pub state: TunnelState,
    /// Reason of the condition that is not `True`, or of `Ready`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub id: String,
    pub epoch: u32,
    /// Addresses of the hubs that agents connect to.
    pub hubs: Vec<String>,
    /// Address of the API server, as clients ask the hub for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Address of the API server, as agents reach it.
    pub target: String,
    pub agents: Vec<AgentView>,
    /// When the last agent was connected, if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    pub conditions: Vec<Condition>,
}

/// A connection of an agent. Node and version are what the agent says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    pub node: String,
    pub version: String,
    pub hub: String,
    pub since: Time,
}

impl TunnelView {
    pub fn new(tunnel: &ClusterTunnel) -> Self {
        let (spec, status) = (&tunnel.spec, tunnel.status.clone().unwrap_or_default());
        let state = state(&status.conditions);
        let ready = conditions::find(&status.conditions, "Ready");
        let shown = [JOINED, CONNECTED, KUBECONFIG_PROXIED]
            .into_iter()
            .filter_map(|kind| conditions::find(&status.conditions, kind))
            .find(|condition| condition.status != "True" && state != TunnelState::Failed)
            .or(ready);
        Self {
            namespace: tunnel.namespace().unwrap_or_default(),
            cluster: spec.cluster_name.clone(),
            state,
            reason: shown.map(|condition| condition.reason.clone()).unwrap_or_default(),
            message: shown.map(|condition| condition.message.clone()).unwrap_or_default(),
            id: spec.id.clone(),
            epoch: spec.epoch,
            hubs: spec.hubs.iter().map(|hub| hub.address.clone()).collect(),
            endpoint: spec.endpoint.clone(),
            target: spec.target.clone(),
            agents: status
                .agents
                .into_iter()
                .map(|agent| AgentView {
                    node: agent.node,
                    version: agent.version,
                    hub: agent.hub,
                    since: agent.since,
                })
                .collect(),
            last_seen: status.last_seen,
            conditions: status.conditions,
        }
    }

    /// Returns what the user should do next, or `None` if the tunnel is ready.
    pub fn next_step(&self) -> Option<String> {
        let Self { namespace, cluster, .. } = self;
        match self.state {
            TunnelState::Ready => None,
            TunnelState::Failed => Some("fix what the message says".to_owned()),
            TunnelState::Unknown => Some(
                "check with `chandler doctor` that a manager with --tunnel-hub-address is running".to_owned(),
            ),
            TunnelState::WaitingForAgent => Some(format!(
                "new nodes need the files of Secret {cluster}-tunnel (`chandler tunnel patch`); for a cluster that exists, \
                 run `chandler tunnel import {cluster} --namespace {namespace}`; the agent's log on a node says why it \
                 cannot join"
            )),
            TunnelState::Disconnected => Some(format!(
                "check that the nodes of {cluster} reach one of {} over TCP; the agent's log says why it cannot connect",
                self.hubs.join(", ")
            )),
            TunnelState::Connected => Some(format!(
                "Chandler adds the proxy to Secret {cluster}-kubeconfig as soon as Cluster API has created it; see the message"
            )),
        }
    }
}

fn state(all: &[Condition]) -> TunnelState {
    let [joined, connected, proxied] =
        [JOINED, CONNECTED, KUBECONFIG_PROXIED].map(|kind| conditions::is_true(all, kind));
    match (joined, connected, proxied) {
        _ if all.is_empty() => TunnelState::Unknown,
        _ if has_problem(all) => TunnelState::Failed,
        (_, true, true) => TunnelState::Ready,
        (_, true, false) => TunnelState::Connected,
        (true, false, _) => TunnelState::Disconnected,
        (false, false, _) => TunnelState::WaitingForAgent,
    }
}

/// Returns whether the manager reports a problem that is none of the agents or of the kubeconfig.
fn has_problem(all: &[Condition]) -> bool {
    let problems = [
        TunnelReason::ClusterMissing,
        TunnelReason::DuplicateId,
        TunnelReason::SecretConflict,
        TunnelReason::InvalidKeys,
    ];
    let ready = conditions::find(all, "Ready").filter(|ready| ready.status != "True");
    ready.is_some_and(|ready| problems.iter().any(|problem| problem.as_str() == ready.reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tunnel, tunnel_with};

    #[test]
    fn the_state_follows_the_conditions() {
        let rows = [
            (vec![], TunnelState::Unknown, ""),
            (
                vec![
                    (JOINED, "False"),
                    (CONNECTED, "False"),
                    (KUBECONFIG_PROXIED, "True"),
                    ("Ready", "False"),
                ],
                TunnelState::WaitingForAgent,
                "NotJoined",
            ),
            (
                vec![
                    (JOINED, "True"),
                    (CONNECTED, "False"),
                    (KUBECONFIG_PROXIED, "True"),
                    ("Ready", "False"),
                ],
                TunnelState::Disconnected,
                "NotConnected",
            ),
            (
                vec![
                    (JOINED, "True"),
                    (CONNECTED, "True"),
                    (KUBECONFIG_PROXIED, "False"),
                    ("Ready", "False"),
                ],
                TunnelState::Connected,
                "NotKubeconfigProxied",
            ),
            (
                vec![(JOINED, "True"), (CONNECTED, "True"), (KUBECONFIG_PROXIED, "True"), ("Ready", "True")],
                TunnelState::Ready,
                "Ready",
            ),
        ];
        for (conditions, state, reason) in rows {
            let view = TunnelView::new(&tunnel_with("blue", &conditions));
            assert_eq!((view.state, view.reason.as_str()), (state, reason), "{conditions:?}");
            assert_eq!(view.next_step().is_none(), state == TunnelState::Ready, "{conditions:?}");
        }
    }

    #[test]
    fn a_problem_takes_precedence() {
        let mut tunnel = tunnel("blue");
        if let Some(ready) = tunnel.status.iter_mut().flat_map(|status| &mut status.conditions).next_back() {
            ready.status = "False".to_owned();
            ready.reason = TunnelReason::InvalidKeys.as_str().to_owned();
        }
        let view = TunnelView::new(&tunnel);
        assert_eq!((view.state, view.reason.as_str()), (TunnelState::Failed, "InvalidKeys"));
    }

    #[test]
    fn authorities_and_tokens_are_not_shown() {
        let mut tunnel = tunnel("blue");
        tunnel.spec.hubs[0].token = Some("canary".to_owned());
        let json = serde_json::to_string(&TunnelView::new(&tunnel)).unwrap();
        assert!(!json.contains("canary") && !json.contains("BEGIN CERTIFICATE"), "{json}");
    }
}
