use super::Reason;
use crate::words::words;

words! {
    /// Why a condition that Chandler writes on a Cluster is as it is: `AddonsReady` or `AddonsUpgradable`.
    pub enum ClusterReason {
        Ready = "Ready",
        NotReady = "NotReady",
        Upgradable = "Upgradable",
        Blocked = "Blocked",
    }
}

impl From<ClusterReason> for Reason {
    fn from(reason: ClusterReason) -> Self {
        Self(reason.as_str())
    }
}
