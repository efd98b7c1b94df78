//! The tags of a Source's repository or artifact, for packages that name one instead of the revision of the Source.

use std::{collections::HashMap, time::Duration};

use chandler_api::extensions::{GitReference, KeyReference, OciReference, Source, SourceRef};
use chandler_core::{
    digest::Digest,
    failure::{Category, Failure},
    source::{Origin, RemoteRefs, poll_interval, tag_names, tags_digest},
    tenancy::SourceUse,
};
use kube::ResourceExt as _;

use super::{CurrentSource, Sources, handle::unavailable, revision::RevisionFetcher};
use crate::{catalog::repository_access, locks::Mutex, queue::outside_of_limit};

/// The age of a list of tags if the interval of the Source is invalid.
const DEFAULT_AGE: Duration = Duration::from_mins(1);
/// How long the revision of a tag is used before the list of tags is read again: long enough for a fleet that reads it at
/// the same time.
pub(super) const CACHED: Duration = Duration::from_secs(5);

/// The key of a tag's revision: its key in the store, the generation of the Source, and the number of changes of all Sources,
/// so that a tag that was moved is read again at once.
pub(super) type TagKey = (String, Option<i64>, u64);

/// The tags that repositories had at the last polls, by the uids of their Sources.
#[derive(Debug, Default)]
pub(super) struct KnownTags(Mutex<HashMap<String, Digest>>);

impl KnownTags {
    /// Records the tags. Returns whether the repository had others at the last poll.
    pub fn have_changed(&self, uid: &str, refs: &RemoteRefs) -> bool {
        let tags = tags_digest(refs);
        let before = self.0.lock().insert(uid.to_owned(), tags.clone());
        before.is_some_and(|before| before != tags)
    }

    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

impl Sources {
    /// Returns how old a list of tags may be.
    fn max_age(&self, source: &Source) -> Duration {
        poll_interval(&source.spec.interval, self.min_interval).unwrap_or(DEFAULT_AGE)
    }

    /// Checks whether AddonTenancies allow the namespace of a Source to fetch from its URL. Tags are read when they are needed, and
    /// not by the reconciler of the Source, which checks it as well.
    async fn check_url(&self, source: &Source) -> Result<(), Failure> {
        let (url, home) = (Origin::of(&source.spec)?.url(), source.namespace().unwrap_or_default());
        self.tenancies.check_source(&home, SourceUse::Url(&url)).await
    }

    /// Returns the names of the tags of a Source's repository or artifact.
    pub async fn tags(&self, reference: &SourceRef, namespace: &str) -> Result<Vec<String>, Failure> {
        let source = self.get(reference, namespace).await?;
        self.check_url(&source).await?;
        let spec = &source.spec;
        let home = source.namespace().unwrap_or_default();
        let authority = spec.certificate_authority.as_ref();
        let credentials = spec.credentials.as_ref().map(KeyReference::from);
        let access = repository_access(&self.client, &home, authority, credentials.as_ref()).await?;
        match Origin::of(spec)? {
            Origin::Git(git) => {
                let refs = self.packages.git_refs(&git.url, &access, self.max_age(&source), &home);
                let refs = outside_of_limit(refs).await?;
                Ok(tag_names(&refs).map(str::to_owned).collect())
            }
            Origin::Oci(oci) => {
                let tags = self.packages.artifact_tags(&oci.url, &access, self.max_age(&source), &home);
                let tags = outside_of_limit(tags).await?;
                Ok(tags.to_vec())
            }
            Origin::Bucket(_) => Err(no_tags(&reference.name)),
        }
    }

