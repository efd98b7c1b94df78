//! Fetches a Source once, without watches.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::Source;
use chandler_core::failure::Failure;
use chandler_source::{Packages, SourceTree};
use kube::{Client, ResourceExt as _};

use super::{handle::unavailable, refused::RefusedRevisions, revision::RevisionFetcher};

/// Returns the files of the revision that a Source has now. They are fetched and verified as in the manager, unless they are in
/// the store of `packages`.
pub async fn fetch_source(
    client: &Client,
    packages: &Arc<Packages>,
    source: &Source,
) -> Result<SourceTree, Failure> {
    let (uid, refused) = (source.uid().unwrap_or_default(), RefusedRevisions::default());
    let revision = RevisionFetcher { client, packages, refused: &refused, source, uid: &uid };
    revision.current(Duration::ZERO, |_| {}).await?;
    let stored = packages.stored_tree(&uid).await?;
    let (_, tree) = stored.ok_or_else(|| {
        let named = format!("Source {}/{}", source.namespace().unwrap_or_default(), source.name_any());
        unavailable(&named, "has files that cannot be read")
    })?;
    Ok(tree)
}
