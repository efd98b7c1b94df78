//! Decides which connections to a hub stay, so that they end at different replicas of it.
//!
//! A load balancer chooses the replica. The agent knows it only after the handshake, and can only try again.

use std::time::Duration;

const FIRST_ATTEMPT: Duration = Duration::from_secs(20);
const LONGEST: Duration = Duration::from_mins(30);

/// A connection and the replica at which it ends. `None` means that it is not known: the connection is not up.
pub type Slot<'a> = (u64, Option<&'a str>);

/// Returns whether another connection could end at another replica: all are up, and two of them end at the same one.
pub fn is_uneven(slots: &[Slot<'_>]) -> bool {
    slots.iter().all(|(_, replica)| replica.is_some())
        && slots
            .iter()
            .enumerate()
            .any(|(index, (_, replica))| slots[..index].iter().any(|(_, other)| other == replica))
}

/// Returns the connection to close when there is one more than wanted. Slots are in the order of their creation.
///
/// The newest one that is not up, or that ends where another one does, is the least useful.
pub fn surplus(slots: &[Slot<'_>]) -> Option<u64> {
    let is_useless = |&&(id, replica): &&Slot<'_>| {
        replica.is_none() || slots.iter().any(|(other, same)| *other != id && *same == replica)
    };
    slots.iter().rev().find(is_useless).or(slots.last()).map(|(id, _)| *id)
}

/// Returns when to try for another replica again after a number of attempts. A hub with a single replica is asked ever
/// less often. `random` is a number from 0 to 1.
pub fn wait(attempts: u32, random: f64) -> Duration {
    let base = FIRST_ATTEMPT.saturating_mul(1 << attempts.min(10)).min(LONGEST);
    base.mul_f64(0.5 + random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_uneven_if_two_end_at_the_same_replica() {
        let rows: [(&[Slot<'_>], bool); 6] = [
            (&[], false),
            (&[(1, Some("a"))], false),
            (&[(1, Some("a")), (2, Some("a"))], true),
            (&[(1, Some("a")), (2, Some("b"))], false),
            (&[(1, Some("a")), (2, None)], false),
            (&[(1, Some("a")), (2, Some("b")), (3, Some("a"))], true),
        ];
        for (slots, expected) in rows {
            assert_eq!(is_uneven(slots), expected, "{slots:?}");
        }
    }

    #[test]
    fn the_least_useful_connection_is_closed() {
        let rows: [(&[Slot<'_>], Option<u64>); 6] = [
            (&[], None),
            (&[(1, Some("a")), (2, Some("a")), (3, Some("a"))], Some(3)),
            (&[(1, Some("a")), (2, Some("a")), (3, Some("b"))], Some(2)),
            (&[(1, Some("a")), (2, Some("b")), (3, Some("c"))], Some(3)),
            (&[(1, Some("a")), (2, Some("a")), (3, None)], Some(3)),
            (&[(1, Some("a")), (2, None), (3, Some("b"))], Some(2)),
        ];
        for (slots, expected) in rows {
            assert_eq!(surplus(slots), expected, "{slots:?}");
        }
    }

    #[test]
    fn attempts_become_rare() {
        let rows = [(0, 0.0, 10), (0, 1.0, 30), (3, 0.5, 160), (7, 0.5, 1_800), (u32::MAX, 1.0, 2_700)];
        for (attempts, random, seconds) in rows {
            assert_eq!(wait(attempts, random), Duration::from_secs(seconds), "after {attempts}");
        }
    }
}
