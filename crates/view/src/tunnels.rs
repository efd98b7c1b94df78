//! The ClusterTunnels of a management cluster, and what `chandler tunnel` changes in them.

mod changes;
mod reader;
mod views;

pub use chandler_core::tunnel::Enabled;

pub use self::{
    changes::{disable, enable, enabled_by, revoke},
    reader::{Error, list_tunnels, read_cluster, read_tunnel},
    views::{AgentView, TunnelState, TunnelView},
};
