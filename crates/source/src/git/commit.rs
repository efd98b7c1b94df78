//! A fetched commit: its description, its files, and what is needed to verify its signatures.

use chandler_core::source::{SelectedTag, SourceRevisionRecord, VerificationMode, revision_record};
use gix_hash::{Kind as HashKind, ObjectId};
use gix_object::{CommitRef, CommitRefIter, Kind, TagRef, TagRefIter};

use super::{objects::Objects, session::Fetch, signature::GitKeys, tree_reader};
use crate::{SourceError, SourceTree};

/// A fetched commit.
#[derive(Clone, Debug)]
pub struct GitCommit {
    pub record: SourceRevisionRecord,
    pub tree: SourceTree,
    /// What was left out of the files. Empty if nothing was.
    pub remarks: String,
    url: String,
    /// The commit object.
    object: Vec<u8>,
    tag: Option<FetchedTag>,
}

#[derive(Clone, Debug)]
struct FetchedTag {
    /// The name of the ref.
    ref_name: String,
    /// The name in the tag object, which its signature covers.
    signed_name: String,
    /// The tag object.
    object: Vec<u8>,
}

impl AsRef<SourceTree> for GitCommit {
    fn as_ref(&self) -> &SourceTree {
        &self.tree
    }
}

impl GitCommit {
    pub(super) fn read(objects: &mut Objects, fetch: &Fetch) -> Result<Self, SourceError> {
        let id = fetch.id(&fetch.selected.id)?;
        let tag = match &fetch.selected.tag {
            Some(tag) => Some(read_tag(objects, fetch, tag, id)?),
            None => None,
        };
        let object = read_object(objects, fetch, id, Kind::Commit)?;
        let commit = CommitRef::from_bytes(&object, HashKind::Sha1)
            .map_err(|error| fetch.unusable(format!("its commit object is invalid: {error}")))?;
        let author = commit.author().map(|author| format!("{} <{}>", author.name, author.email));
        let seconds = commit.committer().map_or(0, |committer| committer.seconds());
        let message = commit.message.to_string();
        let record = revision_record(&fetch.selected.id, &author.unwrap_or_default(), &message, seconds);
        let root = commit.tree();
        drop(commit);
        let (files, remarks) = tree_reader::read(objects, fetch, root)?;
        let tree = SourceTree { revision: record.id.clone(), files };
        let url = fetch.connection().url.to_string();
        Ok(Self { record, tree, remarks, url, object, tag })
    }

    /// Verifies the signatures. Returns who signed.
    pub fn verify(&self, mode: VerificationMode, keys: &GitKeys) -> Result<String, SourceError> {
        let verified = match mode {
            VerificationMode::Commit => self.commit_signer(keys),
            VerificationMode::Tag => self.tag_signer(keys),
            VerificationMode::TagAndCommit => self.tag_signer(keys).and_then(|tag| {
                let commit = self.commit_signer(keys)?;
                Ok(if tag == commit { tag } else { format!("{tag}, {commit}") })
            }),
        };
        verified.map_err(|reason| SourceError::UnverifiedRevision {
            url: self.url.clone(),
            revision: self.record.id.clone(),
            reason,
        })
    }

    fn commit_signer(&self, keys: &GitKeys) -> Result<String, String> {
        let found = CommitRefIter::signature(&self.object, HashKind::Sha1);
        let found = found.map_err(|error| format!("its commit object is invalid: {error}"))?;
        let (signature, signed) = found.ok_or_else(|| unsigned("its commit", "git commit -S"))?;
        keys.signer(&signed.to_bstring(), &signature).map_err(|error| format!("its commit {error}"))
    }

    fn tag_signer(&self, keys: &GitKeys) -> Result<String, String> {
        let FetchedTag { ref_name, signed_name, object } = self.tag.as_ref().ok_or_else(|| {
            "spec.git.verify requires a signed tag, but spec.git.ref names no annotated tag; create it with `git tag -s`"
                .to_owned()
        })?;
        // A signed tag under another name must not pass as a newer version.
        if ref_name != signed_name {
            return Err(format!("the tag {ref_name} contains a tag object with the name {signed_name}"));
        }
        let (signature, signed) =
            TagRefIter::signature(object).ok_or_else(|| unsigned("its tag", "git tag -s"))?;
        keys.signer(&signed.to_bstring(), signature.data).map_err(|error| format!("its tag {error}"))
    }
}

fn unsigned(what: &str, command: &str) -> String {
    format!("{what} has no signature; sign it with `{command}`")
}

fn read_tag(
    objects: &mut Objects,
    fetch: &Fetch,
    selected: &SelectedTag,
    commit: ObjectId,
) -> Result<FetchedTag, SourceError> {
    let id = fetch.id(&selected.id)?;
    let object = read_object(objects, fetch, id, Kind::Tag)?;
    let tag = TagRef::from_bytes(&object, HashKind::Sha1)
        .map_err(|error| fetch.unusable(format!("its tag object is invalid: {error}")))?;
    if tag.target_kind != Kind::Commit || tag.target() != commit {
        let name = &selected.name;
        return Err(
            fetch.unusable(format!("the tag {name} does not name this commit; tag the commit itself"))
        );
    }
    let signed_name = tag.name.to_string();
    Ok(FetchedTag { ref_name: selected.name.clone(), signed_name, object })
}

/// Returns a copy of an object of this kind.
fn read_object(
    objects: &mut Objects,
    fetch: &Fetch,
    id: ObjectId,
    kind: Kind,
) -> Result<Vec<u8>, SourceError> {
    let found = objects.read(&id).map_err(|error| fetch.connection().error(&error))?;
    match found {
        Some((actual, data)) if actual == kind => Ok(data.to_vec()),
        Some((actual, _)) => Err(fetch.unusable(format!("{id} is a {actual}, not a {kind}"))),
        None => Err(fetch.unusable(format!("the server did not send its {kind} {id}"))),
    }
}
