//! What a release object says about the placement that it was made of. It is written together with the spec, so that it is always about
//! the spec that is installed.

use chandler_api::extensions::{
    PLATFORM_CATALOG_ANNOTATION, PLATFORM_EXTENSION_ANNOTATION, WORKLOAD_ACCOUNT_ANNOTATION,
};
use kube_core::ResourceExt;

const ANNOTATIONS: [&str; 3] =
    [WORKLOAD_ACCOUNT_ANNOTATION, PLATFORM_EXTENSION_ANNOTATION, PLATFORM_CATALOG_ANNOTATION];

/// What a release object says about the placement that it was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseOrigin {
    /// The ServiceAccount of the workload cluster that the placement names.
    pub account: Option<String>,
    /// The Extension of the platform that it installs, if it adds nothing of its own: see
    /// [`platform_extension`](super::platform_extension).
    pub platform_extension: Option<String>,
    /// The catalog of the platform, if that is a folder of a Source: the package names the Source only.
    pub platform_catalog: Option<String>,
}

impl ReleaseOrigin {
    /// Reads it from the annotations of a release object.
    pub fn of(release: &impl ResourceExt) -> Self {
        let [account, platform_extension, platform_catalog] =
            ANNOTATIONS.map(|key| release.annotations().get(key).cloned());
        Self { account, platform_extension, platform_catalog }
    }

    /// Writes it to the annotations of a new release object.
    pub fn annotate(self, release: &mut impl ResourceExt) {
        let values = [self.account, self.platform_extension, self.platform_catalog];
        let set = ANNOTATIONS.into_iter().zip(values);
        let set = set.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        release.annotations_mut().extend(set);
    }
}
