//! Deterministic jitter: spreads work that would otherwise run for all objects at the same time.

use sha2::{Digest as _, Sha256};

/// Returns a number in `0.0..1.0` that depends only on `seed`.
pub fn jitter(seed: &str) -> f64 {
    let hash = Sha256::digest(seed);
    f64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_spread_over_the_whole_range() {
        let all: Vec<_> = (0..1000).map(|n| jitter(&format!("uid-{n}"))).collect();
        assert!(all.iter().all(|one| (0.0..1.0).contains(one)));
        for tenth in 0..10 {
            let from = f64::from(tenth) / 10.0;
            let share = all.iter().filter(|one| (from..from + 0.1).contains(*one)).count();
            assert!((50..200).contains(&share), "{tenth}: {share}");
        }
    }
}
