//! Metrics of the resources that namespaces share.

use std::{cmp::Reverse, sync::atomic::Ordering};

use chandler_source::QuotaUsage;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::{
    Registering,
    labels::{Quota, QuotaLabels},
};

/// How many namespaces have a series of their own per resource: those that use most. The others are summed up.
const NAMESPACES: usize = 10;
/// The label of all other namespaces. It is not a valid name of a namespace.
const OTHERS: &str = "_others";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct UsageLabels {
    resource: &'static str,
    namespace: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabels {
    resource: &'static str,
}

/// Metrics of quotas.
#[derive(Clone, Debug)]
pub(super) struct QuotaMetrics {
    used: Family<UsageLabels, Gauge>,
    refusals: Family<ResourceLabels, Counter>,
    reached: Family<QuotaLabels, Counter>,
}

impl QuotaMetrics {
    pub fn new(to: &mut Registering) -> Self {
        let reached = to.add(
            "quota_reached",
            "How often work of a namespace had to wait, or was limited, by quota: operations, reconciles, templates, timeout",
            Family::<QuotaLabels, Counter>::default(),
        );
        // The series exist early, because `increase()` misses the first sample of a new series.
        for quota in Quota::ALL {
            drop(reached.get_or_create(&QuotaLabels { quota: quota.as_str() }));
        }
        Self {
            reached,
            used: to.add(
                "quota_used_bytes",
                "Bytes of the package store (store) and of cached indexes (index) that a namespace uses: the ten that use most, \
                 and all others together",
                Family::default(),
            ),
            refusals: to.add(
                "quota_refusals",
                "How often a namespace was refused space in the package store (store) or for an index (index)",
                Family::default(),
            ),
        }
    }

    pub fn reached(&self, quota: Quota) {
        self.reached.get_or_create(&QuotaLabels { quota: quota.as_str() }).inc();
    }

    pub fn set(&self, usage: impl IntoIterator<Item = QuotaUsage>) {
        self.used.clear();
        for QuotaUsage { resource, used, refusals } in usage {
            for (namespace, bytes) in largest(used) {
                let labels = UsageLabels { resource, namespace };
                self.used.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
            let counter = self.refusals.get_or_create(&ResourceLabels { resource });
            counter.inner().store(refusals, Ordering::Relaxed);
        }
    }
}

/// Returns the namespaces that use most, and the sum of all others.
fn largest(mut used: Vec<(String, u64)>) -> Vec<(String, u64)> {
    used.sort_by(|one, other| (Reverse(one.1), &one.0).cmp(&(Reverse(other.1), &other.0)));
    let others: u64 = used.iter().skip(NAMESPACES).map(|(_, bytes)| bytes).sum();
    used.truncate(NAMESPACES);
    if others > 0 {
        used.push((OTHERS.to_owned(), others));
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_series_is_limited() {
        let used = (1..=100).map(|number| (format!("team-{number:03}"), number)).collect();
        let shown = largest(used);
        assert_eq!(shown.len(), NAMESPACES + 1);
        assert_eq!(shown[0], ("team-100".to_owned(), 100));
        assert_eq!(shown[10], (OTHERS.to_owned(), (1..=90).sum()));
        assert_eq!(largest(vec![("a".to_owned(), 1)]).len(), 1);
    }
}
