//! The handler of the hooks, and its responses.

use chandler_core::identity::ClusterKey;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The response to a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookResponse {
    /// Cluster API proceeds.
    Proceed,
    /// The handler is still working. Cluster API calls the hook again after this time, and not earlier.
    RetryAfter { seconds: u32, message: String },
    /// A user has to change something first. Cluster API blocks, shows the message, and calls the hook again periodically.
    Block { message: String },
}

/// The caller of a hook, who may give up before there is a response. Clones are the same caller.
#[derive(Clone, Debug, Default)]
pub struct Caller(CancellationToken);

impl Caller {
    /// Returns whether the caller has given up: the call has timed out, or its connection is closed.
    /// Handlers stop then.
    pub fn has_given_up(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns a guard whose drop means that the caller has given up.
    #[must_use]
    pub fn waiting(&self) -> DropGuard {
        self.0.clone().drop_guard()
    }
}

/// Decides on the response to each hook.
///
/// Implementations respond from caches. They start long-running work elsewhere, and return
/// [`HookResponse::RetryAfter`] until it is done.
///
/// Anyone who can reach the port can call a hook, so a request does not prove anything: check on the
/// Cluster object whether it is being upgraded or deleted, and to which version. Cluster API repeats
/// the same request until it may proceed. The message is written to a condition of the Cluster. A message that differs in every response makes Cluster API write the
/// condition, reconcile the Cluster, and call the hook again.
pub trait HookHandler: Send + Sync {
    /// Called before an upgrade starts. `to` is the final version, which may be several minor versions newer.
    fn before_cluster_upgrade(
        &self,
        cluster: &ClusterKey,
        from: &str,
        to: &str,
        caller: &Caller,
    ) -> HookResponse;

    /// Called before each upgrade step of the control plane, including the first. Requires Cluster API 1.12.
    fn before_control_plane_upgrade(
        &self,
        cluster: &ClusterKey,
        from: &str,
        to: &str,
        caller: &Caller,
    ) -> HookResponse;

    /// Called after each upgrade step of the control plane, before the workers are upgraded.
    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse;

    /// Called after the whole cluster is upgraded. Blocking delays the next upgrade; Cluster API 1.11 ignores it.
    fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse;

    /// Called when the Cluster is deleted, before Cluster API deletes any part of it.
    fn before_cluster_delete(&self, cluster: &ClusterKey) -> HookResponse;
}
