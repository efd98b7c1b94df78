use chandler_api::extensions::{OnFailure, Remediation};

use super::*;
use crate::{
    digest::InputDigest,
    failure::{Category, Failure},
    release::{
        InputState, PastFailure, RequestedRollback, Strategy, failure_key,
        fixtures::{at, digest, revision, stable},
    },
};

const GENERATION: Option<i64> = Some(3);
const RELEASE: &str = "default/hello";

fn observed<'a>(inputs: &'a InputDigest, newest: Option<&'a RevisionState>) -> Observed<'a> {
    Observed { described: None, absence_confirmed: false, ..stable(inputs, newest) }
}

#[test]
fn the_newest_revision_decides_about_the_action() {
    use ChangeAction::{Install, Unchanged, Upgrade};
    use ReleaseStatus as S;
    let inputs = digest('a');
    // What the newest revision is, whether a revision of another client differs, the action, and whether it is held.
    let rows = [
        ("no release", None, false, Install, false),
        ("uninstalled, with history", Some(revision(S::Uninstalled, Some('a'))), false, Install, false),
        ("uninstalled by another client", Some(revision(S::Uninstalling, Some('a'))), false, Install, true),
        ("up to date", Some(revision(S::Deployed, Some('a'))), false, Unchanged, false),
        ("other inputs", Some(revision(S::Deployed, Some('b'))), false, Upgrade, false),
        ("failed", Some(revision(S::Failed, Some('a'))), false, Upgrade, false),
        ("interrupted", Some(revision(S::PendingUpgrade, Some('a'))), false, Upgrade, false),
        ("another client, the same", Some(revision(S::Deployed, None)), false, Unchanged, false),
        ("another client, other", Some(revision(S::Deployed, None)), true, Upgrade, false),
        ("another client, running", Some(revision(S::PendingUpgrade, None)), false, Upgrade, true),
    ];
    for (what, newest, differs, action, held) in rows {
        let observed = Observed { differs: differs.then_some(4), ..observed(&inputs, newest.as_ref()) };
        let next = next_operation(&observed, GENERATION, RELEASE);
        assert_eq!((next.action, next.held.is_some()), (action, held), "{what}: {next:?}");
    }
}

