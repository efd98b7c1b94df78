//! Where Syncs get the files of their Sources from.

use std::sync::Arc;

use chandler_api::extensions::Reference;
use chandler_core::failure::Failure;
use chandler_source::SourceTree;
use futures::{FutureExt as _, future::BoxFuture};
use tokio::sync::watch;

use crate::sources::Sources;

/// The files of Sources.
pub trait Trees: Send + Sync {
    /// Returns the newest verified files of a Source that a namespace may use. A Source that could not be read yet is a
    /// failure, never an empty tree.
    fn tree<'a>(
        &'a self,
        source: &'a Reference,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<SourceTree>, Failure>>;

    /// Returns the name of the repository of a Source. Others may have the same.
    fn repository(&self, source: &Reference, namespace: &str) -> Option<String>;

    /// Polls a Source, and waits until its newest revision is known. Returns `false` if it cannot be polled.
    fn poll<'a>(&'a self, source: &'a Reference, namespace: &'a str) -> BoxFuture<'a, Result<bool, Failure>>;

    /// Returns a receiver that is notified when a Source has another revision.
    fn changes(&self) -> watch::Receiver<u64>;
}

impl Trees for Sources {
    fn tree<'a>(
        &'a self,
        source: &'a Reference,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<SourceTree>, Failure>> {
        async move {
            self.check_allowed(source, namespace).await?;
            Self::tree(self, source, namespace).await
        }
        .boxed()
    }

    fn repository(&self, source: &Reference, namespace: &str) -> Option<String> {
        Self::repository(self, source, namespace)
    }

    fn poll<'a>(&'a self, source: &'a Reference, namespace: &'a str) -> BoxFuture<'a, Result<bool, Failure>> {
        Self::poll(self, source, namespace).boxed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Self::changes(self)
    }
}
