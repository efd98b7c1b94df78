//! Flags that limit what the objects of one namespace may use.

use std::time::Duration;

use chandler_controller::Quotas;
use clap::Args;

/// Flags that limit what the objects of one namespace may use.
#[derive(Debug, Args)]
pub struct QuotaFlags {
    /// Maximum number of concurrent operations on the clusters of one namespace; 0 means that a namespace may use all slots while no
    /// other one needs them
    #[arg(long, default_value_t = 0)]
    concurrency_per_namespace: usize,
    /// How many seconds per minute the value templates of one namespace may take; beyond it, they are evaluated later; 0 means that
    /// this is not limited
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    template_seconds_per_minute: u64,
    /// Longest timeout of an operation in seconds; a longer `options.timeout` of a release is treated like this one
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    max_timeout_seconds: u64,
}

impl QuotaFlags {
    /// Returns the quotas, and the limit of operations per namespace.
    pub fn quotas(&self) -> (Quotas, Option<usize>) {
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds)).filter(|time| !time.is_zero());
        let quotas = Quotas {
            template_time: seconds(self.template_seconds_per_minute),
            max_timeout: Duration::from_secs(self.max_timeout_seconds),
        };
        (quotas, Some(self.concurrency_per_namespace).filter(|limit| *limit > 0))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        quotas: QuotaFlags,
    }

    #[test]
    fn zero_means_no_limit_and_is_the_default_for_templates() {
        let quotas =
            |arguments: &[&str]| Flags::parse_from(["manager"].iter().chain(arguments)).quotas.quotas();
        assert_eq!(quotas(&[]), (Quotas::default(), None));
        assert_eq!(quotas(&[]).0.template_time, None);
        assert_eq!(quotas(&["--template-seconds-per-minute", "0"]).0.template_time, None);
        let (limited, per_namespace) =
            quotas(&["--template-seconds-per-minute", "30", "--concurrency-per-namespace", "3"]);
        assert_eq!((limited.template_time, per_namespace), (Some(Duration::from_secs(30)), Some(3)));
    }
}
