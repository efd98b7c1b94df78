//! Which changes of an object concern its release.

use chandler_core::health::{ObjectState, Observation, UNHEALTHY_GRACE_PERIOD};
use jiff::Timestamp;

/// Returns whether a release has to be notified of an object's new state: if the object is healthy now and was not, or the other
/// way round. A new reason counts only if it is shown: before, the release is reconciled when the grace period of the object
/// ends.
pub fn must_notify(before: Option<&Observation>, after: &Observation, now: Timestamp) -> bool {
    let Some(before) = before else { return true };
    if health(before) != health(after) {
        return true;
    }
    let Observation::Seen { state: ObjectState::Progressing(_) | ObjectState::Failed(_), since } = after
    else {
        return false;
    };
    before != after && now.duration_since(*since).unsigned_abs() >= UNHEALTHY_GRACE_PERIOD
}

#[derive(PartialEq, Eq)]
enum Health {
    Healthy,
    Unhealthy,
    Missing,
    Unknown,
}

fn health(observation: &Observation) -> Health {
    match observation {
        Observation::Missing { .. } => Health::Missing,
        Observation::Seen { state: ObjectState::Healthy, .. } => Health::Healthy,
        Observation::Seen { state: ObjectState::Progressing(_) | ObjectState::Failed(_), .. } => {
            Health::Unhealthy
        }
        Observation::NotListed | Observation::Seen { state: ObjectState::Unknown, .. } => Health::Unknown,
    }
}
