//! The order of releases on a cluster, as dependencies require it.

use std::sync::Arc;

use chandler_core::release::{Desired, ReleaseKind};
use kube::ResourceExt as _;

use super::ReleaseContext;
use crate::routing::ObjectKey;

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Returns the dependencies of a release object that are not ready, and the objects that depend on it. If its Cluster is being
    /// deleted, only those count that are removed before it: the others never are.
    pub fn dependencies(
        &self,
        own: &ObjectKey,
        desired: &Desired,
        cluster_is_deleting: bool,
    ) -> (Vec<String>, Vec<String>) {
        let all_kinds = &self.all_kinds;
        let is_removed = |release: &ObjectKey| !cluster_is_deleting || all_kinds.is_removed_first(release);
        let (mut unmet, mut needed_by) = all_kinds.policy_order(own, is_removed);
        if !R::ORDERED {
            return (unmet, needed_by);
        }
        let all = self.releases.on_cluster(&desired.cluster);
        let is_met =
            |name: &String| all.iter().any(|other| other.name_any() == *name && other.satisfies_dependents());
        unmet.extend(desired.depends_on.iter().filter(|name| !is_met(name)).cloned());
        let needs_this = |other: &&Arc<R>| {
            other.desired().is_ok_and(|desired| desired.depends_on.contains(&own.name))
                && is_removed(&ObjectKey::of(&***other))
        };
        needed_by.extend(all.iter().filter(needs_this).map(|other| other.name_any()));
        (unmet, needed_by)
    }
}
