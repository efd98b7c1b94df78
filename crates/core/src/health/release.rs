//! The health of a release from the observations of its objects.

use std::time::Duration;

use chandler_api::status::ObjectRecord;
use jiff::Timestamp;

use super::{ObjectState, Observation, kinds};

/// How long an object may be unhealthy before it makes its release unhealthy.
pub const UNHEALTHY_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// The health of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseHealth {
    /// Nothing new is known, or an object is unhealthy for less than [`UNHEALTHY_GRACE_PERIOD`]. What was reported before still
    /// counts.
    Unchanged,
    /// The objects of the newest revision are not known. What was reported before is about another revision.
    Undescribed,
    /// The states of these objects are unknown, and the others are healthy.
    Unknown {
        objects: Vec<ObjectRecord>,
    },
    Healthy,
    Unhealthy {
        object: ObjectRecord,
        /// For users.
        reason: String,
        since: Timestamp,
        /// Number of other objects that are unhealthy.
        more: usize,
    },
}

/// How urgent it is to name an object: one that does not exist or has failed does not become healthy by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Missing,
    Failed,
    Progressing,
}

/// An object that is unhealthy.
pub(super) struct Problem {
    pub severity: Severity,
    reason: String,
    since: Timestamp,
}

/// Returns the health of a release with these objects. `deployed_at` is when its newest revision was deployed: objects have
/// [`UNHEALTHY_GRACE_PERIOD`] from then.
pub fn release_health(
    inventory: &[ObjectRecord],
    state_of: impl Fn(&ObjectRecord) -> Observation,
    deployed_at: Option<Timestamp>,
    now: Timestamp,
) -> ReleaseHealth {
    let (mut problems, mut unknown, mut is_in_grace_period) = (Vec::new(), Vec::new(), false);
    for object in inventory {
        let observation = state_of(object);
        match problem(object, &observation, deployed_at) {
            Some(problem) if ends_at(&problem).is_some_and(|end| end <= now) => {
                problems.push((object, problem));
            }
            Some(_) => is_in_grace_period = true,
            None if is_unknown(&observation) => unknown.push(object),
            None => {}
        }
    }
    let more = problems.len().saturating_sub(1);
    let worst = problems.into_iter().min_by_key(|(_, problem)| problem.severity);
    match worst {
        Some((object, Problem { reason, since, .. })) => {
            ReleaseHealth::Unhealthy { object: object.clone(), reason, since, more }
        }
        None if is_in_grace_period => ReleaseHealth::Unchanged,
        None if unknown.is_empty() => ReleaseHealth::Healthy,
        None => ReleaseHealth::Unknown { objects: unknown.into_iter().cloned().collect() },
    }
}

/// Returns when the health has to be computed again although nothing changes: when the grace period of an object ends.
pub fn recheck_at(
    inventory: &[ObjectRecord],
    state_of: impl Fn(&ObjectRecord) -> Observation,
    deployed_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let problems = inventory.iter().filter_map(|object| problem(object, &state_of(object), deployed_at));
    problems.filter_map(|problem| ends_at(&problem)).filter(|end| *end > now).min()
}

/// Returns when the grace period of an object ends.
pub(super) fn ends_at(problem: &Problem) -> Option<Timestamp> {
    problem.since.checked_add(UNHEALTHY_GRACE_PERIOD).ok()
}

pub(super) fn problem(
    object: &ObjectRecord,
    observation: &Observation,
    deployed_at: Option<Timestamp>,
) -> Option<Problem> {
    let (severity, reason, since) = match observation {
        // It may have been removed because its time to live was over.
        Observation::Missing { .. } if is_job(object) => return None,
        Observation::Missing { since } => (Severity::Missing, "it does not exist", since),
        Observation::Seen { state: ObjectState::Failed(reason), since } => {
            (Severity::Failed, reason.as_str(), since)
        }
        Observation::Seen { state: ObjectState::Progressing(reason), since } => {
            (Severity::Progressing, reason.as_str(), since)
        }
        Observation::NotListed
        | Observation::Seen { state: ObjectState::Healthy | ObjectState::Unknown, .. } => return None,
    };
    let since = deployed_at.map_or(*since, |deployed_at| deployed_at.max(*since));
    Some(Problem { severity, reason: reason.to_owned(), since })
}

pub(super) fn is_unknown(observation: &Observation) -> bool {
    matches!(observation, Observation::NotListed | Observation::Seen { state: ObjectState::Unknown, .. })
}

