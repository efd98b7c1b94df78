//! Compares the objects of a release with its package, and runs the tests of the package.

use std::time::Duration;

use chandler_api::{extensions::DriftMode, status::ObjectRecord};
use chandler_core::{
    drift::{DriftRules, Snapshot},
    release::{Desired, Operation, ReleaseKind},
};
use chandler_tool::{CompareOrder, OperationFailure, TestOrder};

use super::{Done, Run, Work, not_begun};
use crate::release::PlacementState;

/// Time limit of a comparison.
const COMPARE_TIMEOUT: Duration = Duration::from_mins(2);

/// The objects to compare, and what was seen of all objects when the comparison was planned.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub snapshot: Snapshot,
    pub objects: Vec<ObjectRecord>,
}

impl<R: ReleaseKind> Work<R> {
    /// Returns whether the policy still wants a comparison or tests. Other operations do not depend on it.
    pub(super) fn is_still_wanted(&self, placement: &PlacementState, desired: &Desired) -> bool {
        match (&self.start.operation, &self.start.comparison) {
            (Operation::Compare, Some(Comparison { snapshot, .. })) => {
                let policy = placement.policy.effective().drift.clone();
                let rules = DriftRules { policy, conflicts: desired.execution.conflicts };
                snapshot.scope.rules == rules
            }
            (Operation::Compare, None) => false,
            (Operation::Test { .. }, _) => placement.policy.effective().test.is_some(),
            _ => true,
        }
    }

    pub(super) async fn compare(&self, run: Run<'_>) -> Result<Done, OperationFailure> {
        let comparison = self.start.comparison.clone().ok_or_else(not_begun)?;
        let target = self.target(&run.boundary)?;
        self.context.metrics.tool_call("compare");
        let scope = &comparison.snapshot.scope;
        let order = CompareOrder {
            operation_id: run.operation_id,
            target,
            release: self.release.clone(),
            revision: scope.revision,
            objects: comparison.objects.clone(),
            correct: scope.rules.policy.mode == DriftMode::Correct,
            ignore: scope.rules.policy.ignore.clone(),
            conflicts: scope.rules.conflicts,
            timeout: COMPARE_TIMEOUT,
        };
        let results = run.process.compare(order, &run.handle.cancel, |step| run.handle.step(step)).await?;
        Ok(Done::Compared { comparison, results })
    }

    pub(super) async fn test(&self, run: Run<'_>, desired: Desired) -> Result<Done, OperationFailure> {
        let revision = self.start.revision.ok_or_else(not_begun)?;
        let target = self.target(&run.boundary)?;
        self.context.metrics.tool_call("test");
        let order = TestOrder {
            operation_id: run.operation_id,
            target,
            release: self.release.clone(),
            revision,
            timeout: desired.execution.timeout,
            logs: self.start.logs,
        };
        // The tests may take long, and need the values no more.
        drop(desired);
        let tests = run.process.test(order, &run.handle.cancel, |step| run.handle.step(step)).await?;
        Ok(Done::Tested { revision, tests })
    }
}
