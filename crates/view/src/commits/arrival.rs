//! Whether a commit has arrived at a release.

use chandler_api::reasons::PlacementReason;
use serde::Serialize;

use super::Order;
use crate::fleet::{PackageFolder, Placement, State};

/// Whether a commit has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Arrival {
    /// The package was made at this commit, and the release is ready.
    Current,
    /// The commit does not change the package, and the release is ready.
    Unchanged,
    /// The package was made at a later revision, and the release is ready.
    Later,
    /// The package of the commit, or of a later revision, is being applied.
    Updating,
    /// The commit has not reached it yet.
    Pending,
    /// The package of the commit, or of a later revision, cannot be made or applied. The last good one is still used.
    Failed,
    /// Neither the commit nor the revision of the release is among the last ten of the Source.
    Unknown,
}

impl Arrival {
    pub const ALL: [Self; 7] = [
        Self::Current,
        Self::Unchanged,
        Self::Later,
        Self::Updating,
        Self::Pending,
        Self::Failed,
        Self::Unknown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::Unchanged => "Unchanged",
            Self::Later => "Later",
            Self::Updating => "Updating",
            Self::Pending => "Pending",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns whether the place has the commit.
    pub fn has_arrived(self) -> bool {
        matches!(self, Self::Current | Self::Unchanged | Self::Later)
    }

    /// Returns `arrived` if a release is ready.
    pub fn of_state(state: State, arrived: Self) -> Self {
        match state {
            State::Ready => arrived,
            State::Failed => Self::Failed,
            State::Unreachable | State::Missing | State::Waiting | State::Updating | State::Removing => {
                Self::Updating
            }
        }
    }
}

/// Returns whether the commit changes the package of a release that was made at an earlier revision: `Unchanged`, `Failed`
/// or `Pending`.
pub fn of_cluster(
    placement: &Placement,
    folder: &PackageFolder,
    cluster: &str,
    order: &Order<'_>,
) -> Arrival {
    let Some(progress) = placement.sources.iter().find(|one| one.source_ref == folder.source) else {
        return Arrival::Pending;
    };
    if !progress.revision.as_deref().is_some_and(|revision| order.is_reached(revision)) {
        return Arrival::Pending;
    }
    let listed = &progress.behind_clusters;
    if listed.iter().any(|name| name == cluster) {
        return of_behind(placement);
    }
    let is_complete = usize::try_from(progress.behind).is_ok_and(|behind| behind == listed.len());
    if is_complete { Arrival::Unchanged } else { Arrival::Pending }
}

/// Returns the arrival at a cluster whose release does not have the package of the last revision.
pub fn of_behind(placement: &Placement) -> Arrival {
    if placement.reason().is_some_and(PlacementReason::is_failure) {
        Arrival::Failed
    } else {
        Arrival::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{folder_fleet, folder_release, source};

    #[test]
    fn nothing_is_concluded_from_an_incomplete_list() {
        let source = source("apps", &["c2", "c1"]);
        let order = Order::new(Some(&source), &[], "c2");
        let folder = folder_release("alpha", "c1", "True").folder.unwrap();
        let mut fleet = folder_fleet(&[], "c2", &["bravo"]);
        let placement = &mut fleet.placements[0];
        assert_eq!(of_cluster(placement, &folder, "alpha", &order), Arrival::Unchanged);
        assert_eq!(of_cluster(placement, &folder, "bravo", &order), Arrival::Failed);
        placement.sources[0].behind = 2;
        assert_eq!(of_cluster(placement, &folder, "alpha", &order), Arrival::Pending);
        placement.sources[0].revision = None;
        assert_eq!(of_cluster(placement, &folder, "alpha", &order), Arrival::Pending);
    }
}
