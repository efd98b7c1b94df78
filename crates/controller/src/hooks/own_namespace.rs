//! Lets Clusters of other namespaces proceed: a manager for one namespace does not watch them.

use std::sync::Arc;

use chandler_core::identity::ClusterKey;
use chandler_hooks::{Caller, HookHandler, HookResponse};

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

impl OwnNamespace {
    fn answer(
        &self,
        cluster: &ClusterKey,
        answer: impl FnOnce(&dyn HookHandler) -> HookResponse,
    ) -> HookResponse {
        if cluster.namespace == self.namespace { answer(&*self.handler) } else { HookResponse::Proceed }
    }
}

impl HookHandler for OwnNamespace {
    fn before_cluster_upgrade(
        &self,
        cluster: &ClusterKey,
        from: &str,
        to: &str,
        caller: &Caller,
    ) -> HookResponse {
        self.answer(cluster, |handler| handler.before_cluster_upgrade(cluster, from, to, caller))
    }

    fn before_control_plane_upgrade(
        &self,
        cluster: &ClusterKey,
        from: &str,
        to: &str,
        caller: &Caller,
    ) -> HookResponse {
        self.answer(cluster, |handler| handler.before_control_plane_upgrade(cluster, from, to, caller))
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
        self.answer(cluster, |handler| handler.after_control_plane_upgrade(cluster, version))
    }

    fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
        self.answer(cluster, |handler| handler.after_cluster_upgrade(cluster, version))
    }

    fn before_cluster_delete(&self, cluster: &ClusterKey) -> HookResponse {
        self.answer(cluster, |handler| handler.before_cluster_delete(cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks with the name of the hook.
    struct Blocking;

    fn blocked(hook: &str) -> HookResponse {
        HookResponse::Block { message: hook.to_owned() }
    }

    impl HookHandler for Blocking {
        fn before_cluster_upgrade(&self, _: &ClusterKey, _: &str, _: &str, _: &Caller) -> HookResponse {
            blocked("before upgrade")
        }

        fn before_control_plane_upgrade(&self, _: &ClusterKey, _: &str, _: &str, _: &Caller) -> HookResponse {
            blocked("before step")
        }

        fn after_control_plane_upgrade(&self, _: &ClusterKey, _: &str) -> HookResponse {
            blocked("after step")
        }

        fn after_cluster_upgrade(&self, _: &ClusterKey, _: &str) -> HookResponse {
            blocked("after upgrade")
        }

        fn before_cluster_delete(&self, _: &ClusterKey) -> HookResponse {
            blocked("before delete")
        }
    }

    /// Returns the answers to all hooks for a Cluster of this namespace.
    fn answers(handler: &dyn HookHandler, namespace: &str) -> [HookResponse; 5] {
        let (cluster, caller) = (ClusterKey::new(namespace, "blue"), Caller::default());
        [
            handler.before_cluster_upgrade(&cluster, "v1.34.4", "v1.35.4", &caller),
            handler.before_control_plane_upgrade(&cluster, "v1.34.4", "v1.35.4", &caller),
            handler.after_control_plane_upgrade(&cluster, "v1.35.4"),
            handler.after_cluster_upgrade(&cluster, "v1.35.4"),
            handler.before_cluster_delete(&cluster),
        ]
    }

    #[test]
    fn clusters_of_other_namespaces_wait_for_nothing() {
        let all = ["before upgrade", "before step", "after step", "after upgrade", "before delete"];
        let (own, everywhere) =
            (only_in(Some("fleet"), Arc::new(Blocking)), only_in(None, Arc::new(Blocking)));
        assert_eq!(answers(&*own, "fleet"), all.map(blocked));
        assert_eq!(answers(&*own, "other"), [(); 5].map(|()| HookResponse::Proceed));
        assert_eq!(answers(&*everywhere, "other"), all.map(blocked));
    }
}
