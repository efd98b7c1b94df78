//! Kubernetes conditions. Transition times change only when the status changes.

use chandler_api::reasons::Reason;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition to write, without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    pub type_: &'static str,
    pub status: Status,
    pub reason: Reason,
    pub message: String,
}

/// The status of a condition.
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

/// The longest message that the API accepts, in bytes.
const LONGEST_MESSAGE: usize = 32_768;

/// Returns the conditions to write: `new`, with the transition times of `old` wherever the status is the same.
pub fn merge(
    old: &[Condition],
    new: Vec<NewCondition>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    new.into_iter()
        .map(|new| {
            let status = new.status.as_str();
            let same = old.iter().find(|c| c.type_ == new.type_ && c.status == status);
            Condition {
                type_: new.type_.to_owned(),
                status: status.to_owned(),
                reason: new.reason.as_str().to_owned(),
                message: truncated(new.message),
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

/// Returns whether the condition of this type has status `True`. Returns `false` if it is absent.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Returns the condition `Ready`: a copy of the first of `parts` that is not true, or `True` with the reason `ready`.
pub fn ready_summary(parts: &[NewCondition], ready: Reason) -> NewCondition {
    parts.iter().find(|part| part.status != Status::True).map_or_else(
        || NewCondition { type_: "Ready", status: Status::True, reason: ready, message: String::new() },
        |part| NewCondition { type_: "Ready", ..part.clone() },
    )
}

fn truncated(mut message: String) -> String {
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

    fn condition(status: Status, message: &str) -> NewCondition {
        NewCondition {
            type_: "Ready",
            status,
            reason: ClusterReason::NotReady.into(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let [first, later] = [1, 2].map(|s| Timestamp::from_second(s).unwrap());
        let old = merge(&[], vec![condition(Status::False, "a")], Some(1), first);
        let message_changed = merge(&old, vec![condition(Status::False, "b")], Some(2), later);
        assert_eq!(message_changed[0].last_transition_time, Time(first));
        let status_changed = merge(&message_changed, vec![condition(Status::True, "b")], Some(2), later);
        assert_eq!(status_changed[0].last_transition_time, Time(later));
    }

    #[test]
    fn a_condition_is_true_only_if_it_exists_with_status_true() {
        let now = Timestamp::from_second(1).unwrap();
        for (status, is) in [(Status::True, true), (Status::False, false), (Status::Unknown, false)] {
            let conditions = merge(&[], vec![condition(status, "")], None, now);
            assert_eq!(is_true(&conditions, "Ready"), is, "{status:?}");
            assert!(find(&conditions, "Ready").is_some() && !is_true(&conditions, "Other"));
        }
    }

    #[test]
    fn unchanged_conditions_are_equal() {
        let now = Timestamp::from_second(1).unwrap();
        let old = merge(&[], vec![condition(Status::True, "")], Some(1), now);
        let again =
            merge(&old, vec![condition(Status::True, "")], Some(1), Timestamp::from_second(9).unwrap());
        assert_eq!(old, again, "equal conditions need no status update");
    }

    #[test]
    fn the_first_part_that_is_not_true_is_the_summary() {
        let parts = [
            condition(Status::True, ""),
            condition(Status::False, "why"),
            condition(Status::Unknown, "later"),
        ];
        assert_eq!(ready_summary(&parts, ClusterReason::Ready.into()).message, "why");
        assert_eq!(ready_summary(&parts[..1], ClusterReason::Ready.into()).status, Status::True);
    }
}
