//! What is reported about a tunnel: the part of its status that the manager writes, and the text in `AddonsReady`.

use std::collections::BTreeMap;

use chandler_api::{
    reasons::{Reason, TunnelReason},
    tunnel::{CONNECTED, ClusterTunnel, JOINED, KUBECONFIG_PROXIED},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

use super::{KubeconfigRefusal, connected_agents};
use crate::conditions::{self, NewCondition, Status, find, is_true, ready_summary};

/// The state of the kubeconfig Secret of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigState {
    /// The Cluster has no endpoint yet.
    NoEndpoint,
    /// The Secret does not exist yet.
    Waiting,
    /// The management cluster has not published its own certificates, so it is not known whether the kubeconfig leads to it.
    NoManagementCa,
    /// It uses the hub as its proxy.
    Proxied {
        /// When Cluster API will replace it, if that can be predicted.
        rotation: Option<Timestamp>,
    },
    Refused(KubeconfigRefusal),
}

/// A problem that keeps a tunnel from working, besides those of its parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelProblem {
    #[error("Cluster {0} does not exist")]
    ClusterMissing(String),
    // It does not name the other one, which may be in the namespace of somebody else.
    #[error(
        "an older ClusterTunnel has the same id, so the hub does not serve this one, and agents get no token for it; delete it, \
         Chandler creates another one"
    )]
    DuplicateId,
    #[error(
        "Secret {0} exists and belongs to another object, so nodes do not get the files of the agent; delete or rename it"
    )]
    SecretConflict(String),
    #[error(
        "Secret {secret} cannot be used: {why}; restore it, or delete it, after which all agents have to join again"
    )]
    InvalidKeys { secret: String, why: String },
}

impl TunnelProblem {
    fn reason(&self) -> TunnelReason {
        match self {
            Self::ClusterMissing(_) => TunnelReason::ClusterMissing,
            Self::DuplicateId => TunnelReason::DuplicateId,
            Self::SecretConflict(_) => TunnelReason::SecretConflict,
            Self::InvalidKeys { .. } => TunnelReason::InvalidKeys,
        }
    }
}

/// What was observed of a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct TunnelObservation<'a> {
    pub tunnel: &'a ClusterTunnel,
    /// `None` if the Secret was not read. The last report about it is kept.
    pub kubeconfig: Option<&'a KubeconfigState>,
    pub problem: Option<&'a TunnelProblem>,
    /// The replicas of the hub that have died, with the time at which each was alive last.
    pub dead_hubs: &'a BTreeMap<String, Option<Timestamp>>,
}

/// The part of a ClusterTunnel's status that the manager writes. The rest belongs to the hubs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelReport {
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl TunnelReport {
    /// Returns the report that a ClusterTunnel has.
    pub fn of(tunnel: &ClusterTunnel) -> Self {
        let status = tunnel.status.clone().unwrap_or_default();
        Self {
            conditions: status.conditions,
            last_seen: status.last_seen,
            joined_epoch: status.joined_epoch,
            observed_generation: status.observed_generation,
        }
    }
}

/// Computes the report about a tunnel. An unchanged tunnel has an equal report at any time.
pub fn report(observed: &TunnelObservation<'_>, now: Timestamp) -> TunnelReport {
    let TunnelObservation { tunnel, kubeconfig, problem, dead_hubs } = *observed;
    let before = TunnelReport::of(tunnel);
    let joined_epoch = joined_epoch(tunnel);
    let agents = connected_agents(tunnel, dead_hubs).count();
    let last_seen = if agents > 0 { None } else { last_seen(tunnel, dead_hubs, &before, now) };
    let parts = [
        joined(tunnel, joined_epoch),
        connected(agents, last_seen),
        kubeconfig.map_or_else(|| kept_kubeconfig(&before.conditions), kubeconfig_proxied),
    ];
    let ready = match problem {
        Some(problem) => condition("Ready", Status::False, problem.reason(), problem.to_string()),
        None => ready_summary(&parts, TunnelReason::Ready.into()),
    };
    let generation = tunnel.metadata.generation;
    let new: Vec<_> = [ready].into_iter().chain(parts).collect();
    TunnelReport {
        conditions: conditions::merge(&before.conditions, new, generation, now),
        last_seen: last_seen.map(Time),
        joined_epoch,
        observed_generation: generation,
    }
}

/// Returns the newest epoch in which an agent has joined, as far as it is known.
fn joined_epoch(tunnel: &ClusterTunnel) -> Option<u32> {
    let status = tunnel.status.as_ref()?;
    let agents = status.agents.iter().map(|agent| agent.epoch);
    let joins = status.joins.iter().map(|join| join.epoch);
    let known = status.joined_epoch.into_iter().chain(agents).chain(joins);
    // A claim about an epoch that does not exist yet means nothing.
    known.filter(|epoch| *epoch <= tunnel.spec.epoch).max()
}

