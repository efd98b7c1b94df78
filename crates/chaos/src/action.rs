//! The actions of users and the faults of which a sequence consists.

use std::fmt;

use serde::Serialize;

/// One of the two management clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ManagementCluster {
    A,
    B,
}

impl ManagementCluster {
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// One of the two workload clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Cluster {
    Alpha,
    Bravo,
}

impl Cluster {
    pub const ALL: [Self; 2] = [Self::Alpha, Self::Bravo];

    pub fn name(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Bravo => "bravo",
        }
    }
}

/// A control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum PlaneId {
    Management(ManagementCluster),
    Workload(Cluster),
}

impl PlaneId {
    pub const ALL: [Self; 4] = [
        Self::Management(ManagementCluster::A),
        Self::Management(ManagementCluster::B),
        Self::Workload(Cluster::Alpha),
        Self::Workload(Cluster::Bravo),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Management(ManagementCluster::A) => "management-a",
            Self::Management(ManagementCluster::B) => "management-b",
            Self::Workload(cluster) => cluster.name(),
        }
    }
}

/// A HelmChartProxy or an ExtensionInstance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Placement(pub u8);

impl Placement {
    pub const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    /// Returns the kind of the placement. Every sequence begins with one of each kind.
    pub fn kind(self) -> PlacementKind {
        if self.0.is_multiple_of(2) {
            PlacementKind::HelmChartProxy
        } else {
            PlacementKind::ExtensionInstance
        }
    }

    /// Returns whether its releases have hooks: those of one placement of each kind have.
    pub fn has_hooks(self) -> bool {
        matches!(self, Self(1 | 2))
    }
}

/// The kind of a placement. It determines the kind of its release objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementKind {
    /// Its release objects are HelmReleaseProxies. Its chart has the version that users choose.
    HelmChartProxy,
    /// Its release objects are AddonReleases. Its chart has a version for the Kubernetes version of the cluster.
    ExtensionInstance,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A release of a placement on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReleaseId {
    pub placement: Placement,
    pub cluster: Cluster,
}

impl ReleaseId {
    /// Returns the releases of all placements on all clusters.
    pub fn all() -> impl Iterator<Item = Self> {
        Placement::ALL
            .into_iter()
            .flat_map(|placement| Cluster::ALL.map(|cluster| Self { placement, cluster }))
    }
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.placement, self.cluster.name())
    }
}

/// An action of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum UserAction {
    CreatePlacement(Placement),
    DeletePlacement(Placement),
    /// Changes the values of a placement to a number that was not used before.
    EditValues(Placement, u32),
    /// Changes the version of the chart.
    EditVersion(Placement, ChartVersion),
    PausePlacement(Placement),
    ResumePlacement(Placement),
    PauseCluster(Cluster),
    ResumeCluster(Cluster),
    /// Adds the label with which a placement selects a cluster.
    Select(ReleaseId),
    /// Removes the label with which a placement selects a cluster.
    Deselect(ReleaseId),
    /// Changes an annotation on which the values depend.
    Annotate(Cluster, u32),
    /// Deletes a Cluster and its kubeconfig, and creates them again for the same control plane.
    RecreateCluster(Cluster),
    /// Moves all objects to the other management cluster, with the steps of `clusterctl move`.
    Move,
    /// `helm upgrade` by hand, with another value.
    HelmUpgrade(ReleaseId),
    /// `helm uninstall` by hand.
    HelmUninstall(ReleaseId),
    /// Adds a key to an object of a release. Chandler neither detects nor reverts it.
    EditObject(ReleaseId),
    /// Deletes an object of a release. Chandler does not detect it.
    DeleteObject(ReleaseId),
    /// Replaces the kubeconfig Secret of a cluster by one with other credentials.
    RotateCredentials(Cluster),
    /// Upgrades the control plane of a cluster to the next Kubernetes version.
    UpgradeKubernetes(Cluster),
}

/// The version of the chart that users choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ChartVersion {
    First,
    Second,
}

impl ChartVersion {
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// Returns the minor version of the chart.
    pub fn minor(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// A fault. Delays, resets, held data and suspended processes last until the next [`Action::Heal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Fault {
    /// Everything that is sent to or by an API server is delayed.
    Delay(PlaneId),
    /// Connections to an API server are reset.
    Reset(PlaneId),
    /// What is sent to or by an API server arrives only when the fault has ended.
    Hold(PlaneId),
    /// What is sent on open connections never arrives, new connections work.
    DropConnections(PlaneId),
    /// SIGKILL to a manager; another one is started.
    KillManager(ManagementCluster),
    /// SIGSTOP to a manager.
    SuspendManager(ManagementCluster),
    /// SIGSTOP to a manager; another one is started.
    ReplaceManager(ManagementCluster),
    /// SIGKILL to the Helm driver of a manager.
    KillDriver(ManagementCluster),
    /// SIGSTOP to the Helm driver of a manager.
    SuspendDriver(ManagementCluster),
    /// The API server ends and starts again.
    RestartApiServer(PlaneId),
    /// The API server and etcd end and start again.
    RestartEtcd(PlaneId),
    /// etcd forgets old revisions, and the API server restarts: watches that continue get 410.
    Compact(PlaneId),
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    User(UserAction),
    Fault(Fault),
    /// Ends all faults.
    Heal,
}

/// A pause and an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The number of the step in the sequence that the seed generates.
    pub number: usize,
    pub wait_ms: u64,
    pub action: Action,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>2}. after {:>4} ms: {:?}", self.number, self.wait_ms, self.action)
    }
}
