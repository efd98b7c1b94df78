//! The cache of evaluated templates. Its size follows the number of placements and clusters that use it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::{digest::Digest, identity::ClusterKey};

use crate::{locks::Mutex, queue::RESYNC};

/// How long a result is kept without being used. All clusters of a placement are reconciled within [`RESYNC`], so a
/// result that is older belongs to a placement or cluster that no longer exists, or is not needed.
const UNUSED: Duration = RESYNC.saturating_mul(3);
/// How often unused results are removed.
const SWEEP: Duration = Duration::from_mins(1);

/// The last result of each placement and cluster. Clones share the cache.
#[derive(Clone, Default)]
pub struct Evaluations(Arc<Mutex<Results>>);

#[derive(Default)]
struct Results {
    /// By the uid of the placement and the cluster.
    results: HashMap<(String, ClusterKey), Evaluated>,
    swept: Option<Instant>,
}

struct Evaluated {
    /// Of template and data.
    input: Digest,
    text: String,
    used: Instant,
}

impl Evaluations {
    /// Returns the result for a placement and cluster if it was evaluated from the same input.
    pub fn get(&self, placement: &str, cluster: &ClusterKey, input: &Digest) -> Option<String> {
        self.0.lock().get(placement, cluster, input, Instant::now())
    }

    pub fn insert(&self, placement: &str, cluster: &ClusterKey, input: Digest, text: String) {
        self.0.lock().insert(placement, cluster, input, text, Instant::now());
    }
}

impl Results {
    fn get(&mut self, placement: &str, cluster: &ClusterKey, input: &Digest, now: Instant) -> Option<String> {
        let known = self.results.get_mut(&(placement.to_owned(), cluster.clone()))?;
        if known.input != *input {
            return None;
        }
        known.used = now;
        Some(known.text.clone())
    }

    fn insert(&mut self, placement: &str, cluster: &ClusterKey, input: Digest, text: String, now: Instant) {
        if self.swept.is_none_or(|swept| now.duration_since(swept) >= SWEEP) {
            self.results.retain(|_, known| now.duration_since(known.used) < UNUSED);
            self.swept = Some(now);
        }
        let known = Evaluated { input, text, used: now };
        self.results.insert((placement.to_owned(), cluster.clone()), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(number: usize) -> ClusterKey {
        ClusterKey::new("fleet", format!("c{number}"))
    }

    #[test]
    fn a_large_fleet_stays_cached() {
        let (mut results, start) = (Results::default(), Instant::now());
        let input = Digest::of("template and data");
        let rounds = 4;
        for placement in 0..11 {
            for number in 0..1_000 {
                results.insert(&placement.to_string(), &cluster(number), input.clone(), String::new(), start);
            }
        }
        for round in 1..=rounds {
            let now = start + RESYNC * round;
            results.insert("new", &cluster(0), input.clone(), String::new(), now);
            for placement in 0..11 {
                let found = |number| results.get(&placement.to_string(), &cluster(number), &input, now);
                assert_eq!((0..1_000).filter_map(found).count(), 1_000, "round {round}");
            }
        }
    }

    #[test]
    fn results_of_placements_and_clusters_that_no_longer_exist_are_removed() {
        let (mut results, start) = (Results::default(), Instant::now());
        let input = Digest::of("template and data");
        for (placement, number) in [("kept", 1), ("kept", 2), ("deleted", 1)] {
            results.insert(placement, &cluster(number), input.clone(), "text".to_owned(), start);
        }
        for round in 1..=4 {
            let now = start + RESYNC * round;
            assert!(results.get("kept", &cluster(1), &input, now).is_some());
            results.insert("other", &cluster(1), input.clone(), String::new(), now);
        }
        let mut left: Vec<_> = results
            .results
            .keys()
            .map(|(placement, cluster)| format!("{placement} {}", cluster.name))
            .collect();
        left.sort();
        assert_eq!(left, ["kept c1", "other c1"]);
    }

    #[test]
    fn another_input_is_evaluated_again() {
        let evaluations = Evaluations::default();
        let (old, new) = (Digest::of("old"), Digest::of("new"));
        evaluations.insert("uid", &cluster(1), old.clone(), "text".to_owned());
        assert_eq!(evaluations.get("uid", &cluster(1), &old).as_deref(), Some("text"));
        assert_eq!(evaluations.get("uid", &cluster(1), &new), None);
        assert_eq!(evaluations.get("another", &cluster(1), &old), None);
    }
}
