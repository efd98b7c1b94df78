//! One direction of a link: when a packet arrives, or that it is lost.

use std::time::Duration;

use tokio::time::Instant;

use super::Conditions;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives(Instant),
    /// Lost at random.
    Lost,
    /// Lost because too many packets wait before it.
    Overflowed,
}

/// One direction of a link, shared by all its packets.
#[derive(Debug)]
pub(super) struct Lane {
    conditions: Conditions,
    /// When the packets that were accepted so far have left.
    free_at: Instant,
    random: fastrand::Rng,
}

impl Lane {
    pub(super) fn new(conditions: Conditions, seed: u64) -> Self {
        Self { conditions, free_at: Instant::now(), random: fastrand::Rng::with_seed(seed) }
    }

    /// Decides about a packet that enters the link.
    pub(super) fn send(&mut self, now: Instant, bytes: usize) -> Fate {
        let starts = self.free_at.max(now);
        if starts - now > self.conditions.queue {
            return Fate::Overflowed;
        }
        self.free_at = starts + self.transmission(bytes);
        // It is lost on its way, so it has taken its share of the rate.
        if self.random.f64() < self.conditions.loss {
            return Fate::Lost;
        }
        Fate::Arrives(self.free_at + self.conditions.delay)
    }

    fn transmission(&self, bytes: usize) -> Duration {
        let bits = bytes as u64 * 8;
        // Megabits per second are bits per microsecond.
        Duration::from_nanos(bits * 1_000 / u64::from(self.conditions.megabits_per_second.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn conditions() -> Conditions {
        Conditions::new(200, 50 * MS)
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let mut lane = Lane::new(conditions(), 1);
        let start = lane.free_at;
        let rows = [
            // (sent at, bytes, arrives at), where 25,000 bytes take a millisecond
            (0, 25_000, 26),
            (0, 25_000, 27),
            (1, 50_000, 29),
            (10, 25_000, 36),
            (10, 0, 36),
        ];
        for (sent, bytes, arrives) in rows {
            let fate = lane.send(start + sent * MS, bytes);
            assert_eq!(fate, Fate::Arrives(start + arrives * MS), "{bytes} bytes at {sent} ms");
        }
    }

    #[test]
    fn packets_that_would_wait_too_long_are_lost() {
        let mut lane = Lane::new(Conditions { queue: 2 * MS, ..conditions() }, 1);
        let start = lane.free_at;
        let fates: Vec<_> = (0..5).map(|_| lane.send(start, 25_000)).collect();
        let arrives = |at: u32| Fate::Arrives(start + at * MS);
        assert_eq!(fates, [arrives(26), arrives(27), arrives(28), Fate::Overflowed, Fate::Overflowed]);
        assert_eq!(lane.send(start + MS, 25_000), arrives(29), "there is room again");
    }

    #[test]
    fn a_seed_gives_the_same_losses_again() {
        let losses = |seed| {
            let mut lane = Lane::new(conditions().with_loss(0.05), seed);
            let start = lane.free_at;
            let fates = (0..10_000_u32).map(|number| lane.send(start + number * MS, 1_500));
            fates.map(|fate| fate == Fate::Lost).collect::<Vec<_>>()
        };
        let lost = losses(1).into_iter().filter(|is_lost| *is_lost).count();
        assert!((400..600).contains(&lost), "{lost} of 10,000 are lost");
        assert_eq!(losses(1), losses(1));
        assert_ne!(losses(1), losses(2));
    }
}
