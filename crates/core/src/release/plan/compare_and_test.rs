//! Plans for a release that is up to date: its tests, and the comparison of its objects.

use super::{Observed, OperationKind, Plan, Strategy, TestNeed, Wait, hold_operation, plan_presence};

/// Plans for a release that is up to date: its tests have to run, or its objects have to be compared. Neither is done while
/// operations are held; only tests that have to succeed first wait until they are not. A release that is installed once is not
/// compared, even if that it was installed is not recorded yet.
pub(super) fn plan_compare_and_test(observed: &Observed<'_>) -> Plan {
    let is_held = hold_operation(observed).is_some();
    let compares = observed.compare && !is_held && observed.strategy != Strategy::InstallOnce;
    match observed.tests {
        TestNeed::Required | TestNeed::Failed => Plan::Operate(OperationKind::Test),
        TestNeed::Optional if !is_held => Plan::Operate(OperationKind::Test),
        TestNeed::None | TestNeed::Optional if compares => Plan::Operate(OperationKind::Compare),
        TestNeed::None | TestNeed::Optional => Plan::NoOp,
    }
}

/// Plans while objects are compared or tests run: an operation that changes the release does not wait for their end. A
/// comparison may correct objects, so it ends if operations are held or the policy has changed.
pub(super) fn plan_during_compare_or_test(
    observed: &Observed<'_>,
    kind: OperationKind,
    generation: Option<i64>,
) -> Plan {
    let is_stopped = observed.paused || hold_operation(observed).is_some() || observed.comparison_is_outdated;
    if kind == OperationKind::Compare && is_stopped {
        return Plan::Cancel(kind);
    }
    match plan_presence(&Observed { operation: None, ..observed.clone() }, generation) {
        Plan::NoOp => Plan::Wait(Wait::Operating(kind)),
        Plan::Operate(next) if next.creates_no_revision() => Plan::Wait(Wait::Operating(kind)),
        Plan::Operate(_) | Plan::Adopt { .. } | Plan::Describe => Plan::Cancel(kind),
        next => next,
    }
}
