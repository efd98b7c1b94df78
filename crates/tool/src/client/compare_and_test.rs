//! Comparisons of releases with their records, and their tests.

use chandler_api::extensions::DriftIgnore;
use chandler_core::{
    drift::{ComparisonOutcome, ObjectComparison},
    release::PackageTest,
};
use tokio_util::sync::CancellationToken;

use super::{GRACE, OperationFailure, StepReport, broken, checked, client, follow, traced};
use crate::{
    convert,
    generated::tool::{self as proto, operation_result::Outcome},
    order::{CompareOrder, TestOrder},
    supervisor::ProcessGuard,
};

impl ProcessGuard {
    /// Compares the objects of a release with those that its newest revision records, and corrects them if requested. When
    /// `cancel` fires, returns after the tool has stopped touching the cluster.
    pub async fn compare(
        &self,
        order: CompareOrder,
        cancel: &CancellationToken,
        on_step: impl FnMut(StepReport),
    ) -> Result<Vec<ObjectComparison>, OperationFailure> {
        let (id, limit) = (order.operation_id.clone(), order.timeout.saturating_add(GRACE));
        let mut client = client(self);
        let opened = checked(self, client.compare(traced(compare_request(order))).await).await?;
        let result = follow(self, opened, &id, limit, cancel, on_step).await?;
        match result.outcome {
            Some(Outcome::Comparison(comparison)) => {
                Ok(comparison.objects.into_iter().map(comparison_of).collect())
            }
            _ => Err(broken("Compare").into()),
        }
    }

    /// Runs the tests of a release. Tests that have failed are no failure of the operation; an empty result means that the
    /// release has no tests. When `cancel` fires, returns after the tool has stopped touching the cluster.
    pub async fn test(
        &self,
        order: TestOrder,
        cancel: &CancellationToken,
        on_step: impl FnMut(StepReport),
    ) -> Result<Vec<PackageTest>, OperationFailure> {
        let (id, limit) = (order.operation_id.clone(), order.timeout.saturating_add(GRACE));
        let mut client = client(self);
        let opened = checked(self, client.test(traced(test_request(order))).await).await?;
        let result = follow(self, opened, &id, limit, cancel, on_step).await?;
        match result.outcome {
            Some(Outcome::Tests(report)) => Ok(report.tests.into_iter().map(test_result).collect()),
            _ => Err(broken("Test").into()),
        }
    }
}

fn compare_request(order: CompareOrder) -> proto::CompareRequest {
    let CompareOrder {
        operation_id,
        target,
        release,
        revision,
        objects,
        correct,
        ignore,
        conflicts,
        timeout,
    } = order;
    proto::CompareRequest {
        operation_id,
        target: Some(convert::target(&target)),
        release: Some(convert::release(&release)),
        revision,
        objects: objects.into_iter().map(convert::object_ref).collect(),
        correct,
        ignore: ignore.into_iter().map(ignore_rule).collect(),
        field_conflicts: convert::field_conflicts(conflicts).into(),
        timeout: convert::duration(timeout),
    }
}

fn ignore_rule(DriftIgnore { target, paths }: DriftIgnore) -> proto::IgnoreRule {
    let target = target.unwrap_or_default();
    proto::IgnoreRule {
        kind: target.kind.unwrap_or_default(),
        name: target.name.unwrap_or_default(),
        namespace: target.namespace.unwrap_or_default(),
        paths,
    }
}

fn test_request(order: TestOrder) -> proto::TestRequest {
    let TestOrder { operation_id, target, release, revision, timeout, logs } = order;
    proto::TestRequest {
        operation_id,
        target: Some(convert::target(&target)),
        release: Some(convert::release(&release)),
        revision,
        timeout: convert::duration(timeout),
        logs,
    }
}

fn comparison_of(comparison: proto::ObjectComparison) -> ObjectComparison {
    let outcome = comparison_outcome(comparison.outcome());
    ObjectComparison {
        object: convert::object(comparison.object.unwrap_or_default()),
        outcome,
        paths: comparison.paths,
        reason: comparison.reason,
    }
}

fn comparison_outcome(outcome: proto::ComparisonOutcome) -> ComparisonOutcome {
    use proto::ComparisonOutcome as O;
    match outcome {
        O::InSync => ComparisonOutcome::InSync,
        O::Drifted => ComparisonOutcome::Drifted,
        O::Missing => ComparisonOutcome::Missing,
        O::Corrected => ComparisonOutcome::Corrected,
        O::Unknown | O::Unspecified => ComparisonOutcome::Unknown,
        O::Ignored => ComparisonOutcome::Ignored,
    }
}

fn test_result(result: proto::TestResult) -> PackageTest {
    let proto::TestResult { name, passed, message, log_tail } = result;
    PackageTest { name, passed, message, log_tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_is_not_known_says_nothing_about_the_object() {
        let read = |outcome| comparison_of(proto::ObjectComparison { outcome, ..Default::default() }).outcome;
        assert_eq!(read(proto::ComparisonOutcome::InSync.into()), ComparisonOutcome::InSync);
        assert_eq!(read(0), ComparisonOutcome::Unknown);
        assert_eq!(read(1000), ComparisonOutcome::Unknown, "a newer tool");
    }

    #[test]
    fn a_rule_without_a_target_is_for_all_objects() {
        let rule = DriftIgnore { target: None, paths: vec!["/spec/replicas".to_owned()] };
        let message = ignore_rule(rule);
        assert_eq!((message.kind.as_str(), message.name.as_str(), message.namespace.as_str()), ("", "", ""));
        assert_eq!(message.paths, ["/spec/replicas"]);
    }
}
