//! What a watch has shown about one object.

use jiff::Timestamp;

use super::ObjectState;

/// What a watch has shown about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The objects of its kind are not listed, so nothing is known.
    NotListed,
    Missing {
        /// Since when it has been missing or unhealthy.
        since: Timestamp,
    },
    Seen {
        state: ObjectState,
        /// Since when it has been missing or unhealthy; or else since when it has not been.
        since: Timestamp,
    },
}

impl Observation {
    /// Returns the observation of an object after `before`. `state` is `None` if the object does not exist.
    ///
    /// `since` does not change while the object stays unhealthy, whatever it lacks: an object that is deleted, created again
    /// and then starts slowly has been unhealthy since it was deleted.
    pub fn after(before: Option<&Self>, state: Option<ObjectState>, now: Timestamp) -> Self {
        let mut next = match state {
            Some(state) => Self::Seen { state, since: now },
            None => Self::Missing { since: now },
        };
        let is_same = before.is_some_and(|before| before.is_unhealthy() == next.is_unhealthy());
        let kept = before.filter(|_| is_same).and_then(Self::since);
        if let (Some(kept), Self::Missing { since } | Self::Seen { since, .. }) = (kept, &mut next) {
            *since = kept;
        }
        next
    }

    /// Returns whether the object is missing, failed or not ready.
    pub fn is_unhealthy(&self) -> bool {
        match self {
            Self::NotListed => false,
            Self::Missing { .. } => true,
            Self::Seen { state, .. } => matches!(state, ObjectState::Progressing(_) | ObjectState::Failed(_)),
        }
    }

    fn since(&self) -> Option<Timestamp> {
        match self {
            Self::NotListed => None,
            Self::Missing { since } | Self::Seen { since, .. } => Some(*since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_changes_only_between_healthy_and_unhealthy() {
        use ObjectState::{Failed, Healthy, Progressing, Unknown};
        let seen = |state, second| Observation::Seen { state, since: at(second) };
        let missing = |second| Observation::Missing { since: at(second) };
        let [starting, crashing] = [Progressing("0 of 1".to_owned()), Failed("crash".to_owned())];
        let rows = [
            (None, None, missing(9)),
            (None, Some(Healthy), seen(Healthy, 9)),
            (Some(Observation::NotListed), Some(starting.clone()), seen(starting.clone(), 9)),
            (Some(seen(Healthy, 1)), Some(Healthy), seen(Healthy, 1)),
            (Some(seen(Unknown, 1)), Some(Healthy), seen(Healthy, 1)),
            (Some(seen(Healthy, 1)), Some(starting.clone()), seen(starting.clone(), 9)),
            (Some(seen(Healthy, 1)), None, missing(9)),
            (Some(seen(starting.clone(), 1)), Some(crashing.clone()), seen(crashing.clone(), 1)),
            (Some(seen(crashing, 1)), None, missing(1)),
            (Some(missing(1)), None, missing(1)),
            (Some(missing(1)), Some(starting.clone()), seen(starting, 1)),
            (Some(missing(1)), Some(Healthy), seen(Healthy, 9)),
        ];
        for (before, state, expected) in rows {
            assert_eq!(Observation::after(before.as_ref(), state, at(9)), expected, "{before:?}");
        }
    }
}
