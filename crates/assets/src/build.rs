//! Runs `go build` and shows how far it is.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::pace::{Pace, Packages};
use crate::progress::ProgressReporter;
use crate::{Error, go};

/// A build that takes less time shows nothing.
const SHORT: Duration = Duration::from_secs(2);

/// Main packages of a Go module.
#[derive(Clone, Copy, Debug)]
pub struct Build<'a> {
    /// The directory of the module.
    pub module: &'a Path,
    /// Flags that are also in the names of packages in Go's build cache, such as `-trimpath`.
    pub flags: &'a [&'a str],
    /// Flags of `go build` alone.
    pub output: &'a [&'a str],
    pub packages: &'a [&'a str],
    /// The usual duration on two cores, after the programs before it were built.
    pub usual: Duration,
}

/// Builds programs one after the other, and learns how fast this machine is.
pub struct Builder<'p> {
    progress: &'p dyn ProgressReporter,
    pace: Pace,
}

impl<'p> Builder<'p> {
    pub fn new(progress: &'p dyn ProgressReporter) -> Self {
        Self { progress, pace: Pace::default() }
    }

    /// Builds the packages. `position` is `(3, 9)` for the third step of nine.
    pub async fn run(
        &mut self,
        title: &str,
        position: Option<(usize, usize)>,
        build: Build<'_>,
    ) -> Result<(), Error> {
        let step = format!("building {title}; {}", self.expected(build.usual));
        let begun = AtomicBool::new(false);
        let (started, compiled, packages) = (Instant::now(), AtomicUsize::new(0), OnceLock::new());
        let count = async {
            tokio::time::sleep(SHORT).await;
            self.progress.begin(&step, position);
            begun.store(true, Ordering::Relaxed);
            // Without it, only the number of compiled packages is shown.
            if let Ok(listed) = go::packages(build.module, build.flags, build.packages).await {
                let missing = listed.missing + compiled.load(Ordering::Relaxed);
                packages.get_or_init(|| Packages { missing, ..listed });
            }
            std::future::pending::<()>().await;
        };
        let show = |number| {
            compiled.store(number, Ordering::Relaxed);
            if begun.load(Ordering::Relaxed) {
                let packages = packages.get().copied();
                self.progress.advance(&self.advanced(build.usual, number, packages, started.elapsed()));
            }
        };
        let arguments = [&["build", "-v"], build.flags, build.output, build.packages].concat();
        tokio::select! {
            result = go::build(build.module, &arguments, show) => result?,
            () = count => {}
        }
        if let Some(packages) = packages.get() {
            self.pace = self.pace.after(packages.usual(build.usual, packages.missing), started.elapsed());
        }
        if begun.into_inner() {
            self.progress.finish(&step);
        }
        Ok(())
    }

    fn expected(&self, usual: Duration) -> String {
        let expected = self.pace.expect(usual);
        if expected == usual {
            format!("usually {} on two cores", format_duration(usual))
        } else {
            format!("about {} on this machine", format_duration(expected))
        }
    }

    fn advanced(
        &self,
        usual: Duration,
        compiled: usize,
        packages: Option<Packages>,
        elapsed: Duration,
    ) -> String {
        let Some(packages) = packages else {
            return format!("{compiled} packages compiled, {}", format_duration(elapsed));
        };
        let done = packages.usual(usual, compiled);
        let left = packages.usual(usual, packages.missing).saturating_sub(done);
        format!(
            "{compiled} of {} packages compiled, {}; about {} left",
            packages.missing,
            format_duration(elapsed),
            format_duration(self.pace.after(done, elapsed).expect(left))
        )
    }
}

/// Formats a duration such as `2 min 30 s`.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn durations_are_formatted_in_minutes_and_seconds() {
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (60, "1 min"), (150, "2 min 30 s")] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn the_rest_is_estimated_from_this_machine() {
        let mut builder = Builder::new(&Silent);
        let usual = Duration::from_secs(100);
        assert_eq!(builder.expected(usual), "usually 1 min 40 s on two cores");
        let packages = Some(Packages { all: 1000, missing: 1000 });
        for (compiled, packages, elapsed, expected) in [
            (7, None, 3, "7 packages compiled, 3 s"),
            (100, packages, 20, "100 of 1000 packages compiled, 20 s; about 1 min 30 s left"),
            (500, packages, 100, "500 of 1000 packages compiled, 1 min 40 s; about 1 min 40 s left"),
        ] {
            let elapsed = Duration::from_secs(elapsed);
            assert_eq!(builder.advanced(usual, compiled, packages, elapsed), expected);
        }
        builder.pace = builder.pace.after(usual, usual * 2);
        assert_eq!(builder.expected(usual), "about 3 min 20 s on this machine");
    }
}
