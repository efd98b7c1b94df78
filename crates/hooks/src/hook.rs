//! The hooks that are served, and how each is registered.

/// API version of the hooks.
pub const API_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";

/// A lifecycle hook of Cluster API that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    BeforeClusterUpgrade,
    BeforeControlPlaneUpgrade,
    AfterControlPlaneUpgrade,
    AfterClusterUpgrade,
    BeforeClusterDelete,
}

/// What Cluster API does if it cannot call a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub enum FailurePolicy {
    /// It proceeds.
    #[default]
    Ignore,
    /// It blocks.
    Fail,
}

impl Hook {
    /// All hooks, in the order in which Cluster API calls them.
    pub const ALL: [Self; 5] = [
        Self::BeforeClusterUpgrade,
        Self::BeforeControlPlaneUpgrade,
        Self::AfterControlPlaneUpgrade,
        Self::AfterClusterUpgrade,
        Self::BeforeClusterDelete,
    ];

    /// Returns the name of the hook in Cluster API.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeClusterUpgrade => "BeforeClusterUpgrade",
            Self::BeforeControlPlaneUpgrade => "BeforeControlPlaneUpgrade",
            Self::AfterControlPlaneUpgrade => "AfterControlPlaneUpgrade",
            Self::AfterClusterUpgrade => "AfterClusterUpgrade",
            Self::BeforeClusterDelete => "BeforeClusterDelete",
        }
    }

    /// Returns the name of the handler, which is a DNS label.
    pub(crate) fn handler(self) -> &'static str {
        match self {
            Self::BeforeClusterUpgrade => "before-cluster-upgrade",
            Self::BeforeControlPlaneUpgrade => "before-control-plane-upgrade",
            Self::AfterControlPlaneUpgrade => "after-control-plane-upgrade",
            Self::AfterClusterUpgrade => "after-cluster-upgrade",
            Self::BeforeClusterDelete => "before-cluster-delete",
        }
    }

    /// Returns the path of the handler.
    pub(crate) fn path(self) -> String {
        format!("/{API_VERSION}/{}/{}", self.name().to_lowercase(), self.handler())
    }

    /// Returns the failure policy of the hook. Only the hooks that run before an upgrade or a deletion can block it while
    /// Chandler is unavailable.
    pub(crate) fn failure_policy(self, before: FailurePolicy) -> FailurePolicy {
        match self {
            Self::BeforeClusterUpgrade | Self::BeforeControlPlaneUpgrade | Self::BeforeClusterDelete => {
                before
            }
            Self::AfterControlPlaneUpgrade | Self::AfterClusterUpgrade => FailurePolicy::Ignore,
        }
    }
}
