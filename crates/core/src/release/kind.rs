//! The interface that a kind of release objects implements.

use std::fmt::Debug;

use chandler_api::{
    extensions::{INSTALLED_ON_ANNOTATION, ValuesSecret},
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::ReleaseStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::{Resource, ResourceExt as _, object::HasSpec};
use serde::{Serialize, de::DeserializeOwned};

use super::{Desired, Strategy};
use crate::{conditions, failure::Failure, inventory::ReleaseStatus as ReleaseState};

/// A kind whose objects represent one release each.
pub trait ReleaseKind:
    Resource<DynamicType = ()>
    + HasSpec<Spec: PartialEq>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Finalizer that keeps the object until its release is removed.
    const FINALIZER: &'static str;
    /// Annotation of objects whose release has been installed at least once.
    const INSTALLED_ANNOTATION: &'static str;
    /// Group and kind that a ReferenceGrant names to let these objects use Secrets of another namespace.
    const REFERRER: (&'static str, &'static str);
    /// The names of its condition types and reasons.
    const VOCABULARY: ReleaseVocabulary;
    /// End of the names of Secrets with values. It differs between kinds, because their objects may have the same name.
    const VALUES_SUFFIX: &'static str;
    /// Whether its objects can depend on each other.
    const ORDERED: bool = false;

    /// Returns what identifies the package in its spec. Two objects with the same text have the same package.
    fn package_key(&self) -> String;
    /// Returns whether its spec names no version, so that the newest one is installed.
    fn follows_newest_version(&self) -> bool;
    /// Sets the version of the package.
    fn set_version(&mut self, version: &str);
    /// Returns whether both have the same spec.
    fn has_same_spec(&self, other: &Self) -> bool {
        self.spec() == other.spec()
    }
    /// Returns whether the package differs from that of `existing` because data of the Cluster has changed: it is part of the
    /// path of a folder.
    fn has_other_folder_of_cluster(&self, existing: &Self) -> bool {
        let _ = existing;
        false
    }

    /// Returns the Secret with the values, if they are in one.
    fn values_secret(&self) -> Option<ValuesSecret>;
    /// Returns the desired state of the release.
    fn desired(&self) -> Result<Desired, Failure>;
    fn status(&self) -> Option<&ReleaseStatus>;

    /// Returns the status, or `None` if it does not refer to the current generation.
    fn current_status(&self) -> Option<&ReleaseStatus> {
        self.status().filter(|status| status.observed_generation == self.meta().generation)
    }

    /// Returns the condition `Ready` of the current generation.
    fn readiness(&self) -> Option<&Condition> {
        conditions::find(&self.current_status()?.conditions, "Ready")
    }

    /// Returns whether its last status says that it is ready, whichever generation that describes.
    fn was_ready(&self) -> bool {
        let ready = self.status().and_then(|status| conditions::find(&status.conditions, "Ready"));
        ready.is_some_and(|ready| ready.status == "True")
    }

    fn is_ready(&self) -> bool {
        self.readiness().is_some_and(|ready| ready.status == "True")
    }

    /// Returns whether its release is deployed with its current spec: it is ready, or only its objects are not healthy. Such a
    /// release need not be moved before a Kubernetes upgrade.
    fn is_deployed(&self) -> bool {
        let is_unhealthy =
            |ready: &Condition| ReleaseReason::parse(&ready.reason) == Some(ReleaseReason::Unhealthy);
        self.readiness().is_some_and(|ready| ready.status == "True" || is_unhealthy(ready))
    }

    /// Returns whether releases that depend on it may proceed: it is deployed, healthy or not, or it is deployed and only kept
    /// from deletion by its dependents. An unhealthy release holds no other one, because that would hold Kubernetes upgrades
    /// too, and because the other one may be what it lacks.
    fn satisfies_dependents(&self) -> bool {
        let is_kept_for_dependents = self.meta().deletion_timestamp.is_some()
            && self.readiness().and_then(|ready| ReleaseReason::parse(&ready.reason))
                == Some(ReleaseReason::StillNeeded)
            && self.status().is_some_and(|status| status.status == ReleaseState::Deployed.as_str());
        is_kept_for_dependents || self.is_deployed()
    }

    /// Returns whether the object has the annotations for a release that has been installed at least once on the Cluster
    /// with this uid. An object without the second annotation, as earlier versions wrote it, counts as installed on every
    /// Cluster.
    fn is_marked_installed(&self, cluster_uid: Option<&str>) -> bool {
        let annotations = self.annotations();
        let installed_on = annotations.get(INSTALLED_ON_ANNOTATION).map(String::as_str);
        annotations.get(Self::INSTALLED_ANNOTATION).is_some_and(|value| value == "true")
            && (installed_on.is_none() || cluster_uid.is_none() || installed_on == cluster_uid)
    }

    /// Returns whether its release has been installed before, if `status` is its newest status. A release that is installed once
    /// must have been installed on the Cluster with this uid.
    fn was_installed(&self, strategy: Strategy, status: &ReleaseStatus, cluster_uid: Option<&str>) -> bool {
        match strategy {
            Strategy::Continuous => status.inventory_revision.is_some(),
            Strategy::InstallOnce => self.is_marked_installed(cluster_uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;
    use serde_json::json;

    use super::*;

    fn release(observed: i64, status: &str, reason: &str, deleting: bool) -> HelmReleaseProxy {
        let deleted_at = deleting.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "cni-blue", "generation": 2, "deletionTimestamp": deleted_at},
            "spec": {"clusterRef": {"name": "blue"}, "chartName": "cni", "repoURL": "https://charts.example"},
            "status": {"observedGeneration": observed, "status": "deployed", "conditions": [{
                "type": "Ready", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn an_unhealthy_release_is_deployed_and_holds_no_other() {
        // Ready, deployed, satisfies its dependents.
        let rows = [
            (release(2, "True", "Ready", false), [true, true, true]),
            (release(1, "True", "Ready", false), [false, false, false]),
            (release(2, "False", "Unhealthy", false), [false, true, true]),
            (release(1, "False", "Unhealthy", false), [false, false, false]),
            (release(2, "False", "HelmReleasePending", false), [false, false, false]),
            (release(2, "False", "RolledBack", false), [false, false, false]),
            (release(2, "False", "Suspended", false), [false, false, false]),
            (release(2, "Unknown", "ClusterUnreachable", false), [false, false, false]),
            (release(2, "False", "StillNeeded", true), [false, false, true]),
        ];
        for (release, expected) in rows {
            let is = [release.is_ready(), release.is_deployed(), release.satisfies_dependents()];
            assert_eq!(is, expected, "{:?}", release.readiness());
        }
    }
}
