//! The hooks that are served, and how each is registered.

/// Group and version of the contract.
pub const API_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";

/// A hook that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    BeforeClusterUpgrade,
    BeforeControlPlaneUpgrade,
    AfterControlPlaneUpgrade,
    AfterClusterUpgrade,
    BeforeClusterDelete,
}

/// What Cluster API does when a hook cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub enum FailurePolicy {
    /// It goes on.
    #[default]
    Ignore,
    /// It does not go on.
    Fail,
}

impl Hook {
    /// In the order in which they are called.
    pub const ALL: [Self; 5] = [
        Self::BeforeClusterUpgrade,
        Self::BeforeControlPlaneUpgrade,
        Self::AfterControlPlaneUpgrade,
        Self::AfterClusterUpgrade,
        Self::BeforeClusterDelete,
    ];

    /// As the contract names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeClusterUpgrade => "BeforeClusterUpgrade",
            Self::BeforeControlPlaneUpgrade => "BeforeControlPlaneUpgrade",
            Self::AfterControlPlaneUpgrade => "AfterControlPlaneUpgrade",
            Self::AfterClusterUpgrade => "AfterClusterUpgrade",
            Self::BeforeClusterDelete => "BeforeClusterDelete",
        }
    }

    /// Our handler of it; a DNS label.
    pub(crate) fn handler(self) -> &'static str {
        match self {
            Self::BeforeClusterUpgrade => "before-cluster-upgrade",
            Self::BeforeControlPlaneUpgrade => "before-control-plane-upgrade",
            Self::AfterControlPlaneUpgrade => "after-control-plane-upgrade",
            Self::AfterClusterUpgrade => "after-cluster-upgrade",
            Self::BeforeClusterDelete => "before-cluster-delete",
        }
    }

    /// Where it is called.
    pub(crate) fn path(self) -> String {
        format!("/{API_VERSION}/{}/{}", self.name().to_lowercase(), self.handler())
    }

    /// Only what could do harm unasked may be held when nobody answers.
    pub(crate) fn failure_policy(self, before_upgrade: FailurePolicy) -> FailurePolicy {
        match self {
            Self::BeforeClusterUpgrade | Self::BeforeControlPlaneUpgrade => before_upgrade,
            Self::AfterControlPlaneUpgrade | Self::AfterClusterUpgrade | Self::BeforeClusterDelete => {
                FailurePolicy::Ignore
            }
        }
    }
}
