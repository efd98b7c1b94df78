//! The conditions `Drifted` and `Tested` of a release object. Ready does not depend on `Drifted`. With `onFailure: Fail`, it
//! waits for the tests, whose failure is one of the release.

use chandler_api::{
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::{DRIFTED, TESTED},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    conditions::{self, NewCondition, Status},
    drift::DriftReport,
    release::TestReport,
};

/// Returns the condition `Drifted`. While nothing new is known, the old one is kept; without an old one, there is none.
pub(super) fn drift_condition(
    vocabulary: ReleaseVocabulary,
    old: &[Condition],
    drift: &DriftReport,
) -> Option<NewCondition> {
    let (status, reason, message) = match drift {
        DriftReport::InSync => (Status::False, ReleaseReason::InSync, String::new()),
        DriftReport::Drifted(message) => (Status::True, ReleaseReason::Drifted, message.clone()),
        DriftReport::Unknown(message) => (Status::Unknown, ReleaseReason::DriftUnknown, message.clone()),
        DriftReport::Unchanged => {
            let old = conditions::find(old, DRIFTED)?;
            let (status, reason) = match old.status.as_str() {
                "False" => (Status::False, ReleaseReason::InSync),
                "True" => (Status::True, ReleaseReason::Drifted),
                _ => (Status::Unknown, ReleaseReason::DriftUnknown),
            };
            (status, reason, old.message.clone())
        }
    };
    Some(NewCondition { type_: DRIFTED, status, reason: reason.in_vocabulary(vocabulary), message })
}

/// Returns the condition `Tested`.
pub(super) fn test_condition(vocabulary: ReleaseVocabulary, test: &TestReport) -> NewCondition {
    let (status, reason, message) = match test {
        TestReport::Succeeded(message) => (Status::True, ReleaseReason::TestsSucceeded, message),
        TestReport::Failed(message) => (Status::False, ReleaseReason::TestsFailed, message),
        TestReport::Unknown(message) => (Status::Unknown, ReleaseReason::TestsUnknown, message),
    };
    let reason = reason.in_vocabulary(vocabulary);
    NewCondition { type_: TESTED, status, reason, message: message.clone() }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::{TestFailure, TestPolicy};
    use jiff::Timestamp;

    use super::*;
    use crate::{
        failure::{Category, Failure},
        policy::{PolicyState, ReleasePolicy},
        release::{Findings, OperationKind, Plan, Report, Wait, report},
    };

    fn reported(plan: &Plan, old: &[Condition], findings: Findings<'_>, policy: &PolicyState) -> Report {
        let vocabulary = ReleaseVocabulary::AddonRelease;
        report(plan, vocabulary, "default/hello", None, old, findings, policy).unwrap()
    }

    fn find<'a>(report: &'a Report, type_: &str) -> Option<(Status, &'static str, &'a str)> {
        let condition = report.conditions.iter().find(|condition| condition.type_ == type_)?;
        Some((condition.status, condition.reason.as_str(), condition.message.as_str()))
    }

    fn stored(report: Report) -> Vec<Condition> {
        conditions::merge(&[], report.conditions, Some(1), Timestamp::UNIX_EPOCH)
    }

    fn with_drift(drift: &DriftReport) -> Findings<'_> {
        Findings { drift: Some(drift), ..Findings::default() }
    }

    #[test]
    fn drift_does_not_change_ready() {
        let text = || "ConfigMap a/b is missing".to_owned();
        let rows = [
            (DriftReport::Unchanged, None),
            (DriftReport::InSync, Some((Status::False, "InSync", ""))),
            (DriftReport::Drifted(text()), Some((Status::True, "Drifted", "ConfigMap a/b is missing"))),
            (
                DriftReport::Unknown(text()),
                Some((Status::Unknown, "DriftUnknown", "ConfigMap a/b is missing")),
            ),
        ];
        for (drift, expected) in rows {
            let first = reported(&Plan::NoOp, &[], with_drift(&drift), &PolicyState::None);
            assert_eq!(find(&first, DRIFTED), expected, "{drift:?}");
            assert_eq!(find(&first, "Ready"), Some((Status::True, "Ready", "")));
            let old = stored(first);
            let failure = Failure::new(Category::Unreachable, "no route");
            let unreachable = Plan::Wait(Wait::Unavailable(failure));
            let kept = reported(&unreachable, &old, with_drift(&DriftReport::Unchanged), &PolicyState::None);
            assert_eq!(find(&kept, DRIFTED), expected, "{drift:?}");
            let off = reported(&Plan::NoOp, &old, Findings::default(), &PolicyState::None);
            assert_eq!(find(&off, DRIFTED), None, "the policy does not compare any more");
        }
    }

    #[test]
    fn only_tests_that_have_to_succeed_change_ready() {
        let policy = |on_failure| {
            let test = Some(TestPolicy { on_failure, ..TestPolicy::default() });
            PolicyState::Known {
                policy: ReleasePolicy { test, ..ReleasePolicy::default() }.into(),
                conflict: None,
            }
        };
        let (fail, ignore) = (policy(TestFailure::Fail), policy(TestFailure::Ignore));
        let (ready, pending) =
            ((Status::True, "Ready", ""), (Status::False, "Pending", "testing release default/hello"));
        let rows = [
            (OperationKind::Compare, &PolicyState::None, ready),
            (OperationKind::Compare, &fail, ready),
            (OperationKind::Test, &ignore, ready),
            (OperationKind::Test, &fail, pending),
        ];
        for (kind, policy, expected) in rows {
            for plan in [Plan::Operate(kind), Plan::Wait(Wait::Operating(kind))] {
                let report = reported(&plan, &[], Findings::default(), policy);
                assert_eq!(find(&report, "Ready"), Some(expected), "{plan:?} {policy:?}");
            }
        }
        let canceling = Plan::Cancel(OperationKind::Compare);
        let vocabulary = ReleaseVocabulary::AddonRelease;
        let report =
            report(&canceling, vocabulary, "web", None, &[], Findings::default(), &PolicyState::None);
        assert_eq!(report, None, "the spec may have changed");
    }

    #[test]
    fn the_result_of_tests_is_reported() {
        let text = || "Pod a/b: exit code 1".to_owned();
        let rows = [
            (TestReport::Succeeded(String::new()), (Status::True, "TestsSucceeded", "")),
            (TestReport::Failed(text()), (Status::False, "TestsFailed", "Pod a/b: exit code 1")),
            (TestReport::Unknown(text()), (Status::Unknown, "TestsUnknown", "Pod a/b: exit code 1")),
        ];
        for (test, expected) in rows {
            let findings = Findings { test: Some(&test), ..Findings::default() };
            let report = reported(&Plan::NoOp, &[], findings, &PolicyState::None);
            assert_eq!(find(&report, TESTED), Some(expected));
            assert_eq!(find(&report, "Ready"), Some((Status::True, "Ready", "")));
        }
    }
}
