//! What releases may do on their clusters.

use chandler_api::extensions::Scope;
use chandler_core::{
    failure::{Category, Failure},
    release::{Desired, ReleaseKind},
    tenancy::{Boundary, Refusal, ReleaseUse},
};
use chandler_tool::PackageTool;

use super::ReleaseContext;

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Returns what a release may do on its cluster, or why AddonTenancies do not let it be changed.
    pub async fn boundary(
        &self,
        desired: &Desired,
        release_use: ReleaseUse<'_>,
    ) -> Result<Boundary, Refusal> {
        let boundary = self.tenancies.boundary(desired, release_use).await?;
        let is_removal = matches!(release_use, ReleaseUse::Removal { .. });
        // That a Source of the platform may be used is decided already.
        let folder = desired.access.folder.as_ref().filter(|folder| folder.source.scope == Scope::Namespace);
        if let Some(folder) = folder
            && !is_removal
            && !boundary.rules.is_empty()
        {
            let sources = self.source_packages.sources();
            let checked = sources.check_allowed(&folder.source, &desired.cluster.namespace).await;
            checked.map_err(|failure| match failure.category {
                Category::NotAllowed => Refusal::NotAllowed(failure),
                _ => Refusal::Unknown(failure),
            })?;
        }
        Ok(boundary)
    }

    /// Returns whether what a release object specifies is exempt, as an Extension of the platform, from rules or from an account that
    /// an earlier revision of the release has.
    pub async fn is_exempted(&self, desired: &Desired) -> Result<bool, Failure> {
        if desired.recorded.platform_extension.is_none() {
            return Ok(false);
        }
        match self.tenancies.boundary(desired, ReleaseUse::Desired).await {
            Ok(boundary) => self.tenancies.exempt(desired, &boundary).await,
            Err(Refusal::NotAllowed(_)) => Ok(false),
            Err(Refusal::Unknown(failure)) => Err(failure),
        }
    }
}

/// Fails if a tool cannot keep a boundary.
pub async fn check_capabilities(tool: &PackageTool, boundary: &Boundary) -> Result<(), Failure> {
    let needed = boundary.needed_capabilities();
    if needed.is_empty() {
        return Ok(());
    }
    let description = tool.description().await?;
    let is_missing = |capability: &&str| !description.capabilities.iter().any(|one| one == capability);
    match needed.into_iter().find(is_missing) {
        None => Ok(()),
        Some(capability) => {
            let message = format!(
                "package tool {} does not have the capability {capability:?}, which AddonTenancies and accounts of workload \
                 clusters need; nothing is changed",
                description.name
            );
            Err(Failure::new(Category::NotAllowed, message))
        }
    }
}
