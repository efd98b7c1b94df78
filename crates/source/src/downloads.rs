//! Limits concurrent downloads of indexes and packages, fairly between namespaces. A download that hangs occupies a slot until it
//! times out; a namespace with many of them delays only itself.

use std::time::Duration;

use chandler_core::namespace_shares::NamespaceShares;

use crate::{
    SourceError,
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
};

/// Number of concurrent downloads. It limits temporary files and connections.
const CONCURRENT_DOWNLOADS: usize = 64;
/// How many of them a namespace gets.
const PER_NAMESPACE: usize = 16;

/// How long a caller waits for a slot before it looks again whether it still needs one, and how often.
const ATTEMPT: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 30;

tokio::task_local! {
    /// The namespace that the current downloads are for.
    static NAMESPACE: String;
}

/// Runs `work` for a namespace: its downloads of charts and indexes count against the share of the namespace. Without it, downloads
/// are not limited.
pub fn on_behalf_of<F: Future>(namespace: &str, work: F) -> impl Future<Output = F::Output> {
    NAMESPACE.scope(namespace.to_owned(), work)
}

/// The slots of downloads.
#[derive(Debug)]
pub(crate) struct Downloads(NamespaceSemaphore);

impl Default for Downloads {
    fn default() -> Self {
        let shares = NamespaceShares::with_limit(CONCURRENT_DOWNLOADS, PER_NAMESPACE);
        Self(NamespaceSemaphore::with_shares(shares))
    }
}

impl Downloads {
    /// Waits for a slot of the namespace of [`on_behalf_of`], but not for long. `None` means that there is no namespace.
    pub async fn slot(&self) -> Result<Option<NamespacePermit>, SourceError> {
        self.slot_unless(|| false).await
    }

    /// Does the same as [`Downloads::slot`], and also returns `None` as soon as `is_available`: another caller has the result, or is
    /// about to get it.
    ///
    /// Must be called before callers of other namespaces can wait for the result: they must not wait for a slot of this one.
    pub async fn slot_unless(
        &self,
        is_available: impl Fn() -> bool,
    ) -> Result<Option<NamespacePermit>, SourceError> {
        let Ok(namespace) = NAMESPACE.try_with(Clone::clone) else { return Ok(None) };
        for _ in 0..ATTEMPTS {
            if is_available() {
                return Ok(None);
            }
            if let Ok(slot) = tokio::time::timeout(ATTEMPT, self.0.wait(&namespace)).await {
                return Ok(slot);
            }
        }
        Err(SourceError::Busy { namespace })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_namespace_does_not_get_the_slots_of_others() {
        let downloads = Downloads::default();
        let mut slots = Vec::new();
        for _ in 0..PER_NAMESPACE {
            slots.push(on_behalf_of("slow", downloads.slot()).await.unwrap().unwrap());
        }
        let mut waiting = Box::pin(on_behalf_of("slow", downloads.slot()));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(on_behalf_of("other", downloads.slot()).now_or_never().unwrap().unwrap().is_some());
        assert!(downloads.slot().now_or_never().unwrap().unwrap().is_none(), "no namespace, no limit");
        let known = on_behalf_of("slow", downloads.slot_unless(|| true)).now_or_never().unwrap();
        assert!(known.unwrap().is_none(), "what is known needs no slot");
        slots.pop();
        assert!(waiting.now_or_never().unwrap().is_ok());
    }
}
