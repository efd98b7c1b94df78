//! The handler of the hooks, and its responses.

use chandler_core::{extension::AnnouncedUpgrade, identity::ClusterKey};
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

/// A hook that Cluster API calls for a Cluster, with the versions as they are in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookCall<'a> {
    /// Before an upgrade starts, and before each step of its control plane, including the first. Cluster
    /// API 1.12 and newer announce steps.
    BeforeUpgrade(AnnouncedUpgrade<'a>),
    /// After each upgrade step of the control plane, before the workers are upgraded.
    AfterControlPlaneUpgrade { version: &'a str },
    /// After the whole cluster is upgraded. Blocking delays the next upgrade; Cluster API 1.11 ignores it.
    AfterClusterUpgrade { version: &'a str },
    /// When the Cluster is deleted, before Cluster API deletes any part of it.
    BeforeClusterDelete,
}

/// Decides on the response to each hook.
///
/// Implementations respond from caches. They start long-running work elsewhere, and return
/// [`HookResponse::RetryAfter`] until it is done.
///
/// Anyone who can reach the port can call a hook, so a request does not prove anything: check on the
/// Cluster object whether it is being upgraded or deleted, and to which version. Cluster API repeats
/// the same request until it may proceed. The message is written to a condition of the Cluster. A
/// message that differs in every response makes Cluster API write the condition, reconcile the
/// Cluster, and call the hook again.
pub trait HookHandler: Send + Sync {
    fn respond(&self, cluster: &ClusterKey, call: HookCall<'_>, caller: &Caller) -> HookResponse;
}
