//! Decides whether hooks stay registered that Cluster API cannot reach.

use std::time::{Duration, Instant};

use crate::{Discovery, FailurePolicy};

/// How long Cluster API may fail to discover the hooks before they are unregistered.
pub const UNREACHABLE_LIMIT: Duration = Duration::from_mins(3);

/// How soon the state of the discovery is read again. Longer than a Cluster API that works takes to discover hooks.
const CHECK: Duration = Duration::from_mins(1);

/// How long Cluster API has failed to discover the hooks.
#[derive(Debug)]
pub struct Reachability {
    policy: FailurePolicy,
    limit: Duration,
    /// Since when the discovery fails. It is kept while the hooks are not registered: after that they get no further time.
    failing_since: Option<Instant>,
}

/// What happens to an ExtensionConfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stays.
    Keep,
    /// It stays, and the state of the discovery is read again after this time.
    CheckAfter(Duration),
    /// It is deleted: Cluster API does not start while an ExtensionConfig exists whose hooks it cannot reach, and with the
    /// failure policy `Ignore` such an ExtensionConfig protects nothing.
    Unregister,
}

impl Reachability {
    pub fn new(policy: FailurePolicy, limit: Duration) -> Self {
        Self { policy, limit, failing_since: None }
    }

    pub fn next(&mut self, discovery: &Discovery, now: Instant) -> Next {
        let check = Next::CheckAfter(CHECK.min(self.limit));
        match discovery {
            Discovery::Discovered => {
                self.failing_since = None;
                Next::Keep
            }
            // Nothing is known: Cluster API may be down.
            Discovery::Pending => check,
            Discovery::Failed(_) => {
                let since = *self.failing_since.get_or_insert(now);
                let is_over = now.duration_since(since) >= self.limit;
                if is_over && self.policy == FailurePolicy::Ignore { Next::Unregister } else { check }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_that_cluster_api_cannot_reach_are_unregistered_if_they_protect_nothing() {
        let (pending, done) = (Discovery::Pending, Discovery::Discovered);
        let failed = Discovery::Failed("refused".to_owned());
        let check = Next::CheckAfter(CHECK);
        let rows = [
            ("reached", vec![(0, &pending, check), (1, &done, Next::Keep)]),
            ("nothing is known", vec![(0, &pending, check), (60, &pending, check)]),
            (
                "fails for minutes",
                vec![(0, &failed, check), (2, &failed, check), (3, &failed, Next::Unregister)],
            ),
            (
                "registered again",
                vec![
                    (0, &failed, check),
                    (3, &failed, Next::Unregister),
                    (13, &pending, check),
                    (14, &failed, Next::Unregister),
                ],
            ),
            (
                "fails again after a success",
                vec![(0, &failed, check), (2, &done, Next::Keep), (12, &failed, check)],
            ),
        ];
        for (name, steps) in rows {
            let begin = Instant::now();
            let mut ignore = Reachability::new(FailurePolicy::Ignore, UNREACHABLE_LIMIT);
            let mut fail = Reachability::new(FailurePolicy::Fail, UNREACHABLE_LIMIT);
            for (minutes, discovery, expected) in steps {
                let now = begin + Duration::from_mins(minutes);
                assert_eq!(ignore.next(discovery, now), expected, "{name} after {minutes} min");
                assert_ne!(fail.next(discovery, now), Next::Unregister, "{name}: upgrades have to wait");
            }
        }
    }
}
