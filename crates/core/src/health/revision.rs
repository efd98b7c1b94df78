//! Whether the revision that a rollout has created works, which is judged more strictly than the
//! health of a release: what has not been seen does not count as healthy.

use std::time::Duration;

use chandler_api::status::{ObjectRecord, RevisionState};
use jiff::Timestamp;

use super::{
    ObjectState, Observation, UNHEALTHY_GRACE_PERIOD, kinds,
    release::{Problem, Severity, ends_at, is_unknown, problem},
};

/// The groups of kinds whose controllers run on every cluster, so that an object without a status
/// only has none yet.
const GROUPS_WITH_STATUS: [&str; 3] = ["", "apps", "batch"];

/// Times of deployments have no fractions of a second.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// A list that confirms a revision notifies the release, unless it shows what was known.
const PENDING_RETRY: Duration = Duration::from_secs(15);

/// Whether the objects of a release were listed after a moment. That of several kinds is the
/// maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    Confirmed,
    /// Some of them cannot be listed: their kind is not served, or Chandler may not read it.
    Impossible,
    /// They are going to be listed.
    Pending,
}

/// A revision to judge.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// Its objects.
    pub inventory: &'a [ObjectRecord],
    pub deployed_at: Option<Timestamp>,
    /// Since when its cluster answers without a long break. `None` if it does not.
    pub answers_since: Option<Timestamp>,
    /// How long its objects have to be healthy.
    pub min_ready: Duration,
}

/// The state of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedRevision {
    pub state: RevisionState,
    /// When to judge again although nothing changes.
    pub recheck_at: Option<Timestamp>,
}

impl Revision<'_> {
    /// Judges the revision. Its objects have to be healthy, and its cluster has to answer, for
    /// `min_ready`: an outage is no time in which they were healthy. `confirm` is asked whether the objects were listed after a moment, once
    /// they seem to have been healthy until then: a watch that has stopped shows what was true
    /// before.
    pub fn judge(
        self,
        state_of: impl Fn(&ObjectRecord) -> Observation,
        confirm: impl FnOnce(Timestamp) -> Confirmation,
        now: Timestamp,
    ) -> JudgedRevision {
        let deployed_at = self.deployed_at.map(|at| at.min(now));
        let (mut since, mut is_unhealthy, mut has_unknown) = (deployed_at, false, false);
        for object in self.inventory {
            let observation = state_of(object);
            if let Some(problem) = problem(object, &observation, deployed_at) {
                if has_failed(&problem, now) {
                    return JudgedRevision::of(RevisionState::Failed);
                }
                is_unhealthy = true;
            } else if is_unknown(&observation) {
                is_unhealthy |= awaits_status(object, &observation);
                has_unknown = true;
            } else if let Observation::Seen { since: seen, .. } = observation {
                since = since.max(Some(seen.min(now)));
            }
        }
        if is_unhealthy {
            return JudgedRevision::of(RevisionState::Progressing);
        }
        let answers_since = self.answers_since.unwrap_or(now).min(now);
        let since = since.map_or(answers_since, |since| since.max(answers_since));
        let shortest = if has_unknown { UNHEALTHY_GRACE_PERIOD } else { SHORTEST_WAIT };
        let wait = self.min_ready.max(shortest);
        let end = since.checked_add(wait).unwrap_or(Timestamp::MAX);
        if now < end {
            return JudgedRevision {
                recheck_at: Some(end),
                ..JudgedRevision::of(RevisionState::Progressing)
            };
        }
        match confirm(end) {
            Confirmation::Pending => JudgedRevision {
                recheck_at: now.checked_add(PENDING_RETRY).ok(),
                ..JudgedRevision::of(RevisionState::Progressing)
            },
            Confirmation::Confirmed if !has_unknown => JudgedRevision::of(RevisionState::Healthy),
            Confirmation::Confirmed | Confirmation::Impossible => JudgedRevision::of(RevisionState::Unknown),
        }
    }
}

impl JudgedRevision {
    fn of(state: RevisionState) -> Self {
        Self { state, recheck_at: None }
    }
}

/// Returns whether an object has failed for a while.
fn has_failed(problem: &Problem, now: Timestamp) -> bool {
    problem.severity == Severity::Failed && ends_at(problem).is_some_and(|end| end <= now)
}

