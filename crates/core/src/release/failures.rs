//! The last failure of a release in its status, and what it means for the next attempt.

use chandler_api::{extensions::RETRY_ANNOTATION, status::FailureRecord};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::{Resource, ResourceExt as _};

use super::{PastFailure, failure_key};
use crate::{
    backoff,
    failure::{Category, Failure},
};

/// Returns when a user has asked to try a release again, which may be in the future.
pub fn retry_requested_at(release: &impl Resource) -> Option<Timestamp> {
    release.annotations().get(RETRY_ANNOTATION)?.parse().ok()
}

/// Returns the record of a failure after `last`. A failure that is older than `retry_at` does not count any more, unless that
/// is in the future.
///
/// While another step fails, such as reading the package again, the attempts at applying the inputs are remembered: otherwise
/// an unavailable repository would allow all retries again.
pub fn record_failure(
    last: Option<&FailureRecord>,
    key: String,
    failure: &Failure,
    retry_at: Option<Timestamp>,
    now: Timestamp,
) -> FailureRecord {
    let retry_at = retry_at.filter(|retry_at| *retry_at <= now);
    let last = last.filter(|last| retry_at.is_none_or(|retry_at| retry_at <= last.at.0));
    let same = last.filter(|last| last.input == key);
    let (attempts, attempted) = if failure_key::is_apply(&key) {
        let before = last.filter(|last| attempted(last) == key).map_or(0, |last| last.attempts);
        (before.saturating_add(u32::from(is_own_fault(failure.category))), None)
    } else {
        let before = last.filter(|last| last.attempts > 0);
        (before.map_or(0, |last| last.attempts), before.map(|last| attempted(last).to_owned()))
    };
    let (crashes, crashing_step) = count_crashes(last, &key, failure.category);
    FailureRecord {
        category: failure.category.to_string(),
        message: failure.message.clone(),
        input: key,
        count: same.map_or(1, |last| last.count.saturating_add(1)),
        attempts,
        attempted,
        crashes,
        crashed: crashing_step,
        at: Time(now),
    }
}

/// Returns how often in a row the step has ended the process of the package tool, and the step if it is not the one that has
/// failed now. While another step fails, crashes are remembered: otherwise an unavailable repository would allow all of them again.
fn count_crashes(last: Option<&FailureRecord>, key: &str, category: Category) -> (u32, Option<String>) {
    let before = last.filter(|last| last.crashes > 0);
    let of_step = before.filter(|last| crashed(last) == key).map_or(0, |last| last.crashes);
    match category {
        Category::ToolCrashed => (of_step.saturating_add(1), None),
        // It has not run, or the process has ended because of another release.
        Category::ToolUnavailable | Category::Cancelled | Category::Timeout | Category::Unreachable => {
            let other = before.filter(|last| crashed(last) != key);
            let crashes = before.map_or(0, |last| last.crashes);
            (crashes, other.map(|last| crashed(last).to_owned()))
        }
        _ => {
            let other = before.filter(|last| crashed(last) != key);
            (other.map_or(0, |last| last.crashes), other.map(|last| crashed(last).to_owned()))
        }
    }
}

/// Returns the key of the step whose crashes are counted.
fn crashed(record: &FailureRecord) -> &str {
    record.crashed.as_deref().unwrap_or(&record.input)
}

/// Returns the failure for the plan. `seed` identifies the object, see [`backoff::delay`].
pub fn past_failure(last: &FailureRecord, seed: &str) -> Option<PastFailure> {
    let failure = Failure::new(Category::parse(&last.category), last.message.clone());
    let delay = backoff::delay(failure.category, last.count, seed);
    Some(PastFailure {
        key: last.input.clone(),
        failure,
        retry_at: last.at.0.checked_add(delay).ok()?,
        at: last.at.0,
        attempts: last.attempts,
        attempted: attempted(last).to_owned(),
        crashes: last.crashes,
        crashed: crashed(last).to_owned(),
    })
}

/// Returns the key of the inputs whose attempts are counted.
fn attempted(record: &FailureRecord) -> &str {
    record.attempted.as_deref().unwrap_or(&record.input)
}

