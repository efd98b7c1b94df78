//! The seam between kinds and the release engine: HelmReleaseProxy is one face of a release, others can join it.

use std::fmt::Debug;

use chandler_api::{
    reasons::{ReleaseReason, ReleaseVocabulary},
    status::ReleaseStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::{Resource, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};

use super::Desired;
use crate::{conditions, failure::Failure, inventory::ReleaseStatus as ReleaseState};

/// A kind whose objects stand for one release each.
pub trait ReleaseKind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Keeps the object until its release has been removed.
    const FINALIZER: &'static str;
    /// Annotation that says the release has been installed at least once.
    const INSTALLED_ANNOTATION: &'static str;
    /// Group and kind that a grant names when it lets these objects use what is in another namespace.
    const REFERRER: (&'static str, &'static str);
    /// What its conditions are called.
    const VOCABULARY: ReleaseVocabulary;
    /// Whether its objects may name others that come first.
    const ORDERED: bool = false;

    /// What the object asks for.
    fn desired(&self) -> Result<Desired, Failure>;
    /// What was written about it last.
    fn status(&self) -> Option<&ReleaseStatus>;

    /// What was said about it as it is now. None: whoever looks after it has not seen what it asks for.
    fn current_status(&self) -> Option<&ReleaseStatus> {
        self.status().filter(|status| status.observed_generation == self.meta().generation)
    }

    /// Its `Ready` condition, as far as it speaks of what the object asks for now.
    fn readiness(&self) -> Option<&Condition> {
        conditions::find(&self.current_status()?.conditions, "Ready")
    }

    fn is_ready(&self) -> bool {
        self.readiness().is_some_and(|ready| ready.status == "True")
    }

    /// Whether those that need it can do with it: it is ready, or would be gone already but for them.
    fn serves(&self) -> bool {
        let is_held = self.meta().deletion_timestamp.is_some()
            && self.readiness().and_then(|ready| ReleaseReason::parse(&ready.reason))
                == Some(ReleaseReason::StillNeeded)
            && self.status().is_some_and(|status| status.status == ReleaseState::Deployed.as_str());
        is_held || self.is_ready()
    }

    /// Whether the annotation says that the release has been installed at least once.
    fn is_marked_installed(&self) -> bool {
        self.annotations().get(Self::INSTALLED_ANNOTATION).is_some_and(|value| value == "true")
    }
}
