//! Blocks upgrades while operations are running, because an upgrade restarts the API server that they use.

use chandler_core::identity::ClusterKey;
use chandler_hooks::HookResponse;

/// Seconds after which Cluster API retries the hook.
const RETRY_AFTER: u32 = 5;

/// Returns the add-ons of a cluster that have a running operation.
pub type BusyAddons = Box<dyn Fn(&ClusterKey) -> Vec<String> + Send + Sync>;

/// Blocks the steps of an upgrade while add-ons of the cluster are being changed.
pub struct PendingOperations(pub BusyAddons);

impl PendingOperations {
    /// Responds before or after a step of an upgrade.
    pub fn answer(&self, cluster: &ClusterKey) -> HookResponse {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_wait_for_operations_of_their_cluster() {
        let busy: BusyAddons = Box::new(|cluster| match cluster.name.as_str() {
            "blue" => vec!["ingress".to_owned(), "cni".to_owned()],
            _ => Vec::new(),
        });
        let operations = PendingOperations(busy);
        let wait = HookResponse::RetryAfter {
            seconds: 5,
            message: "add-ons are being changed: cni, ingress".to_owned(),
        };
        assert_eq!(operations.answer(&ClusterKey::new("fleet", "blue")), wait);
        assert_eq!(operations.answer(&ClusterKey::new("fleet", "red")), HookResponse::Proceed);
    }
}
