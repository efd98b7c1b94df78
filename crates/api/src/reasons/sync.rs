use super::Reason;
use crate::failure::Category;

/// The reason of a condition of a Sync: `Ready`, `PruneHeld` or `Moving`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncReason {
    /// `Ready`: the revision is applied.
    Applied,
    /// `Ready`: the objects are being applied or deleted.
    Progressing,
    /// `Ready`: `spec.suspend` is set.
    Suspended,
    /// `Ready`: a Sync in `dependsOn` is not ready.
    WaitingForDependencies,
    /// `Ready`: a paused Cluster is not written, everything else is applied.
    ClusterPaused,
    /// `Ready` and `Moving`: an object is being moved to another management cluster.
    Moving,
    /// `Ready` and `Moving`: a Cluster that the Sync has written does not exist any more.
    ClusterMissing,
    NotMoving,
    /// `PruneHeld`: the guard keeps objects that are no longer in the folder.
    Held,
    NothingHeld,
    /// `PruneHeld`: objects are no longer in the folder, and `prune.enabled` is not set.
    PruneDisabled,
    /// `Ready`: the revision could not be read, rendered or applied.
    Failed(Category),
}

impl SyncReason {
    const OWN: [Self; 11] = [
        Self::Applied,
        Self::Progressing,
        Self::Suspended,
        Self::WaitingForDependencies,
        Self::ClusterPaused,
        Self::Moving,
        Self::ClusterMissing,
        Self::NotMoving,
        Self::Held,
        Self::NothingHeld,
        Self::PruneDisabled,
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::OWN.into_iter().chain(Category::ALL.iter().copied().map(Self::Failed))
    }
}

impl From<SyncReason> for Reason {
    fn from(reason: SyncReason) -> Self {
        Self(match reason {
            SyncReason::Applied => "Applied",
            SyncReason::Progressing => "Progressing",
            SyncReason::Suspended => "Suspended",
            SyncReason::WaitingForDependencies => "WaitingForDependencies",
            SyncReason::ClusterPaused => "ClusterPaused",
            SyncReason::Moving => "Moving",
            SyncReason::ClusterMissing => "ClusterMissing",
            SyncReason::NotMoving => "NotMoving",
            SyncReason::Held => "Held",
            SyncReason::NothingHeld => "NothingHeld",
            SyncReason::PruneDisabled => "PruneDisabled",
            SyncReason::Failed(category) => category.as_str(),
        })
    }
}
