//! The process-wide budget for bytes that wait in buffers of tunnels.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Buf, Bytes};
use tokio::sync::Notify;

/// The default limit, in bytes.
pub const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

/// A budget is overdrawn when this many times its limit is used, but never below [`MIN_OVERDRAFT`].
const OVERDRAFT: usize = 4;
const MIN_OVERDRAFT: usize = 32 * 1024 * 1024;

/// Counts the bytes that wait in the buffers of all pumps of a process.
///
/// Bytes that have been received are counted even over the limit, because they exist. While the budget is exhausted, pumps
/// read nothing from sockets, and a stream whose reader takes nothing for [`crate::pump::STALL_LIMIT`] is reset. The windows of
/// all streams together are larger than any memory, so a budget that is overdrawn resets streams that wait at once.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    room: Notify,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), room: Notify::new() })
    }

    /// Returns how many bytes wait in buffers.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns whether no more bytes should be read. A hub then answers new requests with 503.
    pub fn is_exhausted(&self) -> bool {
        self.used() >= self.limit
    }

    /// Returns whether so much is used that the process itself is in danger.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.used() >= self.limit.saturating_mul(OVERDRAFT).max(MIN_OVERDRAFT)
    }

    /// Waits until the budget is not exhausted.
    pub async fn wait_for_room(&self) {
        loop {
            let notified = self.room.notified();
            if !self.is_exhausted() {
                return;
            }
            notified.await;
        }
    }

    /// Counts bytes until the result is consumed or dropped.
    pub(crate) fn count(self: &Arc<Self>, bytes: Bytes) -> CountedBytes {
        self.used.fetch_add(bytes.len(), Ordering::AcqRel);
        CountedBytes { bytes, budget: Some(self.clone()) }
    }

    fn release(&self, count: usize) {
        let before = self.used.fetch_sub(count, Ordering::AcqRel);
        if before >= self.limit && before - count < self.limit {
            self.room.notify_waiters();
        }
    }
}

/// Bytes that count against a budget until they are consumed or dropped. HTTP/2 drops them when they are on the wire.
#[derive(Debug, Default)]
pub struct CountedBytes {
    bytes: Bytes,
    /// `None` for short messages, which are not counted.
    budget: Option<Arc<Budget>>,
}

impl CountedBytes {
    pub(crate) fn uncounted(bytes: Bytes) -> Self {
        Self { bytes, budget: None }
    }

    /// Splits off the first bytes; the sum of what is counted stays the same.
    pub(crate) fn split_to(&mut self, at: usize) -> Self {
        Self { bytes: self.bytes.split_to(at), budget: self.budget.clone() }
    }
}

impl Buf for CountedBytes {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(budget) = &self.budget {
            budget.release(count);
        }
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.release(self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn room_is_announced_when_the_budget_is_no_longer_exhausted() {
        let budget = Budget::new(10);
        let mut first = budget.count(Bytes::from_static(b"12345678"));
        assert!(!budget.is_exhausted());
        let second = budget.count(Bytes::from_static(b"12345678"));
        assert!(budget.is_exhausted());
        assert_eq!(budget.used(), 16, "received bytes are counted over the limit");
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.wait_for_room().await }
        });
        tokio::task::yield_now().await;
        first.advance(6);
        assert!(!waiting.is_finished() && budget.is_exhausted());
        drop(second);
        waiting.await.unwrap();
        assert_eq!(budget.used(), 2);
        drop(first);
        assert_eq!(budget.used(), 0);
        budget.wait_for_room().await;
    }

    proptest! {
        #[test]
        fn splitting_and_advancing_count_every_byte_once(
            length in 0..100_usize,
            steps in proptest::collection::vec((any::<bool>(), 0..40_usize), 0..10),
        ) {
            let budget = Budget::new(1);
            let mut rest = budget.count(Bytes::from(vec![0; length]));
            let mut parts = Vec::new();
            for (split, count) in steps {
                let count = count.min(rest.remaining());
                if split { parts.push(rest.split_to(count)) } else { rest.advance(count) }
                let held: usize = parts.iter().map(Buf::remaining).sum();
                prop_assert_eq!(budget.used(), held + rest.remaining());
            }
            drop((rest, parts));
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
