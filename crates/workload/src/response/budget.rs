//! The memory that responses of the clusters of a namespace may take at the same time.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How many bytes of responses the clusters of one namespace may have Chandler keep at the same time. Clusters of other
/// namespaces have their own.
const MAX_NAMESPACE: usize = 256 << 20;

/// The responses that are being read are too large together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the responses of all clusters of namespace {namespace} that are being read have more than {} MiB together; Chandler tries \
     again later", MAX_NAMESPACE >> 20
)]
pub struct BudgetExceeded {
    namespace: String,
}

/// What the responses of the clusters of each namespace take. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ResponseBudgets(Arc<Mutex<HashMap<String, Weak<NamespaceBudget>>>>);

#[derive(Debug)]
struct NamespaceBudget {
    namespace: String,
    used: AtomicUsize,
}

impl ResponseBudgets {
    /// Returns an empty reservation for a response of a cluster in `namespace`.
    pub fn reservation(&self, namespace: &str) -> Reservation {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = budgets.get(namespace).and_then(Weak::upgrade);
        let budget = known.unwrap_or_else(|| {
            budgets.retain(|_, budget| budget.strong_count() > 0);
            let budget =
                Arc::new(NamespaceBudget { namespace: namespace.to_owned(), used: AtomicUsize::new(0) });
            budgets.insert(namespace.to_owned(), Arc::downgrade(&budget));
            budget
        });
        Reservation { budget, bytes: 0 }
    }
}

/// The bytes of one response. They are released when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<NamespaceBudget>,
    bytes: usize,
}

impl Reservation {
    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        if bytes <= self.bytes {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
            return Ok(());
        }
        let more = bytes - self.bytes;
        let used = self.budget.used.fetch_add(more, Ordering::Relaxed);
        self.bytes = bytes;
        if used.saturating_add(more) > MAX_NAMESPACE {
            return Err(BudgetExceeded { namespace: self.budget.namespace.clone() });
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_responses_of_a_namespace_share_a_budget_and_release_it() {
        let budgets = ResponseBudgets::default();
        let (mut first, mut second) = (budgets.reservation("fleet"), budgets.reservation("fleet"));
        let mut other = budgets.reservation("other");
        assert_eq!(first.set(MAX_NAMESPACE - 10), Ok(()));
        assert_eq!(second.set(10), Ok(()));
        let exceeded = second.set(11).unwrap_err();
        assert!(exceeded.to_string().contains("namespace fleet"), "{exceeded}");
        assert_eq!(other.set(MAX_NAMESPACE), Ok(()));
        assert_eq!(second.set(0), Ok(()));
        assert_eq!(second.set(10), Ok(()));
        drop(first);
        assert_eq!(second.set(MAX_NAMESPACE), Ok(()));
    }
}