#[test]
fn what_holds_an_operation_is_shown_with_the_action() {
    let inputs = digest('a');
    let other = revision(ReleaseStatus::Deployed, Some('b'));
    let restored = RevisionState { rolled_back: Some(digest('a')), ..other.clone() };
    let taken = Collision::Taken { by: "HelmReleaseProxy fleet/other".to_owned(), deleting: false };
    let unmet = ["HelmChartProxy cni".to_owned()];
    let key = failure_key::apply(GENERATION, &inputs);
    let failure = PastFailure {
        attempted: key.clone(),
        crashed: key.clone(),
        key,
        failure: Failure::new(Category::InvalidValues, "no such field"),
        retry_at: at(2_000),
        at: at(1_005),
        attempts: 3,
        crashes: 0,
    };
    let exhausted = |on_failure| Some(Remediation { retries: 2, on_failure });
    let requested = RequestedRollback::of_aborted_rollout(2);
    let base = || observed(&inputs, Some(&other));
    let rows = [
        ("nothing", base(), None),
        ("paused", Observed { paused: true, ..base() }, Some("paused")),
        ("placement paused", Observed { placement_paused: true, ..base() }, Some("paused")),
        ("suspended", Observed { suspended: true, ..base() }, Some("chandler resume")),
        (
            "no policy",
            Observed { policy_missing: Some("AddonPolicy a/b"), ..base() },
            Some("AddonPolicy a/b does not exist"),
        ),
        (
            "collision",
            Observed { collision: &taken, ..base() },
            Some("belongs to HelmReleaseProxy fleet/other"),
        ),
        ("dependencies", Observed { unmet: &unmet, ..base() }, Some("waiting for HelmChartProxy cni")),
        ("backoff", Observed { failure: Some(&failure), ..base() }, Some("next retry at")),
        (
            "no more retries",
            Observed { failure: Some(&failure), remediation: exhausted(OnFailure::Keep), ..base() },
            Some("no more retries"),
        ),
        ("rolled back", observed(&inputs, Some(&restored)), Some("was rolled back")),
        (
            "aborted rollout",
            Observed { requested_rollback: Some(&requested), rollback_to: Some(2), ..base() },
            Some("revision 2 would be restored"),
        ),
    ];
    for (what, observed, expected) in rows {
        let next = next_operation(&observed, GENERATION, RELEASE);
        assert_eq!(next.action, ChangeAction::Upgrade, "{what}");
        let is_expected = match (&next.held, expected) {
            (Some(held), Some(expected)) => held.contains(expected),
            (held, expected) => held.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{what}: {next:?}");
        // Nothing is held if nothing would change. Only that the release belongs to another object is still said.
        let same = revision(ReleaseStatus::Deployed, Some('a'));
        let same = Observed {
            inventory: InventoryState::Known(Some(&same)),
            requested_rollback: None,
            ..observed.clone()
        };
        let next = next_operation(&same, GENERATION, RELEASE);
        assert_eq!((next.action, &next.held), (ChangeAction::Unchanged, &None), "{what}, and up to date");
        assert_eq!(next.note.is_some(), what == "collision", "{what}, and up to date");
    }
}

#[test]
fn a_requested_rollback_changes_a_release_that_is_up_to_date() {
    let (inputs, same) = (digest('a'), revision(ReleaseStatus::Deployed, Some('a')));
    let requested = RequestedRollback::of_aborted_rollout(2);
    let observed = Observed {
        requested_rollback: Some(&requested),
        rollback_to: Some(2),
        ..observed(&inputs, Some(&same))
    };
    let next = next_operation(&observed, GENERATION, RELEASE);
    assert_eq!(next.action, ChangeAction::Upgrade);
    assert!(next.note.is_some_and(|note| note.contains("revision 2")));
}

#[test]
fn a_cluster_that_is_not_available_is_never_read() {
    use ChangeAction::{Install, Unchanged};
    let inputs = digest('a');
    let taken = Collision::Taken { by: "other".to_owned(), deleting: false };
    let base = |cluster| Observed {
        cluster,
        inventory: InventoryState::Loading,
        inputs: InputState::Unresolved,
        ..observed(&inputs, None)
    };
    let new = ClusterState::ControlPlaneNotInitialized;
    let unmet = ["cni".to_owned()];
    let rows = [
        (base(ClusterState::Missing), Unchanged, false),
        (base(ClusterState::Deleting), Unchanged, false),
        (base(new), Install, false),
        (Observed { suspended: true, ..base(new) }, Install, true),
        (Observed { paused: true, ..base(new) }, Install, true),
        (Observed { collision: &taken, ..base(new) }, Install, true),
        (Observed { unmet: &unmet, ..base(new) }, Install, true),
    ];
    for (observed, action, held) in rows {
        let next = next_operation(&observed, GENERATION, RELEASE);
        assert_eq!((next.action, next.held.is_some()), (action, held), "{next:?}");
        assert!(next.note.is_some(), "{next:?}");
    }
}

#[test]
fn removals_do_what_the_manager_does() {
    use RemovalEffect::{Leave, Uninstall, Unknown};
    use RemoveFinalizer::{ClusterGone, InstallOnce, Moved, Orphaned, Removed, Taken};
    let inputs = digest('a');
    let deployed = revision(ReleaseStatus::Deployed, Some('a'));
    let base = || observed(&inputs, Some(&deployed));
    let taken = |deleting| Collision::Taken { by: "other".to_owned(), deleting };
    let (alive, deleting) = (taken(false), taken(true));
    let contested = Collision::Contested { by: "other".to_owned() };
    let needed = ["HelmChartProxy web".to_owned()];
    let rows = [
        ("installed", base(), Uninstall, false),
        ("not read", Observed { inventory: InventoryState::Loading, ..base() }, Unknown, false),
        (
            "not installed",
            Observed { inventory: InventoryState::Known(None), ..base() },
            Leave(Removed),
            false,
        ),
        ("orphaned", Observed { orphan: true, ..base() }, Leave(Orphaned), false),
        ("moved", Observed { moved: true, ..base() }, Leave(Moved), false),
        ("installed once", Observed { strategy: Strategy::InstallOnce, ..base() }, Leave(InstallOnce), false),
        ("taken over", Observed { collision: &alive, ..base() }, Leave(Taken), false),
        ("contested", Observed { collision: &contested, ..base() }, Leave(Taken), false),
        ("older one is deleted, too", Observed { collision: &deleting, ..base() }, Uninstall, true),
        ("no Cluster", Observed { cluster: ClusterState::Missing, ..base() }, Leave(ClusterGone), false),
        (
            "Cluster deleted",
            Observed { cluster: ClusterState::Deleting, ..base() },
            Leave(ClusterGone),
            false,
        ),
        ("paused", Observed { paused: true, ..base() }, Uninstall, true),
        ("suspended", Observed { suspended: true, ..base() }, Uninstall, true),
        ("needed", Observed { needed_by: &needed, ..base() }, Uninstall, true),
        // A paused placement does not hold removals.
        ("placement paused", Observed { placement_paused: true, ..base() }, Uninstall, false),
    ];
    for (what, observed, effect, held) in rows {
        let next = next_removal(&observed, RELEASE);
        assert_eq!((next.effect, next.held.is_some()), (effect, held), "{what}: {next:?}");
        assert_eq!(next.effect.note().is_some(), matches!(effect, Leave(_)), "{what}");
    }
}
