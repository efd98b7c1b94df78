//! The hub of tunnels: a CONNECT proxy for clients that want to reach a cluster behind NAT, and the address that the agents
//! of those clusters dial.
//!
//! Nothing here depends on Kubernetes but the module `kubernetes`: everything else works on a [`Directory`] and reports to a
//! [`Reporter`].

mod accept;
mod agents;
mod directory;
mod handshakes;
mod health;
mod join;
mod keys_watch;
mod kubernetes;
mod locks;
mod metrics;
mod opening;
mod peers;
mod proxy;
mod public;
mod report;
mod revocation;
mod run;
mod server;
mod session;

pub use self::{
    directory::{Directory, DirectoryReceiver, HubAddress, TunnelEntry},
    handshakes::HandshakeLimits,
    keys_watch::{HubKeys, KeysReceiver, LoadError},
    kubernetes::{Kubernetes, Replica},
    metrics::Metrics,
    peers::PeerOptions,
    proxy::{Decision, LastSeen, Refusal, authorize},
    report::{AgentRecord, JoinReport, NoReports, Reporter},
    run::{RunOptions, run},
    server::{Addresses, Hub, HubError, HubOptions, Inputs},
};
