//! The commit of a Git repository that a Source asks for.

use std::time::Duration;

use chandler_api::extensions::GitRepository;
use chandler_core::{
    failure::{Category, Failure},
    source::{RemoteRefs, SelectedRevision, content_key, pinned_commit, select_commit},
};
use chandler_source::{Access, GitKeys, GitRequest, SourceTree, StoredRevision};

use super::{FetchResult, RevisionFetcher, known, stored_for};
use crate::{catalog::public_keys, queue::outside_of_limit};

impl RevisionFetcher<'_> {
    pub(super) async fn current_commit(
        &self,
        git: &GitRepository,
        max_age: Duration,
        on_refs: impl FnOnce(&RemoteRefs),
    ) -> Result<FetchResult, Failure> {
        let keys = self.keys(git).await?;
        let access = self.access().await?;
        let selected = if let Some(pinned) = pinned_commit(git) {
            pinned
        } else {
            let namespace = self.namespace();
            let refs = self.packages.git_refs(&git.url, &access, max_age, &namespace);
            let refs = outside_of_limit(refs).await?;
            on_refs(&refs);
            select_commit(git, &refs)?
        };
        let digest = keys.as_ref().map(|keys| keys.digest().as_str());
        if let Some(stored) = self.stored().filter(|stored| stored_for(stored).is_current(&selected, digest))
        {
            return Ok(known(stored));
        }
        self.store(&selected, digest, self.fetch_commit(git, &access, &selected, keys.as_ref())).await
    }

    /// Reads the keys whose signatures the Source accepts. `None` means that no signature is required.
    async fn keys(&self, git: &GitRepository) -> Result<Option<GitKeys>, Failure> {
        let Some(verify) = &git.verify else { return Ok(None) };
        let (namespace, name) = (self.namespace(), &verify.keys.name);
        let texts = public_keys(self.client, &namespace, name).await;
        let keys = texts.and_then(|texts| {
            let keys = GitKeys::parse(texts.iter().map(String::as_str));
            keys.map_err(|error| format!("Secret {namespace}/{name}: {error}"))
        });
        keys.map(Some).map_err(|problem| {
            Failure::new(
                Category::VerificationFailed,
                format!("spec.git.verify of the Source is invalid: {problem}"),
            )
        })
    }

    /// Fetches and verifies a commit.
    async fn fetch_commit(
        &self,
        git: &GitRepository,
        access: &Access,
        selected: &SelectedRevision,
        keys: Option<&GitKeys>,
    ) -> Result<(StoredRevision, SourceTree), Failure> {
        let spec = &self.source.spec;
        let namespace = self.namespace();
        let request =
            GitRequest { namespace: &namespace, url: &git.url, access, selected, ignore: &spec.ignore };
        let commit = outside_of_limit(self.packages.git_commit(request)).await?;
        let verified_by = match (&git.verify, keys) {
            (Some(verify), Some(keys)) => Some(commit.verify(verify.mode, keys)?),
            _ => None,
        };
        let stored = StoredRevision {
            namespace,
            content_key: content_key(spec).as_str().to_owned(),
            verified_with: keys.map(|keys| keys.digest().as_str().to_owned()),
            commit: commit.record.clone(),
            tag: selected.tag.as_ref().map(|tag| tag.id.clone()),
            verified_by,
            remarks: commit.remarks.clone(),
        };
        Ok((stored, commit.tree.clone()))
    }
}
