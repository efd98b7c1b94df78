//! How long to wait after a failure.

use std::time::Duration;

use crate::{failure::Category, spread::spread};

const FIRST: Duration = Duration::from_secs(5);
/// For what no retry mends: someone has to change something first, and a changed spec is tried at once anyway.
const FIRST_BY_HAND: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_mins(10);

/// The wait after the `count`-th failure in a row: doubling up to 10 min, spread by a fifth either way so that a fleet
/// that failed together does not retry together. `seed` names the object; equal arguments give equal waits.
pub fn delay(category: Category, count: u32, seed: &str) -> Duration {
    let first = if needs_a_hand(category) { FIRST_BY_HAND } else { FIRST };
    let doublings = count.saturating_sub(1).min(16);
    let base = first.saturating_mul(1 << doublings).min(LONGEST);
    base.mul_f64(0.8 + 0.4 * spread(&format!("{seed}/{count}")))
}

/// Whether someone has to change something before another try can succeed.
pub fn needs_a_hand(category: Category) -> bool {
    matches!(
        category,
        Category::InvalidPackage
            | Category::InvalidValues
            | Category::InvalidSpec
            | Category::Conflict
            | Category::Forbidden
            | Category::Rejected
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_stay_within_a_fifth() {
        use Category::{Conflict, Timeout};
        let rows = [
            (Timeout, 0, 5),
            (Timeout, 1, 5),
            (Timeout, 2, 10),
            (Timeout, 3, 20),
            (Timeout, 5, 80),
            (Timeout, 8, 600),
            (Timeout, 1000, 600),
            (Conflict, 1, 60),
            (Conflict, 2, 120),
            (Conflict, 9, 600),
        ];
        for (category, count, seconds) in rows {
            let wait = delay(category, count, "fleet/blue").as_secs_f64();
            let base = f64::from(seconds);
            assert!((base * 0.8..=base * 1.2).contains(&wait), "{category} {count}: {wait}");
        }
    }

    #[test]
    fn objects_spread() {
        let waits: std::collections::HashSet<_> =
            (0..100).map(|n| delay(Category::Timeout, 4, &format!("cluster-{n}"))).collect();
        assert!(waits.len() > 90);
    }
}
