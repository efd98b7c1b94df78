//! The changes of a Source that `chandler source` makes. Pure.

use chandler_api::extensions::{
    RECONCILE_ANNOTATION, SYNC_LABEL, Source, UNPINNED_REF_ANNOTATION, VerificationMode,
};
use chandler_core::{failure::Failure, source::revision_digits};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{SourceReference, namespaced_name};

/// A Source cannot be pinned or unpinned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(
        "Sync {sync} writes Source {name} and would undo this: change its ref in the repository of the Sync instead, or suspend \
         the Source with `chandler source suspend`"
    )]
    Synced { name: String, sync: String },
    #[error(
        "Source {name} requires signatures of tags (spec.git.verify.mode), which a commit does not have: set spec.git.ref.tag, \
         or suspend the Source with `chandler source suspend`"
    )]
    SignedTags { name: String },
    #[error(
        "Source {name} is a bucket, which keeps no earlier revisions: suspend it with `chandler source suspend` to keep the \
         current one"
    )]
    Bucket { name: String },
    #[error("Source {name}: {failure}")]
    InvalidSpec { name: String, failure: Failure },
    #[error(
        "Source {name} has no revision yet: name the revision, or wait until its condition Ready is True"
    )]
    NoRevision { name: String },
    #[error("`{revision}` is not the id of a commit, or the digest of an artifact, or the start of one")]
    Invalid { revision: String },
    #[error(
        "Source {name} has not had a revision {revision} among its last ten; name the whole id of a commit of its \
         repository, or the whole digest of an artifact"
    )]
    Unknown { name: String, revision: String },
    #[error("revision {revision} is ambiguous: {}", candidates.join(", "))]
    Ambiguous { revision: String, candidates: Vec<String> },
    #[error("Source {name} is not pinned: it follows {reference}")]
    NotPinned { name: String, reference: String },
    #[error(
        "Source {name} was not pinned by `chandler source pin`, so what it followed is unknown: set its ref, for \
         example to a branch or a tag"
    )]
    UnknownReference { name: String },
}

/// A revision to pin, and the merge patch that pins it.
#[derive(Debug, PartialEq)]
pub struct Pin {
    pub revision: String,
    pub patch: Value,
}

/// What a Source follows again, and the merge patch that unpins it.
#[derive(Debug, PartialEq)]
pub struct Unpin {
    pub reference: String,
    pub patch: Value,
}

/// Returns the merge patch that suspends a Source. `None` means that it is suspended.
pub fn suspend(source: &Source) -> Option<Value> {
    (!source.spec.suspend).then(|| json!({"spec": {"suspend": true}}))
}

/// Returns the merge patch that resumes a Source and asks the manager to poll its repository. `None` means that it is not
/// suspended.
pub fn resume(source: &Source, now: Timestamp) -> Option<Value> {
    source.spec.suspend.then(|| {
        json!({
            "metadata": {"annotations": {RECONCILE_ANNOTATION: now.to_string()}}, "spec": {"suspend": false},
        })
    })
}

/// Returns the merge patch that asks the manager to poll a repository, and the value that it acknowledges in the status.
pub fn reconcile(now: Timestamp) -> (String, Value) {
    let requested = now.to_string();
    let patch = json!({"metadata": {"annotations": {RECONCILE_ANNOTATION: requested}}});
    (requested, patch)
}

/// Returns the change that pins a Source to a revision: the id of a commit, the digest of an artifact, or the start of one of
/// its last revisions. `None` means the current revision.
pub fn pin(source: &Source, revision: Option<&str>) -> Result<Pin, ChangeError> {
    refuse_synced(source)?;
    let (name, reference) = (namespaced_name(source), reference(source)?);
    let verify = source.spec.git.as_ref().and_then(|git| git.verify.as_ref());
    if verify.is_some_and(|verify| verify.mode != VerificationMode::Commit) {
        return Err(ChangeError::SignedTags { name });
    }
    if matches!(reference, SourceReference::Bucket { .. }) {
        return Err(ChangeError::Bucket { name });
    }
    let revision = if let Some(revision) = revision {
        resolve(source, &reference, revision)?
    } else {
        let current = source.status.as_ref().and_then(|status| status.revision.clone());
        current.ok_or(ChangeError::NoRevision { name })?
    };
    let mut patch = json!({"spec": reference.pinned(&revision)});
    if !reference.is_pinned() {
        let before = reference.to_json().to_string();
        patch["metadata"] = json!({"annotations": {UNPINNED_REF_ANNOTATION: before}});
    }
    Ok(Pin { revision, patch })
}

