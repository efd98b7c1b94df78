//! The manager's flags for the leader election Lease.

use std::time::Duration;

use chandler_core::leadership::{InvalidLeaseTimes, LeaseTimes};
use clap::Args;

/// The timing of the Lease.
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// Duration of the leader election Lease in seconds; another manager takes over when the leader has not renewed it
    /// for this time and a third more
    #[arg(long = "lease-seconds", value_name = "LEASE_SECONDS", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    duration: u64,
    /// Time in seconds after which a leader that cannot renew the Lease stops; less than --lease-seconds [default: two
    /// thirds of --lease-seconds]
    #[arg(long = "lease-renew-deadline-seconds", value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    renew_deadline: Option<u64>,
    /// Interval in seconds at which the leader renews the Lease, less than --lease-renew-deadline-seconds; a standby reads
    /// it twice as often [default: a third of --lease-seconds]
    #[arg(long = "lease-retry-seconds", value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    retry_period: Option<u64>,
}

impl LeaseArgs {
    pub fn times(&self) -> Result<LeaseTimes, InvalidLeaseTimes> {
        let Self { duration, renew_deadline, retry_period } = *self;
        LeaseTimes::new(
            Duration::from_secs(duration),
            renew_deadline.map(Duration::from_secs),
            retry_period.map(Duration::from_secs),
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        lease: LeaseArgs,
    }

    #[test]
    fn flags_set_the_times_of_the_lease() {
        let times = |line: &str| {
            let words = ["manager"].into_iter().chain(line.split_ascii_whitespace());
            Flags::try_parse_from(words).ok()?.lease.times().ok()
        };
        let seconds = |duration, deadline, retry| {
            let [duration, deadline, retry] = [duration, deadline, retry].map(Duration::from_secs);
            LeaseTimes::new(duration, Some(deadline), Some(retry)).ok()
        };
        assert_eq!(times(""), seconds(15, 10, 5));
        assert_eq!(times("--lease-seconds 30"), seconds(30, 20, 10));
        let all = "--lease-seconds 6 --lease-renew-deadline-seconds 3 --lease-retry-seconds 1";
        assert_eq!(times(all), seconds(6, 3, 1));
        assert_eq!(times("--lease-renew-deadline-seconds 15"), None, "the leader would not stop in time");
        assert_eq!(times("--lease-retry-seconds 0"), None);
    }
}
