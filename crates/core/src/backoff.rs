//! Delays between retries.

use std::time::Duration;

use crate::{failure::Category, jitter::jitter};

const FIRST: Duration = Duration::from_secs(5);
/// For failures that a retry alone does not fix. A changed spec is tried at once anyway.
const FIRST_AFTER_USER_ERROR: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_mins(10);

/// Returns the delay after the `count`-th consecutive failure.
///
/// It doubles up to 10 min, with a jitter of 20 % in either direction so that clusters that failed at the same time do
/// not retry at the same time. `seed` identifies the object; equal arguments give equal delays.
pub fn delay(category: Category, count: u32, seed: &str) -> Duration {
    let first = if needs_user_action(category) { FIRST_AFTER_USER_ERROR } else { FIRST };
    let doublings = count.saturating_sub(1).min(16);
    let base = first.saturating_mul(1 << doublings).min(LONGEST);
    jittered(base, count, seed)
}

/// Returns `base` with a jitter of 20 % in either direction.
pub fn jittered(base: Duration, count: u32, seed: &str) -> Duration {
    base.mul_f64(0.8 + 0.4 * jitter(&format!("{seed}/{count}")))
}

/// Returns whether a user has to change something before a retry can succeed.
pub fn needs_user_action(category: Category) -> bool {
    matches!(
        category,
        Category::InvalidPackage
            | Category::InvalidValues
            | Category::InvalidSpec
            | Category::Conflict
            | Category::Forbidden
            | Category::NotAllowed
            | Category::Rejected
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_with_bounded_jitter() {
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
            let delay = delay(category, count, "fleet/blue").as_secs_f64();
            let base = f64::from(seconds);
            assert!((base * 0.8..=base * 1.2).contains(&delay), "{category} {count}: {delay}");
        }
    }

    #[test]
    fn objects_have_different_delays() {
        let delays: std::collections::HashSet<_> =
            (0..100).map(|n| delay(Category::Timeout, 4, &format!("cluster-{n}"))).collect();
        assert!(delays.len() > 90);
    }
}
