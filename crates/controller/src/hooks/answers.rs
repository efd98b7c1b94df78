//! Answers from what is under way: nothing pulls an API server away from beneath an operation.

use chandler_core::identity::ClusterKey;
use chandler_hooks::{HookHandler, HookResponse};

/// When Cluster API asks again.
const ASK_AGAIN_SECONDS: u32 = 5;

/// Tells the add-ons of a cluster that are being changed, from memory.
pub type Changing = Box<dyn Fn(&ClusterKey) -> Vec<String> + Send + Sync>;

/// Holds a step of an upgrade while add-ons of the cluster are being changed.
pub struct UnderWay(pub Changing);

impl UnderWay {
    fn settled(&self, cluster: &ClusterKey) -> HookResponse {
        let mut changing = (self.0)(cluster);
        if changing.is_empty() {
            return HookResponse::Proceed;
        }
        // The same words for the same thing: a message that differs is written to the Cluster anew.
        changing.sort();
        let message = format!("add-ons are being changed: {}", changing.join(", "));
        HookResponse::RetryAfter { seconds: ASK_AGAIN_SECONDS, message }
    }
}

impl HookHandler for UnderWay {
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, _: &str, _: &str) -> HookResponse {
        self.settled(cluster)
    }

    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, _: &str, _: &str) -> HookResponse {
        self.settled(cluster)
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, _: &str) -> HookResponse {
        self.settled(cluster)
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
    fn an_upgrade_waits_for_what_is_being_changed_and_nothing_else_does() {
        let blue = ClusterKey::new("fleet", "blue");
        let changing: Changing = Box::new(|cluster| match cluster.name.as_str() {
            "blue" => vec!["ingress".to_owned(), "cni".to_owned()],
            _ => Vec::new(),
        });
        let answers = UnderWay(changing);
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