fn is_job(object: &ObjectRecord) -> bool {
    object.kind == "Job" && kinds::group(&object.api_version) == "batch"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn object(kind: &str) -> ObjectRecord {
        let api_version = match kind {
            "Job" => "batch/v1",
            "Deployment" => "apps/v1",
            _ => "v1",
        };
        ObjectRecord {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        }
    }

    fn seen(state: ObjectState) -> Observation {
        Observation::Seen { state, since: at(0) }
    }

    fn failed() -> Observation {
        seen(ObjectState::failed("crash"))
    }

    fn progressing() -> Observation {
        seen(ObjectState::progressing("0 of 1"))
    }

    fn missing() -> Observation {
        Observation::Missing { since: at(0) }
    }

    fn health(
        rows: &[(&str, Observation)],
        deployed_at: Option<i64>,
        now: i64,
    ) -> (ReleaseHealth, Option<i64>) {
        let inventory: Vec<_> = rows.iter().map(|(kind, _)| object(kind)).collect();
        let state_of = |wanted: &ObjectRecord| {
            rows.iter().find(|(kind, _)| *kind == wanted.kind).map(|(_, seen)| seen.clone()).unwrap()
        };
        let deployed_at = deployed_at.map(at);
        let again = recheck_at(&inventory, state_of, deployed_at, at(now)).map(Timestamp::as_second);
        (release_health(&inventory, state_of, deployed_at, at(now)), again)
    }

    fn unhealthy(kind: &str, reason: &str, since: i64, more: usize) -> ReleaseHealth {
        ReleaseHealth::Unhealthy { object: object(kind), reason: reason.to_owned(), since: at(since), more }
    }

    #[test]
    fn a_release_is_healthy_if_all_its_objects_are() {
        use ReleaseHealth::Healthy;
        let healthy = || seen(ObjectState::Healthy);
        let unknown = |kind| ReleaseHealth::Unknown { objects: vec![object(kind)] };
        let rows = [
            ("no objects", vec![], Healthy),
            ("all healthy", vec![("Deployment", healthy()), ("Secret", healthy())], Healthy),
            (
                "not listed",
                vec![("Deployment", healthy()), ("Secret", Observation::NotListed)],
                unknown("Secret"),
            ),
            (
                "no status",
                vec![("Deployment", seen(ObjectState::Unknown)), ("Secret", healthy())],
                unknown("Deployment"),
            ),
            ("a Job removed by its TTL", vec![("Job", missing()), ("Secret", healthy())], Healthy),
            ("failed", vec![("Deployment", failed())], unhealthy("Deployment", "crash", 0, 0)),
            ("progressing", vec![("Deployment", progressing())], unhealthy("Deployment", "0 of 1", 0, 0)),
            ("missing", vec![("Secret", missing())], unhealthy("Secret", "it does not exist", 0, 0)),
            ("a failed Job", vec![("Job", failed())], unhealthy("Job", "crash", 0, 0)),
            (
                "the worst is named",
                vec![("Pod", progressing()), ("Deployment", failed()), ("Secret", missing())],
                unhealthy("Secret", "it does not exist", 0, 2),
            ),
            (
                "known to be unhealthy although not all is known",
                vec![("Secret", Observation::NotListed), ("Deployment", failed())],
                unhealthy("Deployment", "crash", 0, 0),
            ),
        ];
        for (name, objects, expected) in rows {
            assert_eq!(health(&objects, None, 1_000), (expected, None), "{name}");
        }
    }

    #[test]
    fn a_short_failure_changes_nothing() {
        let rows = [
            (missing(), None, 29, ReleaseHealth::Unchanged, Some(30)),
            (failed(), None, 29, ReleaseHealth::Unchanged, Some(30)),
            (progressing(), None, 29, ReleaseHealth::Unchanged, Some(30)),
            (progressing(), None, 30, unhealthy("Deployment", "0 of 1", 0, 0), None),
            // An operation that has just ended may have changed the object.
            (progressing(), Some(20), 49, ReleaseHealth::Unchanged, Some(50)),
            (progressing(), Some(20), 50, unhealthy("Deployment", "0 of 1", 20, 0), None),
        ];
        for (observation, deployed_at, now, expected, again) in rows {
            let objects = [("Deployment", observation)];
            assert_eq!(health(&objects, deployed_at, now), (expected, again), "{objects:?} at {now}");
        }
        let another_unknown = [("Deployment", progressing()), ("Secret", Observation::NotListed)];
        assert_eq!(health(&another_unknown, None, 29), (ReleaseHealth::Unchanged, Some(30)));
    }

    #[test]
    fn the_next_check_is_when_the_first_grace_period_ends() {
        let later = Observation::Missing { since: at(5) };
        let objects = [("Secret", later), ("Deployment", progressing()), ("Pod", seen(ObjectState::Healthy))];
        assert_eq!(health(&objects, None, 10).1, Some(30));
        assert_eq!(health(&objects, None, 31).1, Some(35));
        assert_eq!(health(&objects, None, 40).1, None);
    }
}
