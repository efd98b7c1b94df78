//! Finds the revision that a Source asks for, and fetches, verifies and stores it unless it is stored.

mod artifact;
mod bucket;
mod commit;

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{KeyReference, Source, SourceSpec};
use chandler_core::{
    failure::{Category, Failure},
    source::{FetchedRevision, Origin, RemoteRefs, SelectedRevision, StoredFor, content_key},
};
use chandler_source::{Access, Packages, SourceTree, StoredRevision};
use kube::{Client, ResourceExt as _};

use super::refused::RefusedRevisions;
use crate::catalog::repository_access;

/// Finds and fetches the revision of a Source.
pub(super) struct RevisionFetcher<'a> {
    pub client: &'a Client,
    pub packages: &'a Arc<Packages>,
    pub refused: &'a RefusedRevisions,
    pub source: &'a Source,
    pub uid: &'a str,
}

/// A revision, and whether it was fetched now.
pub(super) struct FetchResult {
    pub revision: FetchedRevision,
    pub is_new: bool,
}

impl RevisionFetcher<'_> {
    /// Returns the revision that the repository or registry has now. What it lists may be `max_age` old. `on_refs` gets the refs
    /// of a Git repository, unless the Source is pinned to a commit.
    pub async fn current(
        &self,
        max_age: Duration,
        on_refs: impl FnOnce(&RemoteRefs),
    ) -> Result<FetchResult, Failure> {
        match Origin::of(&self.source.spec)? {
            Origin::Git(git) => self.current_commit(git, max_age, on_refs).await,
            Origin::Oci(oci) => self.current_artifact(oci, max_age).await,
            Origin::Bucket(bucket) => self.current_bucket(bucket, max_age).await,
        }
    }

    /// Returns the stored revision, if it was fetched for the current spec.
    pub fn stored(&self) -> Option<StoredRevision> {
        let wanted = content_key(&self.source.spec);
        let stored = self.packages.stored_revision(self.uid);
        stored.filter(|stored| stored.content_key == wanted.as_str())
    }

    /// Reads the certificate authority and the credentials of the Source.
    async fn access(&self) -> Result<Access, Failure> {
        let spec = &self.source.spec;
        let authority = spec.certificate_authority.as_ref();
        let credentials = spec.credentials.as_ref().map(KeyReference::from);
        repository_access(self.client, &self.namespace(), authority, credentials.as_ref()).await
    }

    fn namespace(&self) -> String {
        self.source.namespace().unwrap_or_default()
    }

    /// Fetches and stores a revision, unless it could not be used a moment ago. If the fetch fails, removes the stored files if
    /// they must not be used any more. `keys` is the digest of the keys or signers that are accepted now.
    async fn store(
        &self,
        selected: &SelectedRevision,
        keys: Option<&str>,
        fetch: impl Future<Output = Result<(StoredRevision, SourceTree), Failure>>,
    ) -> Result<FetchResult, Failure> {
        let attempt = attempt(&self.source.spec, selected, keys);
        if let Some(failure) = self.refused.get(self.uid, &attempt) {
            return Err(failure);
        }
        let fetched = fetch.await;
        if let Err(failure) = &fetched {
            self.remove_distrusted(failure.category, keys);
            // The signature of a commit is part of it, that of an artifact can be added later.
            if self.source.spec.oci.is_none() || failure.category != Category::VerificationFailed {
                self.refused.record(self.uid, attempt, failure);
            }
        }
        let (stored, tree) = fetched?;
        self.packages.store_tree(self.uid, stored.clone(), tree).await?;
        Ok(FetchResult { revision: describe(stored), is_new: true })
    }

    fn remove_distrusted(&self, failure: Category, keys: Option<&str>) {
        if self.stored().is_some_and(|stored| stored_for(&stored).is_distrusted(failure, keys)) {
            self.packages.remove_tree(self.uid);
        }
    }
}

/// Returns what decides whether a revision can be used: the spec, the revision, the tag and the keys.
fn attempt(spec: &SourceSpec, selected: &SelectedRevision, keys: Option<&str>) -> String {
    let SelectedRevision { id, tag } = selected;
    format!("{} {id} {tag:?} {keys:?}", content_key(spec).as_str())
}

fn stored_for(stored: &StoredRevision) -> StoredFor<'_> {
    StoredFor {
        id: &stored.commit.id,
        tag: stored.tag.as_deref(),
        verified_with: stored.verified_with.as_deref(),
    }
}

fn describe(stored: StoredRevision) -> FetchedRevision {
    let StoredRevision { commit, verified_by, remarks, .. } = stored;
    FetchedRevision { commit, verified_by, remarks }
}

/// Returns a stored revision, which was not fetched now.
fn known(stored: StoredRevision) -> FetchResult {
    FetchResult { revision: describe(stored), is_new: false }
}
