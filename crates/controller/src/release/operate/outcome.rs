//! How an operation has ended.

use chandler_core::{
    digest::InputDigest,
    drift::{ComparisonOutcome, ComparisonScope, ObjectComparison},
    failure::Category,
    identity::ToolId,
    release::{ApplyKind, OperationKind, PackageTest},
};
use chandler_tool::{Applied, OperationFailure, ReleaseDetails};

use super::Comparison;
use crate::operations::OperationOutcome;

/// The outcome of an operation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The key under which a failure is recorded: see [`failure_key`](chandler_core::release::failure_key).
    pub key: String,
    pub tool: ToolId,
    /// Whether the manager has canceled the operation, or did not begin it.
    pub canceled: bool,
    pub kind: OperationKind,
    /// What was compared, if it was a comparison.
    pub scope: Option<ComparisonScope>,
    pub result: Result<Done, OperationFailure>,
}

impl OperationOutcome for Outcome {
    fn is_unanswered(&self) -> bool {
        self.result
            .as_ref()
            .is_err_and(|error| matches!(error.failure.category, Category::Unreachable | Category::Timeout))
    }
}

/// The effect of a successful operation.
#[derive(Clone, Debug)]
pub enum Done {
    Applied(ApplyKind, Applied),
    /// The release was deployed with these inputs before, and nothing was changed.
    Unchanged(ReleaseDetails),
    Removed,
    /// An earlier revision was restored, because applying the inputs has `failed`.
    RolledBack {
        applied: Applied,
        failed: InputDigest,
    },
    /// The release was removed, because applying its inputs has failed.
    Uninstalled,
    Compared {
        comparison: Comparison,
        results: Vec<ObjectComparison>,
    },
    /// The tests of a revision have ended. Some of them may have failed.
    Tested {
        revision: u32,
        tests: Vec<PackageTest>,
    },
}

impl Done {
    /// Returns the outcome for metrics and logs.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Unchanged(_) => "unchanged",
            Self::Compared { results, .. } => {
                let has = |outcome| results.iter().any(|result| result.outcome == outcome);
                if has(ComparisonOutcome::Corrected) {
                    "corrected"
                } else if has(ComparisonOutcome::Drifted) || has(ComparisonOutcome::Missing) {
                    "drifted"
                } else {
                    "success"
                }
            }
            Self::Tested { tests, .. } if tests.iter().any(|test| !test.passed) => "failed",
            Self::Applied(..)
            | Self::Removed
            | Self::RolledBack { .. }
            | Self::Uninstalled
            | Self::Tested { .. } => "success",
        }
    }
}
