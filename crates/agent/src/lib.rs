//! The agent of the tunnel: runs at a cluster behind NAT, dials the hubs of the management cluster, and serves exactly one
//! target, the cluster's API server, through these connections.

pub mod arguments;
mod backoff;
pub mod config;
mod connect;
pub mod credentials;
pub mod dial;
mod hub;
mod hub_list;
pub mod join;
mod renewal;
mod session;
mod spread;
pub mod state;
mod status;
mod supervisor;

pub use self::{
    config::Settings,
    status::{Connection, Status},
    supervisor::Agent,
};
