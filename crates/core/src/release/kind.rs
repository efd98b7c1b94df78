//! The interface that a kind of release objects implements.

use std::fmt::Debug;

use chandler_api::{
    extensions::INSTALLED_ON_ANNOTATION,
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::ReleaseStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::{Resource, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};

use super::Desired;
use crate::{conditions, failure::Failure, inventory::ReleaseStatus as ReleaseState};

/// A kind whose objects represent one release each.
pub trait ReleaseKind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Finalizer that keeps the object until its release is removed.
    const FINALIZER: &'static str;
    /// Annotation of objects whose release has been installed at least once.
    const INSTALLED_ANNOTATION: &'static str;
    /// Group and kind that a ReferenceGrant names to let these objects use Secrets of another namespace.
    const REFERRER: (&'static str, &'static str);
    /// The names of its condition types and reasons.
    const VOCABULARY: ReleaseVocabulary;
    /// Whether its objects can depend on each other.
    const ORDERED: bool = false;

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

    /// Returns whether releases that depend on it may proceed: it is ready, or it is deployed and only kept from
    /// deletion by its dependents.
    fn satisfies_dependents(&self) -> bool {
        let is_kept_for_dependents = self.meta().deletion_timestamp.is_some()
            && self.readiness().and_then(|ready| ReleaseReason::parse(&ready.reason))
                == Some(ReleaseReason::StillNeeded)
            && self.status().is_some_and(|status| status.status == ReleaseState::Deployed.as_str());
        is_kept_for_dependents || self.is_ready()
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
}
