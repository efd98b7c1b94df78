use super::Reason;
use crate::string_enum::string_enum;

string_enum! {
    /// The reason of a condition that Chandler writes on a Cluster: `AddonsReady` or `AddonsUpgradable`.
    pub enum ClusterReason {
        Ready = "Ready",
        NotReady = "NotReady",
        /// `AddonsReady`: the cluster is reached through a tunnel, and no agent is connected.
        TunnelNotConnected = "TunnelNotConnected",
        Upgradable = "Upgradable",
        Blocked = "Blocked",
    }
}

impl From<ClusterReason> for Reason {
    fn from(reason: ClusterReason) -> Self {
        Self(reason.as_str())
    }
}
