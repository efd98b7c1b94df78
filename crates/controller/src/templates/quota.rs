//! Limits how much of the template service each namespace uses: how many calls at the same time, and how much time per minute.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::time_budget::TimeBudgets;
use chandler_source::{NamespacePermit, NamespaceSemaphore};

use crate::{
    locks::Mutex,
    metrics::{Metrics, Quota},
    placement::ComposeError,
};

/// Number of concurrent calls of the template service. A namespace gets at most three quarters of them.
const CONCURRENT_CALLS: usize = 4;
/// Number of inputs of the first call. If it takes long, only a few more are evaluated before the budget is checked again.
const FIRST_INPUTS: usize = 16;
/// A call that takes longer is followed by small ones.
const LONG: Duration = Duration::from_secs(1);

/// The quotas of all namespaces. Clones share them.
#[derive(Clone)]
pub struct TemplateQuota {
    slots: Arc<NamespaceSemaphore>,
    /// `None` means that time is not limited.
    budgets: Option<Arc<Mutex<TimeBudgets>>>,
    per_minute: Duration,
    start: Instant,
    metrics: Metrics,
}

impl TemplateQuota {
    /// Creates quotas of so much time per minute. `None` means that time is not limited.
    pub fn new(per_minute: Option<Duration>, metrics: Metrics) -> Self {
        Self {
            slots: Arc::new(NamespaceSemaphore::new(CONCURRENT_CALLS)),
            budgets: per_minute.map(|per_minute| Arc::new(Mutex::new(TimeBudgets::new(per_minute)))),
            per_minute: per_minute.unwrap_or_default(),
            start: Instant::now(),
            metrics,
        }
    }

    /// Returns whether a namespace has used up its time.
    pub fn is_used_up(&self, namespace: &str) -> bool {
        let Some(budgets) = &self.budgets else { return false };
        let is_used_up = budgets.lock().wait(namespace, self.start.elapsed()).is_some();
        if is_used_up {
            self.metrics.quota_reached(Quota::Templates);
        }
        is_used_up
    }

    /// Returns why templates of a namespace that has used up its time are not evaluated.
    pub fn refusal(&self, namespace: &str) -> ComposeError {
        ComposeError::TemplateQuota { namespace: namespace.to_owned(), seconds: self.per_minute.as_secs() }
    }

    /// Waits for a slot.
    pub async fn slot(&self, namespace: &str) -> Option<NamespacePermit> {
        self.slots.wait(namespace).await
    }

    /// Records how long a call of a namespace has taken.
    pub fn charge(&self, namespace: &str, time: Duration) {
        if let Some(budgets) = &self.budgets {
            budgets.lock().charge(namespace, time, self.start.elapsed());
        }
    }
}

/// Returns how many inputs the next call gets, after one with `last` inputs that has taken this `time`. `None` means that it is the
/// first one.
pub fn next_inputs(last: Option<(usize, Duration)>) -> usize {
    match last {
        None => FIRST_INPUTS,
        Some((_, time)) if time > LONG => 1,
        Some((inputs, _)) => (inputs * 4).max(FIRST_INPUTS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_has_used_up_its_time_is_refused() {
        let quota = TemplateQuota::new(Some(Duration::from_secs(20)), Metrics::new());
        assert!(!quota.is_used_up("slow"));
        quota.charge("slow", Duration::from_secs(21));
        assert!(quota.is_used_up("slow") && !quota.is_used_up("other"));
        let message = quota.refusal("slow").to_string();
        assert!(message.contains("namespace slow") && message.contains("20 s"), "{message}");
        let unlimited = TemplateQuota::new(None, Metrics::new());
        unlimited.charge("slow", Duration::from_hours(1));
        assert!(!unlimited.is_used_up("slow"));
    }

    #[test]
    fn calls_become_large_if_they_are_quick_and_small_if_not() {
        let quick = Duration::from_millis(10);
        assert_eq!(next_inputs(None), FIRST_INPUTS);
        assert_eq!(next_inputs(Some((FIRST_INPUTS, quick))), 4 * FIRST_INPUTS);
        assert_eq!(next_inputs(Some((4 * FIRST_INPUTS, LONG * 2))), 1);
        assert_eq!(next_inputs(Some((1, quick))), FIRST_INPUTS);
    }
}
