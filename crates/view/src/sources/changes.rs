//! The changes of a Source that `chandler source` makes. Pure.

use chandler_api::extensions::{
    GitReference, RECONCILE_ANNOTATION, SYNC_LABEL, Source, UNPINNED_REF_ANNOTATION, VerificationMode,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{namespaced_name, reference_text};

/// Length of the id of a commit.
const ID_LENGTH: usize = 40;

/// A Source cannot be pinned or unpinned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(
        "Sync {sync} writes Source {name} and would undo this: change spec.git.ref in its repository instead, or suspend \
         the Source with `chandler source suspend`"
    )]
    Synced { name: String, sync: String },
    #[error(
        "Source {name} requires signatures of tags (spec.verify.mode), which a commit does not have: set spec.git.ref.tag, \
         or suspend the Source with `chandler source suspend`"
    )]
    SignedTags { name: String },
    #[error("Source {name} has no revision yet: name the commit, or wait until its condition Ready is True")]
    NoRevision { name: String },
    #[error("`{commit}` is not the id of a commit, or the start of one")]
    Invalid { commit: String },
    #[error(
        "Source {name} has not had a commit {commit} among its last ten revisions; name the whole id of a commit of its \
         repository"
    )]
    Unknown { name: String, commit: String },
    #[error("commit {commit} is ambiguous: {}", candidates.join(", "))]
    Ambiguous { commit: String, candidates: Vec<String> },
    #[error("Source {name} is not pinned: it follows {reference}")]
    NotPinned { name: String, reference: String },
    #[error(
        "Source {name} was not pinned by `chandler source pin`, so what it followed is unknown: set spec.git.ref, for \
         example to a branch"
    )]
    UnknownReference { name: String },
}

/// A commit to pin, and the merge patch that pins it.
#[derive(Debug, PartialEq)]
pub struct Pin {
    pub commit: String,
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

/// Returns the change that pins a Source to a commit: an id, or the start of one of its last revisions. `None` means the
/// current revision.
pub fn pin(source: &Source, commit: Option<&str>) -> Result<Pin, ChangeError> {
    refuse_synced(source)?;
    let name = namespaced_name(source);
    if source.spec.verify.as_ref().is_some_and(|verify| verify.mode != VerificationMode::Commit) {
        return Err(ChangeError::SignedTags { name });
    }
    let commit = match commit {
        Some(commit) => resolve(source, commit)?,
        None => {
            let revision = source.status.as_ref().and_then(|status| status.revision.clone());
            revision.ok_or(ChangeError::NoRevision { name })?
        }
    };
    let reference = json!({"branch": null, "tag": null, "semver": null, "commit": commit});
    let mut patch = json!({"spec": {"git": {"ref": reference}}});
    if !is_pinned(source) {
        let before = json!(source.spec.git.reference).to_string();
        patch["metadata"] = json!({"annotations": {UNPINNED_REF_ANNOTATION: before}});
    }
    Ok(Pin { commit, patch })
}

/// Returns the change that lets a pinned Source follow what it followed before, and asks the manager to poll its repository.
pub fn unpin(source: &Source, now: Timestamp) -> Result<Unpin, ChangeError> {
    refuse_synced(source)?;
    let name = namespaced_name(source);
    if !is_pinned(source) {
        let reference = reference_text(source.spec.git.reference.as_ref());
        return Err(ChangeError::NotPinned { name, reference });
    }
    let before = source.annotations().get(UNPINNED_REF_ANNOTATION);
    let before = before.and_then(|text| serde_json::from_str::<Option<GitReference>>(text).ok());
    let before = before.ok_or(ChangeError::UnknownReference { name })?;
    let mut reference = json!(before);
    if let Some(fields) = reference.as_object_mut() {
        fields.insert("commit".to_owned(), Value::Null);
    }
    let annotations = json!({UNPINNED_REF_ANNOTATION: null, RECONCILE_ANNOTATION: now.to_string()});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"git": {"ref": reference}}});
    Ok(Unpin { reference: reference_text(before.as_ref()), patch })
}