/// Returns when the last agent was connected. `None` if none ever was. Only called if none is connected.
fn last_seen(
    tunnel: &ClusterTunnel,
    dead_hubs: &BTreeMap<String, Option<Timestamp>>,
    before: &TunnelReport,
    now: Timestamp,
) -> Option<Timestamp> {
    if let Some(seen) = &before.last_seen {
        return Some(seen.0);
    }
    let agents: Vec<_> = tunnel.status.iter().flat_map(|status| &status.agents).collect();
    let of_dead = agents.iter().filter_map(|agent| dead_hubs.get(&agent.hub)?.as_ref().copied()).max();
    let was_connected = is_true(&before.conditions, CONNECTED) || !agents.is_empty();
    // The clock of the replica may be ahead.
    was_connected.then(|| of_dead.map_or(now, |at| at.min(now)))
}

fn joined(tunnel: &ClusterTunnel, joined_epoch: Option<u32>) -> NewCondition {
    if joined_epoch == Some(tunnel.spec.epoch) {
        return condition(JOINED, Status::True, TunnelReason::Joined, String::new());
    }
    let message = match joined_epoch {
        None => "no agent has joined yet; see whether its node has started, and whether it reaches the hub",
        Some(_) => "no agent has joined since the tunnel was revoked; agents need the new Secret",
    };
    condition(JOINED, Status::False, TunnelReason::NotJoined, message.to_owned())
}

fn connected(agents: usize, last_seen: Option<Timestamp>) -> NewCondition {
    if agents > 0 {
        return condition(CONNECTED, Status::True, TunnelReason::Connected, String::new());
    }
    let message = match last_seen {
        Some(seen) => format!("no agent is connected since {}", seconds(seen)),
        None => "no agent has connected yet".to_owned(),
    };
    condition(CONNECTED, Status::False, TunnelReason::NotConnected, message)
}

fn kubeconfig_proxied(state: &KubeconfigState) -> NewCondition {
    let (status, reason, message) = match state {
        KubeconfigState::Proxied { .. } => (Status::True, TunnelReason::Proxied, String::new()),
        KubeconfigState::NoEndpoint => (
            Status::False,
            TunnelReason::WaitingForEndpoint,
            "the Cluster has no control plane endpoint yet".to_owned(),
        ),
        KubeconfigState::Waiting => (
            Status::False,
            TunnelReason::WaitingForKubeconfig,
            "the kubeconfig Secret of the Cluster does not exist yet".to_owned(),
        ),
        KubeconfigState::NoManagementCa => (
            Status::Unknown,
            TunnelReason::WaitingForKubeconfig,
            "the management cluster has no ConfigMap kube-root-ca.crt in Chandler's namespace, so Chandler cannot see yet whether \
             the kubeconfig leads to the management cluster itself; it retries"
                .to_owned(),
        ),
        KubeconfigState::Refused(refusal) => {
            (Status::False, TunnelReason::KubeconfigRefused, refusal.to_string())
        }
    };
    condition(KUBECONFIG_PROXIED, status, reason, message)
}

/// Repeats the last report about the kubeconfig, because it was not read.
fn kept_kubeconfig(before: &[Condition]) -> NewCondition {
    let Some(known) = find(before, KUBECONFIG_PROXIED) else {
        return condition(
            KUBECONFIG_PROXIED,
            Status::Unknown,
            TunnelReason::WaitingForKubeconfig,
            String::new(),
        );
    };
    let status = match known.status.as_str() {
        "True" => Status::True,
        "False" => Status::False,
        _ => Status::Unknown,
    };
    let reason = TunnelReason::ALL.iter().copied().find(|reason| reason.as_str() == known.reason);
    let reason = reason.unwrap_or(TunnelReason::WaitingForKubeconfig);
    condition(KUBECONFIG_PROXIED, status, reason, known.message.clone())
}

fn condition(type_: &'static str, status: Status, reason: TunnelReason, message: String) -> NewCondition {
    NewCondition { type_, status, reason: Reason::from(reason), message }
}

/// Returns why the add-ons of a tunneled Cluster are not ready. `None` means that an agent is connected.
pub fn tunnel_problem(tunnel: Option<&ClusterTunnel>) -> Option<String> {
    let Some(tunnel) = tunnel else { return Some("tunnel not connected: it is being created".to_owned()) };
    let report = TunnelReport::of(tunnel);
    if is_true(&report.conditions, CONNECTED) {
        return None;
    }
    let seen = report.last_seen.map(|seen| seen.0);
    let created = tunnel.metadata.creation_timestamp.as_ref().map(|created| created.0);
    Some(match (seen, created) {
        (Some(seen), _) => format!("tunnel not connected since {}", seconds(seen)),
        (None, Some(created)) => {
            format!("tunnel not connected since {}: no agent has connected yet", seconds(created))
        }
        (None, None) => "tunnel not connected: no agent has connected yet".to_owned(),
    })
}

/// Returns a time in RFC 3339, without fractions of a second.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