    /// Returns the revision of a tag. Fetches, verifies and stores it, unless it is stored. If that fails or is not allowed, the
    /// stored revision stays.
    pub async fn tagged(
        &self,
        reference: &SourceRef,
        namespace: &str,
        tag: &str,
    ) -> Result<CurrentSource, Failure> {
        let source = self.get(reference, namespace).await?;
        let named = format!("Source {}/{}", source.namespace().unwrap_or_default(), source.name_any());
        let origin = Origin::of(&source.spec)?;
        if matches!(origin, Origin::Bucket(_)) {
            return Err(no_tags(&reference.name));
        }
        if origin.is_pinned() {
            let message = format!("{named} is pinned by its ref, so the tag {tag} cannot be used");
            return Err(Failure::new(Category::InvalidSpec, message));
        }
        let uid = format!("{}/{tag}", source.uid().unwrap_or_default());
        let tagged = at_tag(&source, tag);
        let revision = RevisionFetcher {
            client: &self.client,
            packages: &self.packages,
            refused: &self.refused,
            source: &tagged,
            uid: &uid,
        };
        // Before the read, because callers that wait for one that fails read again one after the other.
        let allowed = if source.spec.suspend { Ok(()) } else { self.check_url(&source).await };
        let read = async {
            let polled = match allowed {
                Ok(()) if source.spec.suspend => Ok(()),
                Ok(()) => revision.current(self.max_age(&source), |_| {}).await.map(drop),
                Err(refused) => Err(refused),
            };
            match (revision.stored(), polled) {
                (Some(stored), _) => Ok(stored),
                (None, Err(failure)) => Err(failure),
                (None, Ok(())) => Err(unavailable(&named, &format!("has not fetched the tag {tag} yet"))),
            }
        };
        let key = (uid.clone(), source.metadata.generation, self.changes_so_far());
        let stored = outside_of_limit(self.tagged.get(&key, read)).await?;
        Ok(CurrentSource { named, uid, url: origin.url(), revision: stored })
    }
}

fn no_tags(name: &str) -> Failure {
    let message =
        format!("Source {name} is a bucket, which has no tags; remove `version` next to the sourceRef");
    Failure::new(Category::InvalidSpec, message)
}

/// Returns the Source as if it asked for a tag.
fn at_tag(source: &Source, tag: &str) -> Source {
    let mut tagged = source.clone();
    let tag = Some(tag.to_owned());
    if let Some(git) = &mut tagged.spec.git {
        git.reference = Some(GitReference { tag: tag.clone(), ..GitReference::default() });
    }
    if let Some(oci) = &mut tagged.spec.oci {
        oci.reference = Some(OciReference { tag, ..OciReference::default() });
    }
    tagged
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chandler_core::source::RemoteRef;
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::{
        sources::testing,
        tenancies::{self, Tenancies},
    };

    #[tokio::test]
    async fn tags_are_read_only_from_an_allowed_url_and_stored_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (packages, source) = (testing::packages(folder.path()), testing::source("main"));
        let tenancies = Tenancies::new(testing::offline(), None);
        let mut strict = DynamicObject::new("strict", &tenancies::resource());
        let elsewhere = json!({"urlPrefixes": ["https://elsewhere.example"]});
        strict.data = json!({"spec": {"namespaces": {"names": ["team"]}, "sources": elsewhere}});
        tenancies.set(&[Arc::new(strict)]);
        let sources = testing::listed(source.clone(), packages.clone()).under(tenancies);
        let reference = SourceRef { name: "fleet".to_owned(), ..SourceRef::default() };

        let tagged = sources.tagged(&reference, "team", "v1").await.map(drop).unwrap_err();
        let tags = sources.tags(&reference, "team").await.unwrap_err();
        for refused in [tagged, tags] {
            assert_eq!(refused.category, Category::NotAllowed, "{refused}");
            assert!(refused.message.contains("AddonTenancy strict"), "{refused}");
            assert!(refused.message.contains("https://git.example/fleet.git"), "{refused}");
        }

        let (revision, tree) = testing::stored(&at_tag(&source, "v1"), "c1", &[]);
        packages.store_tree("uid/v1", revision, tree).await.unwrap();
        let kept = sources.tagged(&reference, "team", "v1").await.map(|current| current.revision.commit.id);
        assert_eq!(kept.unwrap(), "c1");
        let other = sources.tagged(&reference, "team", "v2").await.map(drop).unwrap_err();
        assert_eq!(other.category, Category::NotAllowed, "{other}");
    }

    #[test]
    fn a_tag_that_was_moved_is_noticed_once() {
        let refs = |commit: &str| {
            let name = "refs/tags/v1.34".to_owned();
            RemoteRefs(vec![RemoteRef { name, commit: commit.to_owned(), tag: None }])
        };
        let tags = KnownTags::default();
        assert!(!tags.have_changed("uid", &refs("c1")), "the first poll");
        assert!(!tags.have_changed("uid", &refs("c1")));
        assert!(tags.have_changed("uid", &refs("c2")));
        assert!(!tags.have_changed("uid", &refs("c2")));
        tags.forget("uid");
        assert!(!tags.have_changed("uid", &refs("c3")), "another Source of the same name");
    }
}
