//! A lock that ignores poisoning. Every critical section of this crate leaves its data consistent, so a panic in another
//! task is no reason to fail here as well.

use std::sync::{MutexGuard, PoisonError};

/// A mutex whose `lock` always succeeds.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
