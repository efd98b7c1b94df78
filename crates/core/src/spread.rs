//! Spreads what would happen at once: each object has a time of its own, always the same.

use sha2::{Digest as _, Sha256};

/// A number from 0 up to 1 that depends on nothing but the seed.
pub fn spread(seed: &str) -> f64 {
    let hash = Sha256::digest(seed);
    f64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_spread_over_the_whole() {
        let all: Vec<_> = (0..1000).map(|n| spread(&format!("uid-{n}"))).collect();
        assert!(all.iter().all(|one| (0.0..1.0).contains(one)));
        for tenth in 0..10 {
            let from = f64::from(tenth) / 10.0;
            let share = all.iter().filter(|one| (from..from + 0.1).contains(*one)).count();
            assert!((50..200).contains(&share), "{tenth}: {share}");
        }
    }
}
