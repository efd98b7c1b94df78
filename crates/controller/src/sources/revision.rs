//! Finds the revision that a Source asks for, and fetches, verifies and stores it unless it is stored.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{Source, SourceSpec};
use chandler_core::{
    failure::{Category, Failure},
    source::{
        FetchedRevision, RemoteRefs, SelectedCommit, StoredFor, content_key, pinned_commit, select_commit,
    },
};
use chandler_source::{Access, GitKeys, GitRequest, Packages, StoredRevision};
use kube::{Client, ResourceExt as _};

use super::refused::RefusedRevisions;
use crate::catalog::{public_keys, repository_access};

/// The last revision of a Source.
pub(super) struct Revision<'a> {
    pub client: &'a Client,
    pub packages: &'a Arc<Packages>,
    pub refused: &'a RefusedRevisions,
    pub source: &'a Source,
    pub uid: &'a str,
}

/// A revision, and whether it was fetched now.
pub(super) struct Current {
    pub revision: FetchedRevision,
    pub is_new: bool,
}

impl Revision<'_> {
    /// Returns the revision that the repository has now. A list of refs may be `max_age` old. `on_refs` gets it, unless the Source
    /// is pinned to a commit.
    pub async fn current(
        &self,
        max_age: Duration,
        on_refs: impl FnOnce(&RemoteRefs),
    ) -> Result<Current, Failure> {
        let keys = self.keys().await?;
        let spec = &self.source.spec;
        let namespace = self.source.namespace().unwrap_or_default();
        let (authority, credentials) = (spec.certificate_authority.as_ref(), spec.credentials.as_ref());
        let access = repository_access(self.client, &namespace, authority, credentials).await?;
        let selected = if let Some(pinned) = pinned_commit(&spec.git) {
            pinned
        } else {
            let refs = self.packages.git_refs(&spec.git.url, &access, max_age).await?;
            on_refs(&refs);
            select_commit(&spec.git, &refs)?
        };
        let digest = keys.as_ref().map(|keys| keys.digest().as_str());
        if let Some(stored) = self.stored().filter(|stored| stored_for(stored).is_current(&selected, digest))
        {
            return Ok(Current { revision: fetched(stored), is_new: false });
        }
        let attempt = attempt(&self.source.spec, &selected, digest);
        if let Some(failure) = self.refused.get(self.uid, &attempt) {
            return Err(failure);
        }
        let fetched_now = self.fetch(&access, &selected, keys.as_ref()).await;
        if let Err(failure) = &fetched_now {
            self.remove_distrusted(failure.category, digest);
            self.refused.record(self.uid, attempt, failure);
        }
        Ok(Current { revision: fetched(fetched_now?), is_new: true })
    }

    /// Returns the stored revision, if it was fetched for the current spec.
    pub fn stored(&self) -> Option<StoredRevision> {
        let wanted = content_key(&self.source.spec);
        let stored = self.packages.stored_revision(self.uid);
        stored.filter(|stored| stored.content_key == wanted.as_str())
    }

    /// Reads the keys whose signatures the Source accepts. `None` means that no signature is required.
    async fn keys(&self) -> Result<Option<GitKeys>, Failure> {
        let Some(verify) = &self.source.spec.verify else { return Ok(None) };
        let (namespace, name) = (self.source.namespace().unwrap_or_default(), &verify.keys.name);
        let texts = public_keys(self.client, &namespace, name).await;
        let keys = texts.and_then(|texts| {
            let keys = GitKeys::parse(texts.iter().map(String::as_str));
            keys.map_err(|error| format!("Secret {namespace}/{name}: {error}"))
        });
        keys.map(Some).map_err(|problem| {
            Failure::new(
                Category::VerificationFailed,
                format!("spec.verify of the Source is invalid: {problem}"),
            )
        })
    }

    /// Fetches, verifies and stores a commit.
    async fn fetch(
        &self,
        access: &Access,
        selected: &SelectedCommit,
        keys: Option<&GitKeys>,
    ) -> Result<StoredRevision, Failure> {
        let spec = &self.source.spec;
        let request = GitRequest { url: &spec.git.url, access, selected, ignore: &spec.ignore };
        let commit = self.packages.git_commit(request).await?;
        let verified_by = match (&spec.verify, keys) {
            (Some(verify), Some(keys)) => Some(commit.verify(verify.mode, keys)?),
            _ => None,
        };
        let stored = StoredRevision {
            namespace: self.source.namespace().unwrap_or_default(),
            content_key: content_key(spec).as_str().to_owned(),
            keys: keys.map(|keys| keys.digest().as_str().to_owned()),
            commit: commit.record.clone(),
            tag: selected.tag.as_ref().map(|tag| tag.id.clone()),
            verified_by,
            remarks: commit.remarks.clone(),
        };
        self.packages.store_tree(self.uid, stored.clone(), commit.tree.clone()).await?;
        Ok(stored)
    }

    /// Removes the stored files if the failure of a fetch means that they must not be used any more.
    fn remove_distrusted(&self, failure: Category, keys: Option<&str>) {
        if self.stored().is_some_and(|stored| stored_for(&stored).is_distrusted(failure, keys)) {
            self.packages.remove_tree(self.uid);
        }
    }
}

/// Returns what decides whether a revision can be used: the spec, the commit, the tag and the keys.
fn attempt(spec: &SourceSpec, selected: &SelectedCommit, keys: Option<&str>) -> String {
    let SelectedCommit { commit, tag } = selected;
    format!("{} {commit} {tag:?} {keys:?}", content_key(spec).as_str())
}

fn stored_for(stored: &StoredRevision) -> StoredFor<'_> {
    StoredFor { commit: &stored.commit.id, tag: stored.tag.as_deref(), keys: stored.keys.as_deref() }
}

fn fetched(stored: StoredRevision) -> FetchedRevision {
    let StoredRevision { commit, verified_by, remarks, .. } = stored;
    FetchedRevision { commit, verified_by, remarks }
}
