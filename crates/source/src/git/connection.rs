//! The conversation with a repository, for every transport: its limits, and why it failed.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reqwest::Url;
use tokio::runtime::Handle;

use crate::{SourceError, http::Deadline};

/// The conversation with a repository.
pub(super) struct Connection {
    /// The repository. Credentials are only sent to its origin.
    pub url: Url,
    pub deadline: Deadline,
    /// Limit of a response, in bytes.
    limit: u64,
    runtime: Handle,
    /// The first failure. The Git library reports only that reading failed.
    failure: Mutex<Option<SourceError>>,
}

impl Connection {
    /// Must be called in an async task: requests run there.
    pub fn new(url: Url, deadline: Deadline, limit: u64) -> Self {
        Self { url, deadline, limit, runtime: Handle::current(), failure: Mutex::default() }
    }

    /// Runs `work`. Must not be called in an async task.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs `work` for at most `limit`, and not longer than until the deadline.
    pub async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        let limited = self.deadline.run(&self.url, tokio::time::timeout(limit, work)).await?;
        limited.unwrap_or_else(|_| Err(SourceError::Timeout { url: self.url.to_string(), limit }))
    }

    /// Returns the first failure, or else the error of the Git library.
    pub fn error(&self, error: &gix_error::Error) -> SourceError {
        let (what, cause) = (error.to_string(), error.probable_cause().to_string());
        self.first_failure(self.broken(if what == cause { what } else { format!("{what}: {cause}") }))
    }

    /// Returns the first failure, or else `error`.
    pub fn first_failure(&self, error: SourceError) -> SourceError {
        lock(&self.failure).take().unwrap_or(error)
    }

    pub fn broken(&self, reason: impl Into<String>) -> SourceError {
        SourceError::Git { url: self.url.to_string(), reason: reason.into() }
    }

    /// Returns an error if a response has more bytes than it may have.
    pub fn check_size(&self, received: u64) -> Result<(), SourceError> {
        if received > self.limit {
            return Err(SourceError::TooLarge { url: self.url.to_string(), limit: self.limit });
        }
        Ok(())
    }

    /// Records why the conversation fails. The first failure counts.
    pub fn refuse(&self, error: SourceError) {
        lock(&self.failure).get_or_insert(error);
    }

    /// Records why the conversation fails, and returns an error for the Git library.
    pub fn fail(&self, error: SourceError) -> io::Error {
        self.refuse(error);
        io::Error::other("the request failed")
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
