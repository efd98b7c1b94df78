//! What is recorded on release objects for AddonTenancies.

use chandler_api::extensions::{
    PLATFORM_CATALOG_ANNOTATION, PLATFORM_EXTENSION_ANNOTATION, PLATFORM_INPUTS_ANNOTATION,
    WORKLOAD_ACCOUNT_ANNOTATION,
};
use kube_core::ResourceExt;

use crate::digest::InputDigest;

/// Where the spec of a release object comes from. It is written together with the spec, so that it is never that of a placement
/// which has changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The ServiceAccount of workload clusters that the placement names.
    pub account: Option<String>,
    /// The Extension of the platform that the spec installs as it is published: see
    /// [`platform_extension`](super::platform_extension).
    pub platform_extension: Option<String>,
    /// The catalog of the platform that offers the folder of a Source in the spec.
    pub platform_catalog: Option<String>,
    /// The digest of inputs that were installed as an Extension of the platform.
    pub(crate) platform_inputs: Option<String>,
}

impl Recorded {
    /// Reads it from a release object.
    pub fn of(release: &impl ResourceExt) -> Self {
        let value = |name: &str| release.annotations().get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            account: value(WORKLOAD_ACCOUNT_ANNOTATION),
            platform_extension: value(PLATFORM_EXTENSION_ANNOTATION),
            platform_catalog: value(PLATFORM_CATALOG_ANNOTATION),
            platform_inputs: value(PLATFORM_INPUTS_ANNOTATION),
        }
    }

    /// Adds it to a release object that replaces `existing`. What that had is overwritten explicitly: another field manager may
    /// own it, for example after `clusterctl move`.
    pub(crate) fn write<R: ResourceExt>(&self, release: &mut R, existing: Option<&R>) {
        let all = [
            (WORKLOAD_ACCOUNT_ANNOTATION, &self.account),
            (PLATFORM_EXTENSION_ANNOTATION, &self.platform_extension),
            (PLATFORM_CATALOG_ANNOTATION, &self.platform_catalog),
        ];
        for (name, value) in all {
            let is_there = existing.is_some_and(|existing| existing.annotations().contains_key(name));
            if value.is_some() || is_there {
                release.annotations_mut().insert(name.to_owned(), value.clone().unwrap_or_default());
            }
        }
    }

    /// Returns whether the inputs of an installed revision were those of an Extension of the platform.
    pub(super) fn is_of_platform(&self, installed: Option<&InputDigest>) -> bool {
        let installed = installed.map(ToString::to_string);
        installed.is_some() && self.platform_inputs == installed
    }

    /// Returns the digest to record: that of the inputs, if they are `installed` as an Extension of the platform and it is not
    /// recorded yet.
    pub fn new_platform_inputs(
        &self,
        inputs: Option<&InputDigest>,
        installed: Option<&InputDigest>,
    ) -> Option<String> {
        self.platform_extension.as_ref()?;
        let digest = inputs.filter(|_| inputs == installed)?.to_string();
        (self.platform_inputs.as_ref() != Some(&digest)).then_some(digest)
    }
}
