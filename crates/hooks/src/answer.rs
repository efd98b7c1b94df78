//! What is asked, and what can be answered.

use chandler_core::identity::ClusterKey;

/// An answer to a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Cluster API may go on.
    Go,
    /// Work is under way: ask again in so many seconds. Cluster API does not ask earlier.
    Wait { seconds: u32, message: String },
    /// Someone has to change something first. Cluster API holds, shows the message, and asks again now and then.
    Refuse { message: String },
}

/// Answers from caches: whatever takes longer is begun elsewhere, and [`Answer::Wait`] is the answer until it is done.
///
/// Whoever reaches the port can ask, so a request is no news about a cluster: that it upgrades or is being deleted is
/// only true if the Cluster says so. The same request comes again and again. A message appears on the Cluster; one
/// that changes with every answer makes Cluster API write it, look at it, and ask again.
pub trait Answers: Send + Sync {
    /// Once, before anything of an upgrade happens. `to` is where it ends, maybe several minor versions away.
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer;

    /// Before each step of the control plane, the first included. Only Cluster API 1.12 and newer ask.
    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer;

    /// After each step of the control plane, before its workers follow.
    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer;

    /// When everything has arrived. Holding holds the next upgrade; Cluster API 1.11 does not listen to that.
    fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer;

    /// When the Cluster is to go, while everything of it is still there.
    fn before_cluster_delete(&self, cluster: &ClusterKey) -> Answer;
}
