use super::Reason;
use crate::string_enum::string_enum;

string_enum! {
    /// The reason of a condition of a ClusterTunnel: `Ready`, `Joined`, `Connected` or `KubeconfigProxied`.
    pub enum TunnelReason {
        Ready = "Ready",
        Joined = "Joined",
        /// `Joined`: no agent has got a certificate of the current epoch yet.
        NotJoined = "NotJoined",
        Connected = "Connected",
        NotConnected = "NotConnected",
        Proxied = "Proxied",
        /// `KubeconfigProxied`: the Cluster has no control plane endpoint yet.
        WaitingForEndpoint = "WaitingForEndpoint",
        /// `KubeconfigProxied`: the kubeconfig Secret does not exist yet.
        WaitingForKubeconfig = "WaitingForKubeconfig",
        /// `KubeconfigProxied`: the kubeconfig is left unchanged, the message says why.
        KubeconfigRefused = "KubeconfigRefused",
        /// `Ready`: the Cluster does not exist.
        ClusterMissing = "ClusterMissing",
        /// `Ready`: an older ClusterTunnel has the same id.
        DuplicateId = "DuplicateId",
        /// `Ready`: the Secret with the files of the agent belongs to another object.
        SecretConflict = "SecretConflict",
        /// `Ready`: the Secret with the keys of the tunnels is invalid.
        InvalidKeys = "InvalidKeys",
    }
}

impl From<TunnelReason> for Reason {
    fn from(reason: TunnelReason) -> Self {
        Self(reason.as_str())
    }
}
