//! How long to wait after a failure.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_mins(10);

/// The wait after the `count`-th failure in a row: doubling from 5 s to 10 min, spread by a fifth either way so that a
/// fleet that failed together does not retry together. `seed` names the object; equal arguments give equal waits.
pub fn delay(count: u32, seed: &str) -> Duration {
    let doublings = count.saturating_sub(1).min(16);
    let base = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    base.mul_f64(0.8 + 0.4 * spread(count, seed))
}

/// A number from 0 to 1 that depends on nothing but the arguments.
fn spread(count: u32, seed: &str) -> f64 {
    let hash = Sha256::digest(format!("{seed}/{count}"));
    f64::from(u16::from_be_bytes([hash[0], hash[1]])) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_stay_within_a_fifth() {
        for (count, seconds) in [(0, 5), (1, 5), (2, 10), (3, 20), (5, 80), (8, 600), (1000, 600)] {
            let wait = delay(count, "fleet/blue").as_secs_f64();
            let base = f64::from(seconds);
            assert!((base * 0.8..=base * 1.2).contains(&wait), "{count}: {wait}");
        }
    }

    #[test]
    fn objects_spread() {
        let waits: std::collections::HashSet<_> =
            (0..100).map(|n| delay(4, &format!("cluster-{n}"))).collect();
        assert!(waits.len() > 90);
    }
}
