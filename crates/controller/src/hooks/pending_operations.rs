//! Blocks upgrades while operations are running, because an upgrade restarts the API server that they use.

use chandler_core::identity::ClusterKey;
use chandler_hooks::{HookHandler, HookResponse};

/// Seconds after which Cluster API retries the hook.
const RETRY_AFTER: u32 = 5;

/// Returns the add-ons of a cluster that have a running operation.
pub type BusyAddons = Box<dyn Fn(&ClusterKey) -> Vec<String> + Send + Sync>;

/// Blocks the steps of an upgrade while add-ons of the cluster are being changed.
pub struct PendingOperations(pub BusyAddons);

impl PendingOperations {
    fn answer(&self, cluster: &ClusterKey) -> HookResponse {
        let mut busy = (self.0)(cluster);
        if busy.is_empty() {
            return HookResponse::Proceed;
        }
        // Cluster API writes each different message to the Cluster.
        busy.sort();
        let message = format!("add-ons are being changed: {}", busy.join(", "));
        HookResponse::RetryAfter { seconds: RETRY_AFTER, message }
    }
}

impl HookHandler for PendingOperations {
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, _: &str, _: &str) -> HookResponse {
        self.answer(cluster)
    }

    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, _: &str, _: &str) -> HookResponse {
        self.answer(cluster)
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, _: &str) -> HookResponse {
        self.answer(cluster)
    }

    fn after_cluster_upgrade(&self, _: &ClusterKey, _: &str) -> HookResponse {
        HookResponse::Proceed
    }

    fn before_cluster_delete(&self, _: &ClusterKey) -> HookResponse {
        HookResponse::Proceed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_upgrades_wait_for_operations() {
        let blue = ClusterKey::new("fleet", "blue");
        let busy: BusyAddons = Box::new(|cluster| match cluster.name.as_str() {
            "blue" => vec!["ingress".to_owned(), "cni".to_owned()],
            _ => Vec::new(),
        });
        let answers = PendingOperations(busy);
        let wait = HookResponse::RetryAfter {
            seconds: 5,
            message: "add-ons are being changed: cni, ingress".to_owned(),
        };
        assert_eq!(answers.before_cluster_upgrade(&blue, "v1.34.4", "v1.35.4"), wait);
        assert_eq!(answers.before_control_plane_upgrade(&blue, "v1.34.4", "v1.35.4"), wait);
        assert_eq!(answers.after_control_plane_upgrade(&blue, "v1.35.4"), wait);
        assert_eq!(answers.after_cluster_upgrade(&blue, "v1.35.4"), HookResponse::Proceed);
        assert_eq!(answers.before_cluster_delete(&blue), HookResponse::Proceed);
        let red = ClusterKey::new("fleet", "red");
        assert_eq!(answers.before_cluster_upgrade(&red, "v1.34.4", "v1.35.4"), HookResponse::Proceed);
    }
}
