//! Lets Clusters of other namespaces proceed: a manager for one namespace does not watch them.

use std::sync::Arc;

use chandler_core::identity::ClusterKey;
use chandler_hooks::{Caller, HookCall, HookHandler, HookResponse};

/// Answers for the Clusters of one namespace.
struct OwnNamespace {
    namespace: String,
    handler: Arc<dyn HookHandler>,
}

/// Returns a handler for the Clusters of this namespace; `None` means all. Cluster API calls it for others only by a registration
/// that a manager of more namespaces has left.
pub fn only_in(namespace: Option<&str>, handler: Arc<dyn HookHandler>) -> Arc<dyn HookHandler> {
    match namespace {
        Some(namespace) => Arc::new(OwnNamespace { namespace: namespace.to_owned(), handler }),
        None => handler,
    }
}

impl HookHandler for OwnNamespace {
    fn respond(&self, cluster: &ClusterKey, call: HookCall<'_>, caller: &Caller) -> HookResponse {
        if cluster.namespace == self.namespace {
            self.handler.respond(cluster, call, caller)
        } else {
            HookResponse::Proceed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for a user.
    struct Blocking;

    const BLOCKED: HookResponse = HookResponse::Block { message: String::new() };

    impl HookHandler for Blocking {
        fn respond(&self, _: &ClusterKey, _: HookCall<'_>, _: &Caller) -> HookResponse {
            BLOCKED
        }
    }

    #[test]
    fn clusters_of_other_namespaces_wait_for_nothing() {
        let answer = |handler: &dyn HookHandler, namespace: &str| {
            let cluster = ClusterKey::new(namespace, "blue");
            handler.respond(&cluster, HookCall::BeforeClusterDelete, &Caller::default())
        };
        let (own, everywhere) =
            (only_in(Some("fleet"), Arc::new(Blocking)), only_in(None, Arc::new(Blocking)));
        assert_eq!(answer(&*own, "fleet"), BLOCKED);
        assert_eq!(answer(&*own, "other"), HookResponse::Proceed);
        assert_eq!(answer(&*everywhere, "other"), BLOCKED);
    }
}
