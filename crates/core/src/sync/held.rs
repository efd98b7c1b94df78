//! Why objects that are no longer in the directory of their Sync are kept.

use chandler_api::extensions::{HeldObject, SyncedObject};

use super::others::OtherSync;

/// Why an object that is no longer in the directory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldReason {
    PruneDisabled,
    /// The Sync itself, its Source, its ServiceAccount, or what contains them.
    OwnObject,
    /// A kind whose objects are deleted only if `prune.confirm` names them.
    ProtectedKind,
    /// A placement, or an object that placements refer to. It is deleted only if
    /// `prune.deletePlacements` is set or `prune.confirm` names it.
    ProtectedPlacement,
    TooManyDeletions,
    /// The Sync names another Source or directory than before.
    SourceChanged,
    /// The revision was applied before: the branch was reset, or the Source names an older revision.
    RevisionAppliedBefore,
    ClusterPaused,
    /// The API server does not serve the kind, so the object cannot be read.
    KindNotServed,
    /// The directory of another Sync contains the object, and that Sync has not taken it over yet.
    WantedBySync,
    /// The directory of another Sync may contain the object, but cannot be rendered.
    SyncNotRendered,
}

impl HeldReason {
    pub(super) const ALL: [Self; 11] = [
        Self::PruneDisabled,
        Self::OwnObject,
        Self::ProtectedKind,
        Self::ProtectedPlacement,
        Self::TooManyDeletions,
        Self::SourceChanged,
        Self::RevisionAppliedBefore,
        Self::ClusterPaused,
        Self::KindNotServed,
        Self::WantedBySync,
        Self::SyncNotRendered,
    ];

    /// Returns the reason as `status.held` stores it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PruneDisabled => "PruneDisabled",
            Self::OwnObject => "OwnObject",
            Self::ProtectedKind => "ProtectedKind",
            Self::ProtectedPlacement => "ProtectedPlacement",
            Self::TooManyDeletions => "TooManyDeletions",
            Self::SourceChanged => "SourceChanged",
            Self::RevisionAppliedBefore => "RevisionAppliedBefore",
            Self::ClusterPaused => "ClusterPaused",
            Self::KindNotServed => "KindNotServed",
            Self::WantedBySync => "WantedBySync",
            Self::SyncNotRendered => "SyncNotRendered",
        }
    }

    /// Returns whether an object stays held until it is confirmed or in the directory again, even if
    /// the cause is gone: the cause was an event, and the next reconcile would not see it.
    pub(super) fn is_sticky(self) -> bool {
        matches!(self, Self::TooManyDeletions | Self::SourceChanged | Self::RevisionAppliedBefore)
    }

    /// Returns whether the guard has counted an object with this reason as removed.
    pub(super) fn is_counted(self) -> bool {
        !matches!(self, Self::PruneDisabled | Self::WantedBySync | Self::SyncNotRendered)
    }

    /// Returns whether the reason may end without an event of the Sync that holds the object, so
    /// that a new process has to check it.
    pub(super) fn depends_on_others(reason: &str) -> bool {
        [Self::ClusterPaused, Self::WantedBySync, Self::SyncNotRendered]
            .iter()
            .any(|one| one.as_str() == reason)
    }
}

/// An object that is kept, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub object: SyncedObject,
    pub reason: HeldReason,
    /// The Sync that the object is kept for.
    pub kept_for: Option<OtherSync>,
}

impl Held {
    pub fn new(object: SyncedObject, reason: HeldReason) -> Self {
        Self { object, reason, kept_for: None }
    }
}

impl From<&Held> for HeldObject {
    fn from(held: &Held) -> Self {
        let SyncedObject { api_version, kind, namespace, name, uid: _ } = held.object.clone();
        let (sync, message) =
            held.kept_for.as_ref().map(|other| (other.sync.clone(), other.message())).unzip();
        Self {
            api_version,
            kind,
            namespace,
            name,
            reason: held.reason.as_str().to_owned(),
            sync: sync.unwrap_or_default(),
            message: message.unwrap_or_default(),
        }
    }
}
