//! Plans for releases that are up to date: comparisons of their objects, and tests.

use chandler_api::extensions::{OnFailure, Remediation};

use super::*;

const COMPARE: Plan = Plan::Operate(OperationKind::Compare);
const TEST: Plan = Plan::Operate(OperationKind::Test);

fn failure() -> Failure {
    Failure::new(Category::NotReady, "Pod default/web-test: exit code 1")
}

#[test]
fn objects_are_compared_only_if_nothing_holds_the_release() {
    let inputs = digest('a');
    let (current, outdated) =
        (revision(ReleaseStatus::Deployed, Some('a')), revision(ReleaseStatus::Deployed, Some('b')));
    let base = || Observed { compare: true, ..stable(&inputs, Some(&current)) };
    let taken = Collision::Taken { by: "AddonRelease a/b".to_owned(), deleting: false };
    let unreachable = Failure::new(Category::Unreachable, "no route");
    let rows = [
        ("suspect", base(), COMPARE),
        ("no suspect", Observed { compare: false, ..base() }, Plan::NoOp),
        ("suspended", Observed { suspended: true, ..base() }, Plan::NoOp),
        ("no policy", Observed { policy_missing: Some("AddonPolicy a/b"), ..base() }, Plan::NoOp),
        ("placement paused", Observed { placement_paused: true, ..base() }, Plan::NoOp),
        ("placement changing", Observed { placement_changing: true, ..base() }, Plan::NoOp),
        ("paused", Observed { paused: true, ..base() }, Plan::Wait(Wait::Paused)),
        ("install once", Observed { strategy: Strategy::InstallOnce, ..base() }, Plan::NoOp),
        (
            "install once, not recorded yet",
            Observed { strategy: Strategy::InstallOnce, installed_before: false, ..base() },
            Plan::NoOp,
        ),
        (
            "taken",
            Observed { collision: &taken, ..base() },
            Plan::Wait(Wait::Taken { by: "AddonRelease a/b".to_owned() }),
        ),
        (
            "unreachable",
            Observed { inventory: InventoryState::Unavailable(&unreachable), ..base() },
            Plan::Wait(Wait::Unavailable(unreachable.clone())),
        ),
        (
            "outdated",
            Observed { inventory: InventoryState::Known(Some(&outdated)), ..base() },
            operate(ApplyKind::Upgrade),
        ),
        ("not described", Observed { described: None, ..base() }, Plan::Describe),
        ("deleting", Observed { deleting: true, ..base() }, Plan::Operate(OperationKind::Remove)),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn tests_run_before_objects_are_compared() {
    let (inputs, current) = (digest('a'), revision(ReleaseStatus::Deployed, Some('a')));
    let base = |tests| Observed { compare: true, tests, ..stable(&inputs, Some(&current)) };
    let suspended = |tests| Observed { suspended: true, ..base(tests) };
    let rows = [
        ("required", base(TestNeed::Required), TEST),
        ("optional", base(TestNeed::Optional), TEST),
        ("failed", base(TestNeed::Failed), TEST),
        ("ended", base(TestNeed::None), COMPARE),
        ("suspended, required", suspended(TestNeed::Required), Plan::Wait(Wait::Suspended)),
        ("suspended, optional", suspended(TestNeed::Optional), Plan::NoOp),
        ("suspended, failed", suspended(TestNeed::Failed), Plan::Wait(Wait::Suspended)),
    ];
    for (name, observed, expected) in rows {
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
    }
}

#[test]
fn a_failed_test_counts_like_a_failed_operation() {
    use OnFailure::{Keep, Rollback, Uninstall};
    let (inputs, current) = (digest('a'), revision(ReleaseStatus::Deployed, Some('a')));
    let policy = |on_failure| Some(Remediation { retries: 2, on_failure });
    let exhausted = || Plan::Wait(Wait::Exhausted { failure: failure() });
    let [rollback, uninstall] = [OperationKind::Rollback, OperationKind::UninstallFailed].map(Plan::Operate);
    let backoff = || Plan::Wait(Wait::Backoff { step: Step::Apply, failure: failure(), until: at(2_000) });
    // Remediation, attempts, when the next one is due, what a rollback restores.
    let rows = [
        ("retry", None, 9, 1_010, None, TEST),
        ("backoff", None, 9, 2_000, None, backoff()),
        ("one retry is left", policy(Rollback), 2, 1_010, Some(3), TEST),
        ("keep", policy(Keep), 3, 1_010, Some(3), exhausted()),
        ("roll back", policy(Rollback), 3, 2_000, Some(3), rollback),
        ("roll back to nothing", policy(Rollback), 3, 1_010, None, exhausted()),
        ("uninstall", policy(Uninstall), 3, 1_010, Some(3), uninstall),
    ];
    for (name, remediation, attempts, due, rollback_to, expected) in rows {
        let key = failure_key::apply(GENERATION, &inputs);
        let past = PastFailure { attempts, ..past(key, failure(), due) };
        let observed = Observed {
            tests: TestNeed::Failed,
            remediation,
            failure: Some(&past),
            rollback_to,
            ..stable(&inputs, Some(&current))
        };
        assert_eq!(plan(&observed, GENERATION), expected, "{name}");
        let ignored = Observed { tests: TestNeed::None, ..observed };
        assert_eq!(plan(&ignored, GENERATION), Plan::NoOp, "{name}, ignored");
    }
}

#[test]
fn an_operation_does_not_wait_for_a_comparison_or_tests() {
    let (inputs, other) = (digest('a'), digest('b'));
    let (current, outdated) =
        (revision(ReleaseStatus::Deployed, Some('a')), revision(ReleaseStatus::Deployed, Some('b')));
    let operations = [Operation::Compare, Operation::Test { inputs: &inputs }];
    for operation in operations {
        let kind = operation.kind();
        let in_flight = |phase, newest| Observed {
            operation: Some(InFlight { operation, phase }),
            compare: kind == OperationKind::Compare,
            tests: if kind == OperationKind::Test { TestNeed::Required } else { TestNeed::None },
            ..stable(&inputs, newest)
        };
        let running = |newest| in_flight(OperationPhase::Running, newest);
        let queued = |newest| in_flight(OperationPhase::Queued, newest);
        let operating = Plan::Wait(Wait::Operating(kind));
        let rows = [
            ("running", running(Some(&current)), operating.clone()),
            ("queued", queued(Some(&current)), operating.clone()),
            (
                "nothing is left to compare or test",
                Observed { compare: false, tests: TestNeed::None, ..running(Some(&current)) },
                operating,
            ),
            ("running, outdated", running(Some(&outdated)), Plan::Cancel(kind)),
            ("queued, outdated", queued(Some(&outdated)), Plan::Withdraw),
            (
                "a new spec",
                Observed { inputs: InputState::Unresolved, ..running(Some(&current)) },
                Plan::Resolve,
            ),
            ("deleting", Observed { deleting: true, ..running(Some(&current)) }, Plan::Cancel(kind)),
        ];
        for (name, observed, expected) in rows {
            assert_eq!(plan(&observed, GENERATION), expected, "{kind:?} {name}");
        }
    }
    let queued = InFlight { operation: Operation::Test { inputs: &other }, phase: OperationPhase::Queued };
    let observed =
        Observed { operation: Some(queued), tests: TestNeed::Required, ..stable(&inputs, Some(&current)) };
    assert_eq!(plan(&observed, GENERATION), Plan::Withdraw, "the tests are those of other inputs");
}

#[test]
fn a_comparison_ends_if_nothing_may_be_corrected_any_more() {
    let (inputs, current) = (digest('a'), revision(ReleaseStatus::Deployed, Some('a')));
    let running = |operation| Observed {
        operation: Some(InFlight { operation, phase: OperationPhase::Running }),
        ..stable(&inputs, Some(&current))
    };
    let test = Operation::Test { inputs: &inputs };
    let testing = || Plan::Wait(Wait::Operating(OperationKind::Test));
    let rows: [(_, fn(&mut Observed<'_>), _); 7] = [
        ("paused", |one| one.paused = true, Plan::Wait(Wait::Paused)),
        ("placement paused", |one| one.placement_paused = true, testing()),
        ("placement changing", |one| one.placement_changing = true, testing()),
        ("suspended", |one| one.suspended = true, testing()),
        ("no policy", |one| one.policy_missing = Some("AddonPolicy a/b"), testing()),
        ("another policy", |one| one.comparison_is_outdated = true, testing()),
        ("deleting, suspended", |one| (one.deleting, one.suspended) = (true, true), testing()),
    ];
    for (name, change, during_tests) in rows {
        let [mut comparing, mut testing] = [running(Operation::Compare), running(test)];
        change(&mut comparing);
        change(&mut testing);
        assert_eq!(plan(&comparing, GENERATION), Plan::Cancel(OperationKind::Compare), "{name}");
        assert_eq!(plan(&testing, GENERATION), during_tests, "tests, {name}");
    }
}
