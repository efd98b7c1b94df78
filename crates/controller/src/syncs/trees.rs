//! Where Syncs get the files of their Sources from.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use chandler_api::extensions::Reference;
use chandler_core::failure::{Category, Failure};
use futures::future::{BoxFuture, ready};
use tokio::sync::watch;

/// The files of a Source at one revision.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// For git, the id of the commit.
    pub revision: String,
    /// Regular files by path, relative to the root.
    pub files: BTreeMap<String, Bytes>,
}

/// The files of Sources.
pub trait Trees: Send + Sync {
    /// Returns the newest verified files of a Source that a namespace may use. A Source that could not be read yet is a
    /// failure, never an empty tree.
    fn tree<'a>(
        &'a self,
        source: &'a Reference,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Tree>, Failure>>;

    /// Returns a receiver that is notified when a Source has another revision.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// The Sources of a manager that has no controller for them.
#[derive(Debug, Default)]
pub struct NoSources(watch::Sender<u64>);

impl Trees for NoSources {
    fn tree<'a>(
        &'a self,
        source: &'a Reference,
        _namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Tree>, Failure>> {
        let message = format!("Source {} cannot be read: this manager does not serve Sources", source.name);
        Box::pin(ready(Err(Failure::new(Category::SourceUnavailable, message))))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
