//! The changes that `chandler rollback` makes: annotations of release objects. Pure.

use chandler_api::extensions::ROLLBACK_ANNOTATION;
use serde_json::json;

use crate::{
    fleet::{Fleet, Release},
    suspend_and_retry::{AnnotatedObjects, Change, annotations},
};

/// A rollback that is not possible.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RollbackError {
    #[error("{release} has no revision {revision} that was deployed; {}", choice(known))]
    NoRevision { release: String, revision: u32, known: Vec<u32> },
}

fn choice(known: &[u32]) -> String {
    if known.is_empty() {
        return "it has no earlier one, see `chandler history`".to_owned();
    }
    let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("choose one of {known}, see `chandler history`")
}

/// Returns the changes that roll releases back to a revision, or to the last one that was deployed before the newest. A release
/// without such a revision, or that was not reconciled yet, has no patch.
pub fn roll_back<'a>(
    objects: &AnnotatedObjects<'a>,
    fleet: &'a Fleet,
    revision: Option<u32>,
) -> Result<Vec<Change>, RollbackError> {
    objects.releases(fleet).into_iter().map(|release| roll_back_one(release, revision)).collect()
}

fn roll_back_one(release: &Release, revision: Option<u32>) -> Result<Change, RollbackError> {
    let status = &release.status;
    let was_deployed = |status: &str| matches!(status, "deployed" | "superseded");
    let newest = status.revision.unwrap_or_default();
    let earlier = status.history.iter().filter(|one| one.revision < newest && was_deployed(&one.status));
    let known: Vec<_> = earlier.map(|one| one.revision).collect();
    let target = match revision {
        Some(revision) if !known.contains(&revision) => {
            let release = release.object.to_string();
            return Err(RollbackError::NoRevision { release, revision, known });
        }
        Some(revision) => Some(revision),
        None => known.into_iter().max(),
    };
    let generation = release.generation.map(|generation| format!(".{generation}")).unwrap_or_default();
    let value = target.zip(status.input_digest.as_ref());
    let value = value.map(|(target, inputs)| format!("{target}.{inputs}{generation}"));
    Ok(Change {
        object: release.object.clone(),
        cluster: Some(release.cluster.clone()),
        patch: value.map(|value| annotations(&[(ROLLBACK_ANNOTATION, json!(value))])),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::fixtures::{placement, ready, release};

    /// Releases on `alpha`, which has earlier revisions, and on `bravo`.
    fn fleet() -> Fleet {
        let mut failed = ready("False", "RetriesExhausted", "");
        failed["inputDigest"] = json!("d1");
        failed["revision"] = json!(4);
        let record = |revision: u32, status: &str| json!({"revision": revision, "status": status, "at": "2026-01-01T00:00:00Z"});
        failed["history"] = json!([record(4, "failed"), record(3, "deployed"), record(2, "superseded")]);
        let mut releases =
            vec![release("hello", "alpha", &failed), release("hello", "bravo", &ready("True", "Ready", ""))];
        releases[0].generation = Some(7);
        Fleet { placements: vec![placement("hello", &[])], releases }
    }

    fn annotations_of(change: &Change) -> Option<Value> {
        change.patch.as_ref().map(|patch| patch["metadata"]["annotations"].clone())
    }

    #[test]
    fn releases_are_rolled_back_to_a_revision_that_was_deployed() {
        let fleet = fleet();
        let all = AnnotatedObjects::Placement(&fleet.placements[0]);
        let changes = roll_back(&all, &fleet, None).unwrap();
        let rolled_back = Some(json!({"chandler.dev/rollback-to": "3.d1.7"}));
        assert_eq!(changes.iter().map(annotations_of).collect::<Vec<_>>(), [rolled_back, None]);
        let one = AnnotatedObjects::Releases(vec![&fleet.releases[0]]);
        let changes = roll_back(&one, &fleet, Some(2)).unwrap();
        assert_eq!(annotations_of(&changes[0]), Some(json!({"chandler.dev/rollback-to": "2.d1.7"})));
        let error = roll_back(&one, &fleet, Some(4)).unwrap_err().to_string();
        assert_eq!(
            error,
            "HelmReleaseProxy fleet/hello-alpha has no revision 4 that was deployed; choose one of 3, 2, see \
             `chandler history`"
        );
    }
}
