//! What tests of plans observe.

use super::*;
use crate::digest::InputMark;

pub fn digest(letter: char) -> InputDigest {
    InputDigest::parse(&letter.to_string().repeat(40)).unwrap()
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub fn revision(status: ReleaseStatus, mark: Option<char>) -> RevisionState {
    RevisionState {
        revision: 4,
        status,
        mark: mark.map(|letter| InputMark { digest: digest(letter), revision: 4 }),
        rolled_back: None,
        updated: Some(at(1_000)),
    }
}

/// A reachable cluster, resolved inputs, and no operation in flight.
pub fn stable<'a>(inputs: &'a InputDigest, inventory: Option<&'a RevisionState>) -> Observed<'a> {
    Observed {
        deleting: false,
        moved: false,
        paused: false,
        placement_paused: false,
        placement_changing: false,
        suspended: false,
        policy_missing: None,
        refused: None,
        remediation: None,
        retry_at: None,
        cluster: ClusterState::Available,
        strategy: Strategy::Continuous,
        collision: &Collision::None,
        unmet: &[],
        needed_by: &[],
        remove_with_cluster: false,
        orphan: false,
        installed_before: true,
        inventory: InventoryState::Known(inventory),
        unchanged_since: Some(at(1_000)),
        timeout: Duration::from_mins(10),
        inputs: InputState::Resolved(inputs),
        operation: None,
        described: Some(4),
        differs: None,
        rollback_to: None,
        requested_rollback: None,
        compare: false,
        comparison_is_outdated: false,
        tests: TestNeed::None,
        absence_confirmed: true,
        failure: None,
        now: at(1_010),
    }
}
