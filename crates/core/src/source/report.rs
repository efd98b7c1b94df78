//! The status of a Source.

use chandler_api::{
    extensions::{SourceRevision, SourceRevisionRecord, SourceStatus},
    reasons::SourceReason,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::history;
use crate::{
    conditions::{NewCondition, Status, merge},
    failure::{Category, Failure},
};

/// The revision whose files are available.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchedRevision {
    pub commit: SourceRevisionRecord,
    pub verified_by: Option<String>,
    /// What was left out of the files, for the message of the condition. Empty if nothing was.
    pub remarks: String,
}

/// The result of reconciling a Source.
#[derive(Clone, Debug, PartialEq)]
pub enum PollResult {
    Fetched(FetchedRevision),
    /// The repository could not be polled or fetched. `kept` says whether the files of the revision in the status are still
    /// used.
    Failed {
        failure: Failure,
        kept: bool,
    },
    /// `spec.suspend` is set. `kept` as above.
    Suspended {
        kept: bool,
    },
}

impl PollResult {
    /// Returns why the newest revision is not known.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Fetched(_) => None,
            Self::Failed { failure, .. } => Some(failure.clone()),
            Self::Suspended { .. } => Some(Failure::new(Category::SourceUnavailable, "it is suspended")),
        }
    }
}

/// Returns the new status. It describes the last revision as long as its files are used.
pub fn report(
    old: &SourceStatus,
    result: &PollResult,
    generation: Option<i64>,
    now: Timestamp,
) -> SourceStatus {
    let known = match result {
        PollResult::Fetched(fetched) => SourceStatus {
            revision: Some(fetched.commit.id.clone()),
            commit: Some(fetched.commit.clone()),
            verified_by: fetched.verified_by.clone(),
            history: history(&old.history, revision(&fetched.commit, now)),
            ..SourceStatus::default()
        },
        PollResult::Failed { kept: true, .. } | PollResult::Suspended { kept: true } => old.clone(),
        PollResult::Failed { kept: false, .. } | PollResult::Suspended { kept: false } => {
            SourceStatus { history: old.history.clone(), ..SourceStatus::default() }
        }
    };
    let conditions = merge(&old.conditions, vec![ready(&known, result)], generation, now);
    SourceStatus { conditions, observed_generation: generation, ..known }
}

fn revision(commit: &SourceRevisionRecord, now: Timestamp) -> SourceRevision {
    SourceRevision { revision: commit.id.clone(), subject: commit.subject.clone(), at: Time(now) }
}

fn ready(known: &SourceStatus, result: &PollResult) -> NewCondition {
    let (status, reason, message) = match result {
        PollResult::Fetched(fetched) => (Status::True, SourceReason::Ready, fetched.remarks.clone()),
        PollResult::Failed { failure, .. } => (
            Status::False,
            SourceReason::Failed(failure.category),
            format!("{failure}; {}", consequence(known)),
        ),
        PollResult::Suspended { kept } => (
            if *kept { Status::True } else { Status::False },
            SourceReason::Suspended,
            format!("spec.suspend is set, so the repository is not polled; {}", consequence(known)),
        ),
    };
    NewCondition { type_: "Ready", status, reason: reason.into(), message }
}

fn consequence(known: &SourceStatus) -> String {
    match &known.revision {
        Some(revision) => format!("revision {revision} is still used; nothing is changed or removed"),
        None => "nothing has been fetched for this spec yet; nothing is changed or removed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn fetched(id: &str) -> PollResult {
        let commit = SourceRevisionRecord {
            id: id.to_owned(),
            subject: "a change".to_owned(),
            ..SourceRevisionRecord::default()
        };
        PollResult::Fetched(FetchedRevision { commit, verified_by: None, remarks: String::new() })
    }

    fn failed(kept: bool) -> PollResult {
        let failure = Failure::new(Category::SourceUnavailable, "connection refused");
        PollResult::Failed { failure, kept }
    }

    #[test]
    fn a_failure_keeps_the_revision_and_is_reported_once() {
        let good = report(&SourceStatus::default(), &fetched("c1"), Some(1), at(1));
        assert_eq!((good.revision.as_deref(), good.history.len()), (Some("c1"), 1));
        assert_eq!(report(&good, &fetched("c1"), Some(1), at(2)), good, "an unchanged poll changes nothing");
        let lost = report(&good, &failed(true), Some(1), at(3));
        assert_eq!(
            (&lost.revision, &lost.commit, &lost.history),
            (&good.revision, &good.commit, &good.history)
        );
        let ready = &lost.conditions[0];
        assert_eq!((&*ready.status, &*ready.reason), ("False", "SourceUnavailable"));
        assert!(ready.message.contains("refused; revision c1 is still used"), "{}", ready.message);
        assert_eq!(report(&lost, &failed(true), Some(1), at(4)), lost);
        let moved = report(&lost, &fetched("c2"), Some(1), at(5));
        assert_eq!((moved.conditions[0].status.as_str(), moved.history.len()), ("True", 2));
    }

    #[test]
    fn a_revision_of_another_spec_is_not_reported_as_used() {
        let good = report(&SourceStatus::default(), &fetched("c1"), Some(1), at(1));
        let other = report(&good, &failed(false), Some(2), at(2));
        assert_eq!((other.revision, other.commit, other.history.len()), (None, None, 1));
        assert!(other.conditions[0].message.contains("nothing has been fetched for this spec yet"));
        assert_eq!(other.observed_generation, Some(2));
    }

    #[test]
    fn a_suspended_source_is_ready_if_it_has_a_revision() {
        let good = report(&SourceStatus::default(), &fetched("c1"), Some(1), at(1));
        let suspended = report(&good, &PollResult::Suspended { kept: true }, Some(2), at(2));
        let ready = &suspended.conditions[0];
        assert_eq!((&*ready.status, &*ready.reason), ("True", "Suspended"));
        assert_eq!(suspended.revision.as_deref(), Some("c1"));
        let empty = report(&SourceStatus::default(), &PollResult::Suspended { kept: false }, Some(1), at(1));
        assert_eq!(empty.conditions[0].status, "False");
    }
}
