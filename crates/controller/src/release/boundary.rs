//! What releases may do on their clusters.

use chandler_core::{
    failure::{Category, Failure},
    release::{Desired, ReleaseKind},
    tenancy::Boundary,
};
use chandler_tool::PackageTool;

use super::{PlacementState, ReleaseContext};

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Returns what a release may do on its cluster, or why AddonTenancies do not allow it.
    pub async fn boundary(
        &self,
        desired: &Desired,
        placement: &PlacementState,
        is_removal: bool,
    ) -> Result<Boundary, Failure> {
        let boundary = self.tenancies.boundary(desired, placement, is_removal).await?;
        if let Some(folder) = &desired.access.folder
            && !is_removal
            && !boundary.rules.is_empty()
        {
            let sources = self.source_packages.sources();
            sources.check_allowed(&folder.source, &desired.cluster.namespace).await?;
        }
        Ok(boundary)
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
