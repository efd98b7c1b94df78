//! Limits how much work a resolution is.
//!
//! Versions and dependencies come from tenants, and there are small sets of them for which the solver takes exponential time.

use std::cell::Cell;

/// Steps of the search for versions that satisfy all requests. Usual clusters need a few hundred.
pub(super) const STEPS: u32 = 4_000;
/// Steps of the search for one extension alone, which shows whether it is the one that is too complex.
const STEPS_ALONE: u32 = STEPS / 20;
/// Steps of all searches of a resolution: the requests that are too complex are left out until the others can be resolved.
const STEPS_IN_TOTAL: u32 = STEPS * 10;

/// The steps that the solver may still take. It counts steps and not time, so that equal input gives equal results.
#[derive(Debug)]
pub(super) struct Budget {
    total: Cell<u32>,
    search: Cell<u32>,
}

/// The error of a search that has taken all of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of steps is reached")]
pub(super) struct Exhausted;

impl Budget {
    pub fn new() -> Self {
        Self { total: Cell::new(STEPS_IN_TOTAL), search: Cell::new(0) }
    }

    /// Starts a search for versions that satisfy all requests.
    pub fn start(&self) {
        self.search.set(STEPS.min(self.total.get()));
    }

    /// Starts a search for one extension alone.
    pub fn start_alone(&self) {
        self.search.set(STEPS_ALONE.min(self.total.get()));
    }

    /// Takes steps of the search.
    pub fn take(&self, steps: u32) -> Result<(), Exhausted> {
        self.total.set(self.total.get().saturating_sub(steps));
        self.search.set(self.search.get().saturating_sub(steps));
        if self.search.get() == 0 { Err(Exhausted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_and_so_do_all_searches_together() {
        let budget = Budget::new();
        assert_eq!(budget.take(1), Err(Exhausted), "no search has started");
        budget.start_alone();
        assert_eq!(budget.take(STEPS_ALONE - 1), Ok(()));
        assert_eq!(budget.take(1), Err(Exhausted));
        for _ in 0..9 {
            budget.start();
            assert_eq!(budget.take(STEPS - 1), Ok(()));
            assert_eq!(budget.take(5), Err(Exhausted));
        }
        budget.start();
        assert_eq!(budget.take(STEPS - STEPS_ALONE), Err(Exhausted), "less than a search is left");
        budget.start();
        assert_eq!(budget.take(1), Err(Exhausted), "nothing is left");
    }
}
