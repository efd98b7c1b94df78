//! What releases may do on their clusters.

use chandler_api::extensions::Scope;
use chandler_core::{
    failure::{Category, Failure},
    release::{Desired, ReleaseKind},
    tenancy::{Boundary, Purpose, ReleaseOrigin, ReleaseRequest},
};
use chandler_tool::PackageTool;

use super::ReleaseContext;

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Returns what a release may do on its cluster, or why AddonTenancies do not allow it, or why that is not known.
    pub async fn boundary(
        &self,
        release: &R,
        desired: &Desired,
        purpose: Purpose,
    ) -> Result<Boundary, Failure> {
        let origin = ReleaseOrigin::of(release);
        let request = ReleaseRequest { desired, origin: &origin, purpose };
        let boundary = self.tenancies.boundary(request).await?;
        if let Some(folder) = &desired.access.folder
            && folder.source.scope == Scope::Namespace
            && purpose == Purpose::Apply
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