/// Returns the change that lets a pinned Source follow what it followed before, and asks the manager to poll its repository.
pub fn unpin(source: &Source, now: Timestamp) -> Result<Unpin, ChangeError> {
    refuse_synced(source)?;
    let (name, reference) = (namespaced_name(source), reference(source)?);
    if !reference.is_pinned() {
        return Err(ChangeError::NotPinned { name, reference: reference.to_string() });
    }
    let before = source.annotations().get(UNPINNED_REF_ANNOTATION);
    let before = before.and_then(|text| reference.parse(text));
    let before = before.ok_or(ChangeError::UnknownReference { name })?;
    let annotations = json!({UNPINNED_REF_ANNOTATION: null, RECONCILE_ANNOTATION: now.to_string()});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": before.unpinned()});
    Ok(Unpin { reference: before.to_string(), patch })
}

fn reference(source: &Source) -> Result<SourceReference, ChangeError> {
    SourceReference::of(&source.spec)
        .map_err(|failure| ChangeError::InvalidSpec { name: namespaced_name(source), failure })
}

/// Refuses to change what a Sync would change back.
fn refuse_synced(source: &Source) -> Result<(), ChangeError> {
    match source.labels().get(SYNC_LABEL) {
        Some(sync) => Err(ChangeError::Synced { name: namespaced_name(source), sync: sync.clone() }),
        None => Ok(()),
    }
}

