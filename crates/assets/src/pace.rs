//! Estimates the duration of builds on this machine.

use std::time::Duration;

/// Until this much was built, a machine counts as fast as the one on which the usual times were measured.
const LEARN_AFTER: Duration = Duration::from_mins(1);

/// The speed of this machine, learned from the builds that it has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The usual duration of the work that is done.
    usual: Duration,
    /// The duration of that work here.
    took: Duration,
}

impl Pace {
    /// Returns the pace after further work.
    pub(crate) fn after(self, usual: Duration, took: Duration) -> Self {
        Self { usual: self.usual + usual, took: self.took + took }
    }

    /// Returns how long work probably takes here that usually takes `usual`.
    pub(crate) fn expect(self, usual: Duration) -> Duration {
        if self.took < LEARN_AFTER || self.usual.is_zero() {
            return usual;
        }
        usual.mul_f64(self.took.div_duration_f64(self.usual))
    }
}

/// The packages of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packages {
    pub(crate) all: usize,
    /// The packages that Go's build cache does not contain.
    pub(crate) missing: usize,
}

impl Packages {
    /// Returns how long it usually takes to compile this many of them, if all of them take `usual`.
    pub(crate) fn usual(self, usual: Duration, compiled: usize) -> Duration {
        // Exact enough: a build has a few thousand packages.
        let ratio = |part: usize| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
        usual.mul_f64(ratio(compiled.min(self.missing)) / ratio(self.all.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn estimates_follow_the_machine_after_a_minute() {
        let rows = [
            // (usual, took) of what is done, usual time of the rest, expected.
            (0, 0, 300, 300),
            (10, 59, 300, 300),
            (30, 60, 300, 600),
            (240, 60, 300, 75),
            (0, 90, 300, 300),
        ];
        for (usual, took, rest, expected) in rows {
            let pace = Pace::default().after(seconds(usual), seconds(took));
            assert_eq!(pace.expect(seconds(rest)), seconds(expected), "{usual} s took {took} s");
        }
        let twice = Pace::default().after(seconds(30), seconds(50)).after(seconds(30), seconds(70));
        assert_eq!(twice.expect(seconds(10)), seconds(20));
    }

    #[test]
    fn packages_in_the_build_cache_take_no_time() {
        let packages = Packages { all: 1000, missing: 400 };
        for (compiled, expected) in [(0, 0), (100, 30), (400, 120), (401, 120)] {
            assert_eq!(packages.usual(seconds(300), compiled), seconds(expected), "{compiled}");
        }
        assert_eq!(Packages { all: 0, missing: 0 }.usual(seconds(300), 1), Duration::ZERO);
    }
}