/// Returns whether a failure is that of the release: of its package, its values, its objects or its hooks. Others, such as
/// those of the connection or of the tool, say nothing about the release, and another revision would not help. A timeout is that
/// of a request: an object that does not become ready in time, or a hook that does not end, has its own category.
fn is_own_fault(category: Category) -> bool {
    match category {
        Category::InvalidPackage
        | Category::InvalidValues
        | Category::InvalidSpec
        | Category::Conflict
        | Category::Forbidden
        | Category::HookFailed
        | Category::NotReady
        | Category::Rejected => true,
        Category::Unreachable
        | Category::Timeout
        | Category::Internal
        | Category::Unauthorized
        | Category::Cancelled
        | Category::SourceUnavailable
        | Category::PackageNotFound
        | Category::GetCredentialsFailed
        | Category::GetCaCertificateFailed
        | Category::VerificationFailed
        | Category::QuotaExceeded
        | Category::NotAllowed
        | Category::ToolUnavailable
        | Category::ToolCrashed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::InputDigest;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Records failures at seconds 1, 2, …, and returns the count, the attempts, and the key that they are for.
    fn record(failures: &[(&str, Category)], retry_at: Option<i64>) -> (u32, u32, String) {
        let mut last = None;
        for (second, (key, category)) in (1..).zip(failures) {
            let failure = Failure::new(*category, "why");
            let record =
                record_failure(last.as_ref(), (*key).to_owned(), &failure, retry_at.map(at), at(second));
            last = Some(record);
        }
        let last = last.unwrap();
        let past = past_failure(&last, "seed").unwrap();
        assert_eq!(past.at, last.at.0);
        (last.count, past.attempts, past.attempted)
    }

    /// Failures by key, the time of `chandler retry`; count, attempts and the attempted key.
    type Row<'a> = (&'a [(&'a str, Category)], Option<i64>, (u32, u32, &'a str));

    #[test]
    fn only_failures_of_the_release_itself_are_attempts() {
        use Category::{Internal, NotReady, Rejected, SourceUnavailable, Timeout, Unreachable};
        const A: &str = "3-aaaa";
        const B: &str = "3-bbbb";
        const RESOLVE: &str = "generation-3";
        const ROLLBACK: &str = "rollback-3-aaaa";
        let rows: [Row<'_>; 11] = [
            (&[(A, NotReady)], None, (1, 1, A)),
            (&[(A, NotReady), (A, Rejected)], None, (2, 2, A)),
            (&[(A, NotReady), (A, Timeout), (A, Internal)], None, (3, 1, A)),
            (&[(A, Unreachable), (A, Unreachable), (A, NotReady)], None, (3, 1, A)),
            (&[(A, NotReady), (B, NotReady)], None, (1, 1, B)),
            // Another step fails: the attempts are remembered.
            (&[(A, NotReady), (A, NotReady), (RESOLVE, SourceUnavailable)], None, (1, 2, A)),
            (
                &[(A, NotReady), (RESOLVE, SourceUnavailable), (RESOLVE, Timeout), (A, NotReady)],
                None,
                (1, 2, A),
            ),
            (&[(A, NotReady), (A, NotReady), (ROLLBACK, NotReady), (ROLLBACK, NotReady)], None, (2, 2, A)),
            (&[(RESOLVE, SourceUnavailable)], None, (1, 0, RESOLVE)),
            // A user has asked to try again after the second failure.
            (&[(A, NotReady), (A, NotReady), (A, NotReady)], Some(3), (1, 1, A)),
            (&[(A, NotReady), (A, NotReady), (A, NotReady)], Some(4), (3, 3, A)),
        ];
        for (failures, retry_at, (count, attempts, attempted)) in rows {
            let expected = (count, attempts, attempted.to_owned());
            assert_eq!(record(failures, retry_at), expected, "{failures:?}");
        }
    }

    #[test]
    fn crashes_in_a_row_of_one_step_are_counted() {
        use Category::{NotReady, SourceUnavailable, ToolCrashed, ToolUnavailable};
        const A: &str = "3-aaaa";
        const RESOLVE: &str = "generation-3";
        type Row<'a> = (&'a [(&'a str, Category)], Option<i64>, (u32, &'a str));
        let rows: [Row<'_>; 9] = [
            (&[(A, ToolCrashed)], None, (1, A)),
            (&[(A, ToolCrashed), (A, ToolCrashed), (A, ToolCrashed)], None, (3, A)),
            (&[(A, ToolCrashed), (A, NotReady)], None, (0, A)),
            (&[(A, ToolCrashed), (A, NotReady), (A, ToolCrashed)], None, (1, A)),
            (&[(A, ToolCrashed), (A, ToolUnavailable), (A, ToolCrashed)], None, (2, A)),
            (&[(A, ToolCrashed), (RESOLVE, SourceUnavailable)], None, (1, A)),
            (&[(A, ToolCrashed), (RESOLVE, SourceUnavailable), (A, ToolCrashed)], None, (2, A)),
            (&[(A, ToolCrashed), ("3-bbbb", ToolCrashed)], None, (1, "3-bbbb")),
            // A user has asked to try again after the second one.
            (&[(A, ToolCrashed), (A, ToolCrashed), (A, ToolCrashed)], Some(3), (1, A)),
        ];
        for (failures, retry_at, (crashes, crashed)) in rows {
            let mut last = None;
            for (second, (key, category)) in (1..).zip(failures) {
                let failure = Failure::new(*category, "why");
                let key = (*key).to_owned();
                last = Some(record_failure(last.as_ref(), key, &failure, retry_at.map(at), at(second)));
            }
            let past = past_failure(&last.unwrap(), "seed").unwrap();
            assert_eq!((past.crashes, past.crashed.as_str()), (crashes, crashed), "{failures:?}");
            assert_eq!(past.is_stalled(), crashes >= 3);
        }
    }

    #[test]
    fn keys_of_applied_inputs_are_recognized() {
        let inputs = InputDigest::parse(&"a".repeat(40)).unwrap();
        for generation in [None, Some(3)] {
            assert!(failure_key::is_apply(&failure_key::apply(generation, &inputs)));
            let others = [
                failure_key::resolve(generation),
                failure_key::read(generation, Some(&inputs)),
                failure_key::read(generation, None),
                failure_key::rollback(generation, &inputs),
                failure_key::uninstall_failed(generation, &inputs),
                failure_key::remove(),
            ];
            assert!(!others.iter().any(|key| failure_key::is_apply(key)), "{others:?}");
        }
    }

    #[test]
    fn a_record_of_an_earlier_version_has_no_attempts() {
        let record: FailureRecord = serde_json::from_value(serde_json::json!({
            "category": "NotReady", "message": "why", "input": "3-aaaa", "count": 7, "at": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let past = past_failure(&record, "seed").unwrap();
        assert_eq!((past.attempts, past.attempted.as_str()), (0, "3-aaaa"));
        let failure = Failure::new(Category::NotReady, "why");
        let next = record_failure(Some(&record), "3-aaaa".to_owned(), &failure, None, at(1));
        assert_eq!((next.count, next.attempts, next.attempted), (8, 1, None));
    }
}
