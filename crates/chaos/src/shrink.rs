//! Shrinks a failing sequence: drops steps one by one while it still fails.

use crate::action::Step;

/// How often a candidate is run. A failure may depend on timing, so a candidate that passes once may still fail.
pub const REPEATS: usize = 3;

/// The search for a shorter failing sequence. It is complete when no single step can be dropped.
#[derive(Clone, Debug)]
pub struct Shrinker {
    failing: Vec<Step>,
    /// The step that the next candidate drops. The last steps are dropped first, because those after the cause of a
    /// failure are not needed.
    next: usize,
    /// The number of candidates that passed since a step was dropped.
    passed: usize,
}

impl Shrinker {
    pub fn new(failing: Vec<Step>) -> Self {
        let next = failing.len().saturating_sub(1);
        Self { failing, next, passed: 0 }
    }

    /// Returns the next candidate, or `None` if every step is needed.
    pub fn candidate(&self) -> Option<Vec<Step>> {
        if self.failing.len() < 2 || self.passed == self.failing.len() {
            return None;
        }
        let mut candidate = self.failing.clone();
        candidate.remove(self.next);
        Some(candidate)
    }

    /// Records whether the last candidate failed in at least one of its runs.
    pub fn record(&mut self, failed: bool) {
        if failed {
            self.failing.remove(self.next);
            self.passed = 0;
        } else {
            self.passed += 1;
        }
        let count = self.failing.len().max(1);
        self.next = (self.next + count - 1) % count;
    }

    /// Returns the shortest sequence that is known to fail.
    pub fn shortest(&self) -> &[Step] {
        &self.failing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::sequence;

    /// Shrinks the sequence of a seed, which fails if it contains all `needed` steps. Returns the numbers of the steps that
    /// are left, and the number of candidates.
    fn shrink(seed: u64, needed: &[usize]) -> (Vec<usize>, usize) {
        let mut shrinker = Shrinker::new(sequence(seed));
        let mut candidates = 0;
        while let Some(candidate) = shrinker.candidate() {
            candidates += 1;
            let numbers: Vec<usize> = candidate.iter().map(|step| step.number).collect();
            shrinker.record(needed.iter().all(|number| numbers.contains(number)));
        }
        (shrinker.shortest().iter().map(|step| step.number).collect(), candidates)
    }

    #[test]
    fn only_the_needed_steps_are_left() {
        for needed in [&[0, 3][..], &[1], &[0, 1, 2, 3, 4, 5], &[6]] {
            let (left, candidates) = shrink(3, needed);
            assert_eq!(left, needed);
            assert!(candidates <= 12 * 12, "{candidates}");
        }
    }

    #[test]
    fn a_sequence_that_needs_all_steps_is_left_unchanged() {
        let all: Vec<usize> = (0..sequence(3).len()).collect();
        assert_eq!(shrink(3, &all), (all.clone(), all.len()));
    }

    #[test]
    fn a_single_step_is_not_dropped() {
        assert_eq!(Shrinker::new(sequence(3)[..1].to_vec()).candidate(), None);
    }
}
