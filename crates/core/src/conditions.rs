//! Conditions in Kubernetes style: transition times move only when the status does.

use chandler_api::reasons::Reason;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition as it should be now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub type_: &'static str,
    pub status: Status,
    pub reason: Reason,
    pub message: String,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Longest message the API accepts.
const LONGEST_MESSAGE: usize = 32_768;

/// The conditions to write: `wanted`, with the transition times of `old` wherever the status is the same.
pub fn merge(
    old: &[Condition],
    wanted: Vec<Wanted>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    wanted
        .into_iter()
        .map(|wanted| {
            let status = wanted.status.as_str();
            let same = old.iter().find(|c| c.type_ == wanted.type_ && c.status == status);
            Condition {
                type_: wanted.type_.to_owned(),
                status: status.to_owned(),
                reason: wanted.reason.as_str().to_owned(),
                message: shortened(wanted.message),
                observed_generation: generation,
                last_transition_time: same.map_or(Time(now), |c| c.last_transition_time.clone()),
            }
        })
        .collect()
}

/// Returns the condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns whether the condition of this type has status `True`. One that is absent has not.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// `Ready`: the first of `parts` that is not true speaks for all. If all are true, the reason is `ready`.
pub fn summary(parts: &[Wanted], ready: Reason) -> Wanted {
    parts.iter().find(|part| part.status != Status::True).map_or_else(
        || Wanted { type_: "Ready", status: Status::True, reason: ready, message: String::new() },
        |part| Wanted { type_: "Ready", ..part.clone() },
    )
}

fn shortened(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use chandler_api::reasons::ClusterReason;

    use super::*;

    fn wanted(status: Status, message: &str) -> Wanted {
        Wanted { type_: "Ready", status, reason: ClusterReason::NotReady.into(), message: message.to_owned() }
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let [first, later] = [1, 2].map(|s| Timestamp::from_second(s).unwrap());
        let old = merge(&[], vec![wanted(Status::False, "a")], Some(1), first);
        let message_changed = merge(&old, vec![wanted(Status::False, "b")], Some(2), later);
        assert_eq!(message_changed[0].last_transition_time, Time(first));
        let status_changed = merge(&message_changed, vec![wanted(Status::True, "b")], Some(2), later);
        assert_eq!(status_changed[0].last_transition_time, Time(later));
    }

    #[test]
    fn a_condition_is_true_only_if_it_is_there_and_says_true() {
        let now = Timestamp::from_second(1).unwrap();
        for (status, is) in [(Status::True, true), (Status::False, false), (Status::Unknown, false)] {
            let conditions = merge(&[], vec![wanted(status, "")], None, now);
            assert_eq!(is_true(&conditions, "Ready"), is, "{status:?}");
            assert!(find(&conditions, "Ready").is_some() && !is_true(&conditions, "Other"));
        }
    }

    #[test]
    fn unchanged_conditions_are_equal() {
        let now = Timestamp::from_second(1).unwrap();
        let old = merge(&[], vec![wanted(Status::True, "")], Some(1), now);
        let again = merge(&old, vec![wanted(Status::True, "")], Some(1), Timestamp::from_second(9).unwrap());
        assert_eq!(old, again, "equal conditions let the status write be skipped");
    }

    #[test]
    fn the_first_untrue_part_is_the_summary() {
        let parts =
            [wanted(Status::True, ""), wanted(Status::False, "why"), wanted(Status::Unknown, "later")];
        assert_eq!(summary(&parts, ClusterReason::Ready.into()).message, "why");
        assert_eq!(summary(&parts[..1], ClusterReason::Ready.into()).status, Status::True);
    }
}
