//! The running operations of the process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use crate::{dial::Gate, lease::Lease};

/// The running operations. Clones share them.
#[derive(Clone, Debug)]
pub struct Running {
    operations: Arc<Mutex<HashMap<u64, Handle>>>,
    lease: Lease,
}

/// A running operation, as others see it.
#[derive(Clone, Debug)]
struct Handle {
    id: String,
    cancel: CancellationToken,
    ended: CancellationToken,
}

/// A running operation. It has ended when this is dropped.
#[derive(Debug)]
pub struct Operation {
    key: u64,
    handle: Handle,
    running: Running,
    /// Every request of the operation passes it.
    pub gate: Gate,
}

impl Running {
    pub fn new(lease: Lease) -> Self {
        Self { operations: Arc::default(), lease }
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    pub fn start(&self, id: &str) -> Operation {
        let handle =
            Handle { id: id.to_owned(), cancel: CancellationToken::new(), ended: CancellationToken::new() };
        let mut operations = self.lock();
        let key = operations.keys().max().map_or(0, |last| last + 1);
        operations.insert(key, handle.clone());
        drop(operations);
        Operation { key, handle, running: self.clone(), gate: Gate::new(self.lease.clone()) }
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Cancels an operation and returns when it has ended. Returns whether it was running.
    pub async fn cancel(&self, id: &str) -> bool {
        let found = self.lock().values().find(|handle| handle.id == id).cloned();
        let Some(handle) = found else { return false };
        handle.cancel.cancel();
        handle.ended.cancelled().await;
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Handle>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operation {
    pub async fn cancelled(&self) {
        self.handle.cancel.cancelled().await;
    }

    /// Completes when the Lease has expired.
    pub async fn lease_expired(&self) {
        self.running.lease.expired().await;
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.gate.close();
        self.running.lock().remove(&self.key);
        self.handle.ended.cancel();
    }
}