/// Returns the revision of the Source that a text names.
fn resolve(source: &Source, reference: &SourceReference, text: &str) -> Result<String, ChangeError> {
    let revision = text.to_lowercase();
    let digits = revision_digits(&revision);
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(ChangeError::Invalid { revision: text.to_owned() });
    }
    if let Some(complete) = reference.complete_revision(&revision) {
        return Ok(complete);
    }
    let history = source.status.iter().flat_map(|status| &status.history);
    let mut candidates: Vec<_> = history
        .map(|known| known.revision.clone())
        .filter(|known| revision_digits(known).starts_with(digits))
        .collect();
    candidates.sort();
    candidates.dedup();
    match candidates.len() {
        0 => Err(ChangeError::Unknown { name: namespaced_name(source), revision }),
        1 => Ok(candidates.remove(0)),
        _ => Err(ChangeError::Ambiguous { revision, candidates }),
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::GitReference;

    use super::*;
    use crate::fixtures::source;

    const NEW: &str = "aaaa000000000000000000000000000000000000";
    const OLD: &str = "aabb000000000000000000000000000000000000";

    fn set_reference(source: &mut Source, reference: Option<GitReference>) {
        source.spec.git.as_mut().unwrap().reference = reference;
    }

    fn pinned(source: &Source, pin: &Pin) -> Source {
        let mut pinned = source.clone();
        set_reference(
            &mut pinned,
            Some(GitReference { commit: Some(pin.revision.clone()), ..GitReference::default() }),
        );
        let before =
            pin.patch.pointer("/metadata/annotations").map(|all| all[UNPINNED_REF_ANNOTATION].clone());
        if let Some(Value::String(before)) = before {
            pinned.annotations_mut().insert(UNPINNED_REF_ANNOTATION.to_owned(), before);
        }
        pinned
    }

    #[test]
    fn a_pinned_source_follows_its_branch_again() {
        let source = source("apps", &[NEW, OLD]);
        let pin = pin(&source, None).unwrap();
        assert_eq!(pin.revision, NEW);
        assert_eq!(
            pin.patch,
            json!({
                "spec": {"git": {"ref": {"branch": null, "tag": null, "semver": null, "commit": NEW}}},
                "metadata": {"annotations": {"chandler.dev/unpinned-ref": r#"{"branch":"main"}"#}},
            })
        );
        let unpin = unpin(&pinned(&source, &pin), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(unpin.reference, "branch main");
        assert_eq!(
            unpin.patch,
            json!({
                "metadata": {"annotations": {
                    "chandler.dev/unpinned-ref": null, "chandler.dev/reconcile-at": "1970-01-01T00:00:00Z",
                }},
                "spec": {"git": {"ref": {"branch": "main", "commit": null}}},
            })
        );
    }

    #[test]
    fn another_pin_keeps_what_the_source_followed_before() {
        let mut source = source("apps", &[NEW, OLD]);
        set_reference(&mut source, None);
        let first = pin(&source, Some("aaaa")).unwrap();
        let again = pinned(&source, &first);
        let second = pin(&again, Some(OLD)).unwrap();
        assert_eq!((second.revision.as_str(), second.patch.get("metadata")), (OLD, None));
        let unpin = unpin(&again, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((&*unpin.reference, &unpin.patch["spec"]["git"]["ref"]), ("default branch", &Value::Null));
    }

    #[test]
    fn a_commit_is_an_id_or_the_start_of_one_in_the_history() {
        let source = source("apps", &[NEW, OLD]);
        let unknown = "c".repeat(40);
        assert_eq!(pin(&source, Some(&unknown)).unwrap().revision, unknown, "the repository may have it");
        assert_eq!(pin(&source, Some("AABB")).unwrap().revision, OLD);
        let rows = [
            (
                "aa",
                ChangeError::Ambiguous {
                    revision: "aa".to_owned(),
                    candidates: vec![NEW.to_owned(), OLD.to_owned()],
                },
            ),
            ("ff", ChangeError::Unknown { name: "fleet/apps".to_owned(), revision: "ff".to_owned() }),
            ("main", ChangeError::Invalid { revision: "main".to_owned() }),
        ];
        for (commit, expected) in rows {
            assert_eq!(pin(&source, Some(commit)).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_source_that_cannot_be_pinned_or_unpinned_says_why() {
        let (name, now) = (|| "fleet/apps".to_owned(), Timestamp::UNIX_EPOCH);
        let unfetched = source("apps", &[]);
        assert_eq!(pin(&unfetched, None).unwrap_err(), ChangeError::NoRevision { name: name() });
        let reference = "branch main".to_owned();
        assert_eq!(unpin(&unfetched, now).unwrap_err(), ChangeError::NotPinned { name: name(), reference });
        let mut by_hand = source("apps", &[NEW]);
        let commit = Some(NEW.to_owned());
        set_reference(&mut by_hand, Some(GitReference { commit, ..GitReference::default() }));
        assert_eq!(unpin(&by_hand, now).unwrap_err(), ChangeError::UnknownReference { name: name() });
        let mut synced = source("apps", &[NEW]);
        synced.labels_mut().insert(SYNC_LABEL.to_owned(), "fleet.base".to_owned());
        let sync = "fleet.base".to_owned();
        assert_eq!(pin(&synced, None).unwrap_err(), ChangeError::Synced { name: name(), sync });
        let mut signed = source("apps", &[NEW]);
        let verify = serde_json::from_value(json!({"mode": "Tag", "keys": {"name": "k"}})).unwrap();
        signed.spec.git.as_mut().unwrap().verify = verify;
        assert_eq!(pin(&signed, None).unwrap_err(), ChangeError::SignedTags { name: name() });
    }

    #[test]
    fn artifacts_are_pinned_by_their_digest_and_buckets_not_at_all() {
        let digests = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let mut artifact = source("apps", &[digests[0].as_str()]);
        artifact.spec.git = None;
        artifact.spec.oci = serde_json::from_value(json!({"url": "u", "ref": {"semver": "1.x"}})).unwrap();
        for (text, expected) in [("aaaa", 0), ("SHA256:AAAA", 0), (digests[1].as_str(), 1)] {
            assert_eq!(pin(&artifact, Some(text)).unwrap().revision, digests[expected], "{text}");
        }
        let by_digits = pin(&artifact, Some(&"b".repeat(64))).unwrap();
        let reference = json!({"tag": null, "semver": null, "digest": digests[1]});
        assert_eq!(by_digits.patch["spec"], json!({"oci": {"ref": reference}}));
        artifact.spec.oci = serde_json::from_value(json!({"url": "u", "ref": {"digest": "d"}})).unwrap();
        artifact
            .annotations_mut()
            .insert(UNPINNED_REF_ANNOTATION.to_owned(), r#"{"semver":"1.x"}"#.to_owned());
        let unpin = unpin(&artifact, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(unpin.reference, "semver 1.x");
        assert_eq!(unpin.patch["spec"], json!({"oci": {"ref": {"semver": "1.x", "digest": null}}}));
        let mut bucket = source("apps", &[digests[0].as_str()]);
        bucket.spec.git = None;
        let fields = json!({"provider": "S3", "endpoint": "https://s3.example", "name": "fleet"});
        bucket.spec.bucket = serde_json::from_value(fields).unwrap();
        assert_eq!(pin(&bucket, None).unwrap_err(), ChangeError::Bucket { name: "fleet/apps".to_owned() });
    }

    #[test]
    fn suspending_and_resuming_change_nothing_twice() {
        let mut source = source("apps", &[]);
        assert_eq!(suspend(&source), Some(json!({"spec": {"suspend": true}})));
        assert_eq!(resume(&source, Timestamp::UNIX_EPOCH), None);
        source.spec.suspend = true;
        assert_eq!(suspend(&source), None);
        let resumed = resume(&source, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(resumed["spec"], json!({"suspend": false}));
        let polled = &resumed["metadata"]["annotations"]["chandler.dev/reconcile-at"];
        assert_eq!(polled, "1970-01-01T00:00:00Z");
    }
}
