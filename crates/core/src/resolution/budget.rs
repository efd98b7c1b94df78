//! Limits how much work a resolution is.
//!
//! Versions and dependencies come from tenants, and there are small sets of them for which the solver takes exponential time. The
//! number of its decisions says little about that: they become slower the more conflicts it has learned from. So the operations on
//! sets of versions are counted, which nearly all of its time is spent on. They are counted and not timed, so that equal input gives
//! equal results.

use std::cell::Cell;

/// Steps of the search for versions that satisfy all requests: about 100 ms. A cluster with 1000 extensions needs less than a
/// tenth.
pub(super) const STEPS: u64 = 2_000_000;
/// Steps of the search for one extension alone, which shows whether it is the one that is too complex.
const STEPS_ALONE: u64 = STEPS / 20;
/// Steps of all searches of a resolution: the requests that are too complex are left out until the others can be resolved.
const STEPS_IN_TOTAL: u64 = STEPS * 5;
/// Steps that only searches for extensions of the platform may take, so that those of a tenant cannot use up all.
const RESERVED: u64 = STEPS;

thread_local! {
    /// The steps that this thread has taken. The solver passes no context to operations on sets.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts steps of the search that runs on this thread.
pub(super) fn count(steps: usize) {
    let steps = u64::try_from(steps).unwrap_or(u64::MAX);
    TAKEN.with(|taken| taken.set(taken.get().wrapping_add(steps)));
}

/// The steps that the searches of a resolution may still take.
#[derive(Debug)]
pub(super) struct Budget {
    total: Cell<u64>,
    search: Cell<u64>,
    /// The steps of this thread that are already subtracted.
    subtracted: Cell<u64>,
}

/// The error of a search that has taken all of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of steps is reached")]
pub(super) struct Exhausted;

impl Budget {
    pub fn new() -> Self {
        let subtracted = Cell::new(TAKEN.with(Cell::get));
        Self { total: Cell::new(STEPS_IN_TOTAL), search: Cell::new(0), subtracted }
    }

    /// Starts a search for versions that satisfy all requests. `of_platform` is set if all of them are for extensions of the platform.
    pub fn start(&self, of_platform: bool) -> Result<(), Exhausted> {
        self.start_with(STEPS, if of_platform { 0 } else { RESERVED })
    }

    /// Starts a search for one extension alone. One of a tenant leaves enough for the search without those that are too complex.
    pub fn start_alone(&self, of_platform: bool) -> Result<(), Exhausted> {
        self.start_with(STEPS_ALONE, if of_platform { 0 } else { RESERVED + STEPS })
    }

    /// Starts a search that leaves so many steps.
    fn start_with(&self, steps: u64, left: u64) -> Result<(), Exhausted> {
        self.subtract();
        self.search.set(steps.min(self.total.get().saturating_sub(left)));
        self.check()
    }

    /// Fails if the search has taken all of its steps.
    pub fn check(&self) -> Result<(), Exhausted> {
        self.subtract();
        if self.search.get() == 0 { Err(Exhausted) } else { Ok(()) }
    }

    fn subtract(&self) {
        let taken = TAKEN.with(Cell::get);
        let new = taken.wrapping_sub(self.subtracted.replace(taken));
        for left in [&self.total, &self.search] {
            left.set(left.get().saturating_sub(new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(steps: u64) {
        count(usize::try_from(steps).unwrap());
    }

    #[test]
    fn a_search_ends_and_so_do_all_searches_together() {
        take(7);
        let budget = Budget::new();
        assert_eq!(budget.check(), Err(Exhausted), "no search has started");
        assert_eq!(budget.start_alone(true), Ok(()));
        take(STEPS_ALONE - 1);
        assert_eq!(budget.check(), Ok(()));
        take(1);
        assert_eq!(budget.check(), Err(Exhausted));
        for _ in 0..4 {
            assert_eq!(budget.start(true), Ok(()));
            take(STEPS);
            assert_eq!(budget.check(), Err(Exhausted));
        }
        assert_eq!(budget.start(true), Ok(()));
        take(STEPS - STEPS_ALONE);
        assert_eq!(budget.check(), Err(Exhausted), "less than a search was left");
        assert_eq!(budget.start(true), Err(Exhausted), "nothing is left");
    }

    #[test]
    fn a_part_is_reserved_for_the_platform() {
        let budget = Budget::new();
        assert_eq!(budget.start(false), Ok(()));
        take(STEPS_IN_TOTAL - RESERVED - STEPS - 1);
        assert_eq!(budget.start_alone(false), Ok(()));
        take(1);
        assert_eq!(budget.check(), Err(Exhausted));
        assert_eq!(budget.start_alone(false), Err(Exhausted), "the others are still searched for");
        assert_eq!(budget.start(false), Ok(()));
        take(STEPS);
        assert_eq!((budget.start_alone(false), budget.start(false)), (Err(Exhausted), Err(Exhausted)));
        assert_eq!((budget.start_alone(true), budget.start(true)), (Ok(()), Ok(())));
        take(RESERVED);
        assert_eq!(budget.start(true), Err(Exhausted));
    }
}