/// Refuses to change what a Sync would change back.
fn refuse_synced(source: &Source) -> Result<(), ChangeError> {
    match source.labels().get(SYNC_LABEL) {
        Some(sync) => Err(ChangeError::Synced { name: namespaced_name(source), sync: sync.clone() }),
        None => Ok(()),
    }
}

fn is_pinned(source: &Source) -> bool {
    source.spec.git.reference.as_ref().is_some_and(|reference| reference.commit.is_some())
}

/// Returns the id of a commit of the Source.
fn resolve(source: &Source, text: &str) -> Result<String, ChangeError> {
    let commit = text.to_lowercase();
    if commit.is_empty() || commit.len() > ID_LENGTH || !commit.chars().all(|digit| digit.is_ascii_hexdigit())
    {
        return Err(ChangeError::Invalid { commit: text.to_owned() });
    }
    if commit.len() == ID_LENGTH {
        return Ok(commit);
    }
    let history = source.status.iter().flat_map(|status| &status.history);
    let mut candidates: Vec<_> = history
        .map(|revision| revision.revision.clone())
        .filter(|revision| revision.starts_with(&commit))
        .collect();
    candidates.sort();
    candidates.dedup();
    match candidates.len() {
        0 => Err(ChangeError::Unknown { name: namespaced_name(source), commit }),
        1 => Ok(candidates.remove(0)),
        _ => Err(ChangeError::Ambiguous { commit, candidates }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::source;

    const NEW: &str = "aaaa000000000000000000000000000000000000";
    const OLD: &str = "aabb000000000000000000000000000000000000";

    fn pinned(source: &Source, pin: &Pin) -> Source {
        let mut pinned = source.clone();
        pinned.spec.git.reference =
            Some(GitReference { commit: Some(pin.commit.clone()), ..GitReference::default() });
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
        assert_eq!(pin.commit, NEW);
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
        source.spec.git.reference = None;
        let first = pin(&source, Some("aaaa")).unwrap();
        let again = pinned(&source, &first);
        let second = pin(&again, Some(OLD)).unwrap();
        assert_eq!((second.commit.as_str(), second.patch.get("metadata")), (OLD, None));
        let unpin = unpin(&again, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((&*unpin.reference, &unpin.patch["spec"]["git"]["ref"]), ("default branch", &Value::Null));
    }

    #[test]
    fn a_commit_is_an_id_or_the_start_of_one_in_the_history() {
        let source = source("apps", &[NEW, OLD]);
        let unknown = "c".repeat(40);
        assert_eq!(pin(&source, Some(&unknown)).unwrap().commit, unknown, "the repository may have it");
        assert_eq!(pin(&source, Some("AABB")).unwrap().commit, OLD);
        let rows = [
            (
                "aa",
                ChangeError::Ambiguous {
                    commit: "aa".to_owned(),
                    candidates: vec![NEW.to_owned(), OLD.to_owned()],
                },
            ),
            ("ff", ChangeError::Unknown { name: "fleet/apps".to_owned(), commit: "ff".to_owned() }),
            ("main", ChangeError::Invalid { commit: "main".to_owned() }),
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
        by_hand.spec.git.reference =
            Some(GitReference { commit: Some(NEW.to_owned()), ..GitReference::default() });
        assert_eq!(unpin(&by_hand, now).unwrap_err(), ChangeError::UnknownReference { name: name() });
        let mut synced = source("apps", &[NEW]);
        synced.labels_mut().insert(SYNC_LABEL.to_owned(), "fleet.base".to_owned());
        let sync = "fleet.base".to_owned();
        assert_eq!(pin(&synced, None).unwrap_err(), ChangeError::Synced { name: name(), sync });
        let mut signed = source("apps", &[NEW]);
        signed.spec.verify = serde_json::from_value(json!({"mode": "Tag", "keys": {"name": "k"}})).unwrap();
        assert_eq!(pin(&signed, None).unwrap_err(), ChangeError::SignedTags { name: name() });
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
