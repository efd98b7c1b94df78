//! Blocks upgrades while operations are running, because an upgrade restarts the API server that they use.

use chandler_core::identity::ClusterKey;
use chandler_hooks::{Answer, Answers};

/// Seconds after which Cluster API retries the hook.
const RETRY_AFTER: u32 = 5;

/// Returns the add-ons of a cluster that have a running operation.
pub type BusyAddons = Box<dyn Fn(&ClusterKey) -> Vec<String> + Send + Sync>;

/// Blocks the steps of an upgrade while add-ons of the cluster are being changed.
pub struct PendingOperations(pub BusyAddons);

impl PendingOperations {
    fn answer(&self, cluster: &ClusterKey) -> Answer {
        let mut busy = (self.0)(cluster);
        if busy.is_empty() {
            return Answer::Go;
        }
        // Cluster API writes each different message to the Cluster.
        busy.sort();
        let message = format!("add-ons are being changed: {}", busy.join(", "));
        Answer::Wait { seconds: RETRY_AFTER, message }
    }
}

impl Answers for PendingOperations {
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, _: &str, _: &str) -> Answer {
        self.answer(cluster)
    }

    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, _: &str, _: &str) -> Answer {
        self.answer(cluster)
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, _: &str) -> Answer {
        self.answer(cluster)
    }

    fn after_cluster_upgrade(&self, _: &ClusterKey, _: &str) -> Answer {
        Answer::Go
    }

    fn before_cluster_delete(&self, _: &ClusterKey) -> Answer {
        Answer::Go
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
        let wait = Answer::Wait { seconds: 5, message: "add-ons are being changed: cni, ingress".to_owned() };
        assert_eq!(answers.before_cluster_upgrade(&blue, "v1.34.4", "v1.35.4"), wait);
        assert_eq!(answers.before_control_plane_upgrade(&blue, "v1.34.4", "v1.35.4"), wait);
        assert_eq!(answers.after_control_plane_upgrade(&blue, "v1.35.4"), wait);
        assert_eq!(answers.after_cluster_upgrade(&blue, "v1.35.4"), Answer::Go);
        assert_eq!(answers.before_cluster_delete(&blue), Answer::Go);
        let red = ClusterKey::new("fleet", "red");
        assert_eq!(answers.before_cluster_upgrade(&red, "v1.34.4", "v1.35.4"), Answer::Go);
    }
}