/// Returns whether an object will have a status: its controller has not seen it yet.
fn awaits_status(object: &ObjectRecord, observation: &Observation) -> bool {
    matches!(observation, Observation::Seen { state: ObjectState::Unknown, .. })
        && GROUPS_WITH_STATUS.contains(&kinds::group(&object.api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_READY: Duration = Duration::from_secs(30);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn object(kind: &str) -> ObjectRecord {
        let api_version = if kind == "Gateway" { "example.org/v1" } else { "apps/v1" };
        let (api_version, kind, name) = (api_version.to_owned(), kind.to_owned(), "web".to_owned());
        ObjectRecord { api_version, kind, namespace: "default".to_owned(), name }
    }

    fn seen(state: ObjectState, since: i64) -> Observation {
        Observation::Seen { state, since: at(since) }
    }

    /// Judges a revision that was deployed at second 100.
    fn judge(objects: &[(&str, Observation)], confirmed: Confirmation, now: i64) -> JudgedRevision {
        let inventory: Vec<_> = objects.iter().map(|(kind, _)| object(kind)).collect();
        let state_of = |wanted: &ObjectRecord| {
            objects.iter().find(|(kind, _)| *kind == wanted.kind).map(|(_, seen)| seen.clone()).unwrap()
        };
        let revision = Revision {
            inventory: &inventory,
            deployed_at: Some(at(100)),
            answers_since: Some(at(1)),
            min_ready: MIN_READY,
        };
        revision.judge(state_of, |_| confirmed, at(now))
    }

    #[test]
    fn a_revision_is_healthy_once_that_is_confirmed() {
        use Confirmation::{Confirmed, Impossible, Pending};
        use ObjectState::{Failed, Healthy, Progressing, Unknown};
        let healthy = |since| vec![("Deployment", seen(Healthy, since))];
        let starting = || seen(Progressing("0 of 1".to_owned()), 1);
        let crashing = || seen(Failed("crash".to_owned()), 1);
        let missing = Observation::Missing { since: at(1) };
        let with = |kind, observation| vec![("Deployment", seen(Healthy, 1)), (kind, observation)];
        let rows = [
            ("healthy before", healthy(1), Confirmed, 129, RevisionState::Progressing, Some(130)),
            ("healthy before", healthy(1), Confirmed, 130, RevisionState::Healthy, None),
            ("no list since", healthy(1), Pending, 130, RevisionState::Progressing, Some(145)),
            ("not readable", healthy(1), Impossible, 130, RevisionState::Unknown, None),
            ("healthy later", healthy(120), Confirmed, 149, RevisionState::Progressing, Some(150)),
            ("healthy later", healthy(120), Confirmed, 150, RevisionState::Healthy, None),
            ("nothing", vec![], Confirmed, 130, RevisionState::Healthy, None),
            ("slow", with("Web", starting()), Confirmed, 999, RevisionState::Progressing, None),
            ("missing", with("Web", missing), Confirmed, 999, RevisionState::Progressing, None),
            ("failed", with("Web", crashing()), Confirmed, 129, RevisionState::Progressing, None),
            ("failed", with("Web", crashing()), Pending, 130, RevisionState::Failed, None),
            (
                "not seen",
                with("Web", Observation::NotListed),
                Pending,
                130,
                RevisionState::Progressing,
                Some(145),
            ),
            ("not seen", with("Web", Observation::NotListed), Confirmed, 130, RevisionState::Unknown, None),
            ("no status", with("Gateway", seen(Unknown, 1)), Confirmed, 130, RevisionState::Unknown, None),
            (
                "no status yet",
                with("Web", seen(Unknown, 1)),
                Confirmed,
                130,
                RevisionState::Progressing,
                None,
            ),
        ];
        for (what, objects, confirmed, now, state, recheck_at) in rows {
            let expected = JudgedRevision { state, recheck_at: recheck_at.map(at) };
            assert_eq!(judge(&objects, confirmed, now), expected, "{what} at {now}");
        }
    }

    #[test]
    fn what_is_unknown_is_waited_for_at_least_as_long_as_what_is_unhealthy() {
        let objects = [object("Gateway")];
        let revision = Revision {
            inventory: &objects,
            deployed_at: Some(at(100)),
            answers_since: Some(at(1)),
            min_ready: Duration::ZERO,
        };
        let judge =
            |now| revision.judge(|_| Observation::NotListed, |_| Confirmation::Confirmed, at(now)).state;
        assert_eq!(judge(129), RevisionState::Progressing);
        assert_eq!(judge(130), RevisionState::Unknown);
    }

    #[test]
    fn an_outage_begins_the_time_again() {
        let revision = |answers_since: Option<i64>| Revision {
            inventory: &[],
            deployed_at: Some(at(100)),
            answers_since: answers_since.map(at),
            min_ready: MIN_READY,
        };
        let judge = |answers_since, now| {
            let judged = revision(answers_since).judge(
                |_| Observation::NotListed,
                |_| Confirmation::Confirmed,
                at(now),
            );
            (judged.state, judged.recheck_at)
        };
        assert_eq!(judge(None, 135), (RevisionState::Progressing, Some(at(165))), "it does not answer");
        assert_eq!(judge(Some(136), 137), (RevisionState::Progressing, Some(at(166))), "first contact");
        assert_eq!(judge(Some(136), 166), (RevisionState::Healthy, None));
        assert_eq!(judge(Some(99), 130), (RevisionState::Healthy, None));
    }

    #[test]
    fn a_revision_of_the_future_is_not_ready() {
        let judged = |now| {
            let revision = Revision {
                inventory: &[],
                deployed_at: Some(at(900)),
                answers_since: Some(at(1)),
                min_ready: Duration::ZERO,
            };
            revision.judge(|_| Observation::NotListed, |_| Confirmation::Confirmed, at(now)).state
        };
        assert_eq!(judged(100), RevisionState::Progressing);
        assert_eq!(judged(901), RevisionState::Healthy);
    }
}
