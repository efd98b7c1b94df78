//! Tunnels to clusters that only dial out: which Clusters have one, what it consists of, how their kubeconfigs use it, and
//! what is reported about it.

mod agents;
mod bootstrap;
mod cluster;
mod desired;
mod kubeconfig;
mod proxy_policy;
mod report;
mod schedule;

pub use self::{
    agents::{HubLease, HubLiveness, HubObserver, connected_agents, hubs_in, without_hubs},
    bootstrap::{AGENT_CONFIG_DIR, AGENT_STATE_DIR, SecretOwner, agent_pod, secret_owner},
    cluster::{Enabled, TunnelCluster, enabled_by, has_tunnel_variable},
    desired::{OwnHubs, TunnelPlan, desired_spec, has_duplicate_id, new_tunnel, plan_tunnel},
    kubeconfig::{
        KubeconfigEdit, KubeconfigProxy, KubeconfigRefusal, client_certificate_pem, direct_kubeconfig,
        proxy_kubeconfig,
    },
    proxy_policy::{ProxyPolicy, ProxyUser},
    report::{KubeconfigState, TunnelObservation, TunnelProblem, TunnelReport, report, tunnel_problem},
    schedule::{next_check, predicted_rotation},
};
