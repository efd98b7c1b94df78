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

    /// Returns whether a revision that Chandler has not installed is not adopted although it looks like the desired one: that of an
    /// Extension of the platform, which may be exempt from rules or from an account now or later. Others may have written it.
    pub async fn forbids_adoption(&self, desired: &Desired) -> Result<bool, Failure> {
        if desired.recorded.platform_extension.is_none() {
            return Ok(false);
        }
        // A rollback is never exempt.
        match self.tenancies.boundary(desired, ReleaseUse::Rollback).await {
            Ok(boundary) => Ok(boundary != Boundary::default()),
            Err(Refusal::NotAllowed(_)) => Ok(true),
            Err(Refusal::Unknown(failure)) => Err(failure),
        }
    }

    /// Returns whether a release is applied without rules and account. `false` if that is not known.
    pub async fn is_unrestricted(&self, desired: &Desired) -> bool {
        let boundary = self.tenancies.boundary(desired, ReleaseUse::Desired).await;
        boundary.is_ok_and(|boundary| boundary == Boundary::default())
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
