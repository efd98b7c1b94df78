//! The OCI artifact that a Source asks for.

use std::time::Duration;

use chandler_api::extensions::OciArtifact;
use chandler_core::{
    failure::Failure,
    source::{ArtifactSelector, SelectedRevision, content_key, select_tag},
};
use chandler_source::{Access, Artifact, SourceTree, StoredRevision};

use super::{FetchResult, RevisionFetcher, known, stored_for};
use crate::{catalog::required_signers, queue::outside_of_limit};

impl RevisionFetcher<'_> {
    pub(super) async fn current_artifact(
        &self,
        oci: &OciArtifact,
        max_age: Duration,
    ) -> Result<FetchResult, Failure> {
        let access = self.artifact_access(oci).await?;
        let signers = self.packages.artifact_signers(&oci.url, &access)?;
        let reference = self.reference(oci, &access, max_age).await?;
        let selected = |digest: &str| SelectedRevision { id: digest.to_owned(), tag: None };
        let find = |selected: &SelectedRevision| {
            self.stored().filter(|stored| stored_for(stored).is_current(selected, signers.as_deref()))
        };
        // What a digest names never changes, so that the registry need not be asked.
        if let Some(stored) = find(&selected(&reference)) {
            return Ok(known(stored));
        }
        let artifact =
            outside_of_limit(self.packages.artifact(&oci.url, &reference, &access, max_age)).await?;
        let selected = selected(&artifact.record.id);
        if let Some(stored) = find(&selected) {
            return Ok(known(stored));
        }
        let fetch = self.fetch_artifact(oci, &artifact, &access, signers.as_deref());
        self.store(&selected, signers.as_deref(), fetch).await
    }

    /// Fetches and verifies an artifact.
    async fn fetch_artifact(
        &self,
        oci: &OciArtifact,
        artifact: &Artifact,
        access: &Access,
        signers: Option<&str>,
    ) -> Result<(StoredRevision, SourceTree), Failure> {
        let spec = &self.source.spec;
        let namespace = self.namespace();
        let files = self.packages.artifact_files(artifact, access, &spec.ignore, &namespace);
        let files = outside_of_limit(files).await?;
        let stored = StoredRevision {
            namespace,
            content_key: content_key(spec).as_str().to_owned(),
            verified_with: signers.map(str::to_owned),
            commit: artifact.record.clone(),
            tag: None,
            verified_by: verified_by(oci, signers),
            remarks: files.remarks.clone(),
        };
        Ok((stored, files.tree.clone()))
    }

    /// Reads the certificate authority, the credentials and the required signers of the Source.
    async fn artifact_access(&self, oci: &OciArtifact) -> Result<Access, Failure> {
        let access = self.access().await?;
        let signers = match &oci.verify {
            Some(verify) => {
                let field = "spec.oci.verify of the Source";
                Some(required_signers(self.client, &self.namespace(), verify, field).await?)
            }
            None => None,
        };
        Ok(Access { signers, ..access })
    }

    /// Returns the tag or digest that the Source asks for.
    async fn reference(
        &self,
        oci: &OciArtifact,
        access: &Access,
        max_age: Duration,
    ) -> Result<String, Failure> {
        match ArtifactSelector::of(oci) {
            ArtifactSelector::Digest(text) | ArtifactSelector::Tag(text) => Ok(text.to_owned()),
            ArtifactSelector::Range(range) => {
                let namespace = self.namespace();
                let tags = self.packages.artifact_tags(&oci.url, access, max_age, &namespace);
                let tags = outside_of_limit(tags).await?;
                select_tag(oci, range, &tags).map(str::to_owned)
            }
        }
    }
}

/// Returns the rules that the signatures of an artifact meet. `signers` has one word for each.
fn verified_by(oci: &OciArtifact, signers: Option<&str>) -> Option<String> {
    let own = oci.verify.as_ref().map(|_| "spec.oci.verify");
    let by_policy = signers?.split(' ').count() > usize::from(own.is_some());
    let policy = by_policy.then_some("the signature policy of the platform");
    Some(policy.into_iter().chain(own).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rules_that_signatures_meet_are_named() {
        let (url, policy) = ("oci://r.example/a", "the signature policy of the platform");
        let plain = serde_json::from_value(json!({"url": url})).unwrap();
        let own = json!({"url": url, "verify": {"verifier": "Cosign", "keys": {"name": "keys"}}});
        let own = serde_json::from_value(own).unwrap();
        assert_eq!(verified_by(&plain, None), None);
        assert_eq!(verified_by(&plain, Some("a")).as_deref(), Some(policy));
        assert_eq!(verified_by(&own, Some("a")).as_deref(), Some("spec.oci.verify"));
        assert_eq!(verified_by(&own, Some("a b")), Some(format!("{policy}, spec.oci.verify")));
    }
}
