//! The status of a Sync.

use chandler_api::{
    extensions::{AppliedRevision, HeldObject, SyncObject, SyncStatus, SyncedObject},
    reasons::{Reason, SyncReason},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{HeldReason, Move, MoveSuspension, ObjectId, kept_message, move_suspension};
use crate::{
    conditions::{NewCondition, Status, find, merge},
    digest::Digest,
    failure::Failure,
};

/// Number of revisions in the history.
const HISTORY: usize = 10;
/// Number of objects that a message lists.
const LISTED: usize = 10;

/// How a reconcile has ended, or how far it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Suspended,
    Moving(Move),
    /// It has suspended itself before, and no user has resumed it.
    StillMoving,
    Waiting(String),
    /// The objects in this inventory are about to be written.
    Recorded {
        inventory: Vec<SyncedObject>,
        /// What is still held: not what is in the directory again.
        held: Vec<HeldObject>,
    },
    /// Nothing more is written. `inventory` is `None` if nothing was written.
    Failed {
        failure: Failure,
        inventory: Option<Vec<SyncedObject>>,
    },
    Applied(Applied),
}

/// A revision that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub digest: Digest,
    pub inventory: Vec<SyncedObject>,
    pub held: Vec<HeldObject>,
    /// Clusters that were not written, because they are paused.
    pub paused: Vec<ObjectId>,
    /// Whether objects are held because a Source could not be polled, so that this is retried soon.
    pub is_incomplete: bool,
}

/// Returns the status. `revision` is the revision of the Source, if it could be read.
pub fn report(
    sync: &SyncObject,
    old: &SyncStatus,
    revision: Option<&str>,
    outcome: &Outcome,
    now: Timestamp,
) -> SyncStatus {
    let generation = sync.metadata.generation;
    let mut status = SyncStatus { observed_generation: generation, ..old.clone() };
    if let Some(revision) = revision {
        status.revision = Some(revision.to_owned());
    }
    match outcome {
        Outcome::Recorded { inventory, held } => {
            status.inventory.clone_from(inventory);
            status.held.clone_from(held);
        }
        Outcome::Failed { inventory: Some(inventory), .. } => status.inventory.clone_from(inventory),
        Outcome::Applied(applied) => {
            status.inventory.clone_from(&applied.inventory);
            status.held.clone_from(&applied.held);
            if applied.paused.is_empty() {
                record_revision(sync, &mut status, applied, now);
            }
        }
        Outcome::Suspended
        | Outcome::Moving(_)
        | Outcome::StillMoving
        | Outcome::Waiting(_)
        | Outcome::Failed { .. } => {}
    }
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    let conditions = vec![
        ready(&old.conditions, outcome, name),
        prune_held(&status),
        moving(sync, &old.conditions, outcome, name),
    ];
    status.conditions = merge(&old.conditions, conditions, generation, now);
    status
}

fn record_revision(sync: &SyncObject, status: &mut SyncStatus, applied: &Applied, now: Timestamp) {
    let Some(revision) = status.revision.clone() else { return };
    let source = &sync.spec.source;
    let digest = applied.digest.to_string();
    let same = |last: &&AppliedRevision| last.revision == revision && last.digest == digest;
    let at = status.last_applied.as_ref().filter(same).map_or(Time(now), |last| last.at.clone());
    status.history.retain(|earlier| *earlier != revision);
    status.history.insert(0, revision.clone());
    status.history.truncate(HISTORY);
    status.last_applied = Some(AppliedRevision {
        revision,
        digest,
        source_ref: source.source_ref.clone(),
        path: source.path.clone(),
        at,
    });
}

fn ready(old: &[Condition], outcome: &Outcome, name: &str) -> NewCondition {
    let (status, reason, message) = match outcome {
        Outcome::Suspended => (
            Status::False,
            SyncReason::Suspended,
            format!("spec.suspend is set; `chandler resume sync {name}` continues"),
        ),
        Outcome::Moving(why) => (Status::False, moving_reason(why), why.message(name)),
        Outcome::StillMoving => {
            let (reason, message) =
                find(old, "Moving").map_or((SyncReason::Moving, String::new()), still_moving);
            (Status::False, reason, message)
        }
        Outcome::Waiting(why) => (Status::False, SyncReason::WaitingForDependencies, why.clone()),
        Outcome::Recorded { .. } => {
            (Status::Unknown, SyncReason::Progressing, "the objects are being applied".to_owned())
        }
        Outcome::Failed { failure, .. } => {
            (Status::False, SyncReason::Failed(failure.category), failure.message.clone())
        }
        Outcome::Applied(applied) if applied.paused.is_empty() => {
            (Status::True, SyncReason::Applied, String::new())
        }
        Outcome::Applied(applied) => (
            Status::False,
            SyncReason::ClusterPaused,
            format!(
                "{} paused and therefore not written; everything else is applied; objects that are no longer in the folder \
                 are kept until no Cluster is paused",
                listed(applied.paused.iter().map(ObjectId::to_string), "is", "are")
            ),
        ),
    };
    NewCondition { type_: "Ready", status, reason: reason.into(), message }
}

fn moving_reason(why: &Move) -> SyncReason {
    match why {
        Move::Deleting(_) => SyncReason::Moving,
        Move::ClusterMissing(_) => SyncReason::ClusterMissing,
    }
}

/// Returns the reason and the message of a condition `Moving` that stays.
fn still_moving(old: &Condition) -> (SyncReason, String) {
    let missing = Reason::from(SyncReason::ClusterMissing).as_str();
    let reason = if old.reason == missing { SyncReason::ClusterMissing } else { SyncReason::Moving };
    (reason, old.message.clone())
}

/// Returns the condition `Moving`. A Sync that was resumed stays resumed after a failure, until the inventory says which
/// Clusters may be created again: then the next move is noticed.
fn moving(sync: &SyncObject, old: &[Condition], outcome: &Outcome, name: &str) -> NewCondition {
    let (status, reason, message) = match outcome {
        Outcome::Moving(why) => (Status::True, moving_reason(why), why.message(name)),
        Outcome::Applied(_) => (Status::False, SyncReason::NotMoving, String::new()),
        Outcome::Recorded { .. } if move_suspension(sync) == MoveSuspension::Resumed => {
            (Status::False, SyncReason::NotMoving, String::new())
        }
        _ => match find(old, "Moving").filter(|condition| condition.status == "True") {
            Some(old) => {
                let (reason, message) = still_moving(old);
                (Status::True, reason, message)
            }
            None => (Status::False, SyncReason::NotMoving, String::new()),
        },
    };
    NewCondition { type_: "Moving", status, reason: reason.into(), message }
}

fn prune_held(status: &SyncStatus) -> NewCondition {
    let held_as = |reason: HeldReason| status.held.iter().filter(move |held| held.reason == reason.as_str());
    let disabled: Vec<_> = held_as(HeldReason::PruneDisabled).collect();
    let wanted: Vec<_> = held_as(HeldReason::WantedBySync).collect();
    let by_guard: Vec<_> = status.held.iter().filter(|held| !disabled.contains(held)).collect();
    let guarded: Vec<_> = by_guard.iter().copied().filter(|held| !wanted.contains(held)).collect();
    let (condition, reason) = match (by_guard.is_empty(), status.held.is_empty()) {
        (false, _) => (Status::True, SyncReason::Held),
        (true, false) => (Status::False, SyncReason::PruneDisabled),
        (true, true) => (Status::False, SyncReason::NothingHeld),
    };
    let with_reason = |held: &HeldObject| {
        let detail = Some(&held.message).filter(|message| !message.is_empty());
        let detail = detail.map(|message| format!(": {message}")).unwrap_or_default();
        format!("{} ({}{detail})", ObjectId::from(held), held.reason)
    };
    let mut messages = Vec::new();
    if !guarded.is_empty() {
        messages.push(format!(
            "{} no longer in the directory and kept; to delete them, name them and revision {} in \
             spec.prune.confirm{}",
            listed(guarded.iter().copied().map(with_reason), "is", "are"),
            status.revision.as_deref().unwrap_or("of the Source"),
            placements_advice(&guarded),
        ));
    }
    if !wanted.is_empty() {
        messages.push(format!(
            "{} kept for another Sync; to delete them, remove them from its directory",
            listed(wanted.iter().copied().map(with_reason), "is", "are")
        ));
    }
    if by_guard.is_empty() && !disabled.is_empty() {
        let names = disabled.iter().map(|held| with_reason(held));
        messages.push(format!(
            "{} no longer in the directory and kept, because spec.prune.enabled is not set",
            listed(names, "is", "are")
        ));
    }
    NewCondition {
        type_: "PruneHeld",
        status: condition,
        reason: reason.into(),
        message: messages.join("; "),
    }
}

/// Returns how placements are deleted without a confirmation for each revision.
fn placements_advice(held: &[&HeldObject]) -> &'static str {
    let protected = HeldReason::ProtectedPlacement.as_str();
    if held.iter().any(|held| held.reason == protected) {
        "; with spec.prune.deletePlacements, placements are deleted without that"
    } else {
        ""
    }
}

/// Adds to the message of a Sync that is not ready what other Syncs keep for it: object and Sync.
pub fn report_kept(status: &mut SyncStatus, kept: &[(ObjectId, String)]) {
    let ready = status.conditions.iter_mut().find(|condition| condition.type_ == "Ready");
    let ready = ready.filter(|ready| ready.status == "False");
    if let (Some(ready), Some(kept)) = (ready, kept_message(kept)) {
        ready.message = format!("{}; {kept}", ready.message);
    }
}

/// Returns a list of names, shortened, with a verb.
fn listed(names: impl ExactSizeIterator<Item = String>, one: &str, many: &str) -> String {
    let count = names.len();
    let verb = if count == 1 { one } else { many };
    let mut listed = names.take(LISTED).collect::<Vec<_>>().join(", ");
    if count > LISTED {
        listed = format!("{listed} and {} more", count - LISTED);
    }
    format!("{listed} {verb}")
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::RESUMED_ANNOTATION;
    use serde_json::json;

    use super::*;
    use crate::{failure::Category, sync::Held};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn sync() -> SyncObject {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": "base", "namespace": "fleet", "generation": 3},
            "spec": {"source": {"sourceRef": {"name": "a"}, "path": "clusters"}, "serviceAccountName": "b"},
        }))
        .unwrap()
    }

    fn object(name: &str) -> SyncedObject {
        SyncedObject {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "fleet".to_owned(),
            name: name.to_owned(),
            uid: "1".to_owned(),
        }
    }

    fn applied(held: &[Held], paused: Vec<ObjectId>) -> Outcome {
        let held = held.iter().map(HeldObject::from).collect();
        Outcome::Applied(Applied {
            digest: Digest::of("a"),
            inventory: vec![object("a")],
            held,
            paused,
            is_incomplete: false,
        })
    }

    fn condition<'a>(status: &'a SyncStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
        let condition = find(&status.conditions, type_).unwrap();
        (&condition.status, &condition.reason, &condition.message)
    }

    #[test]
    fn an_applied_revision_is_recorded_once() {
        let first = report(&sync(), &SyncStatus::default(), Some("r1"), &applied(&[], vec![]), at(1));
        assert_eq!(condition(&first, "Ready"), ("True", "Applied", ""));
        assert_eq!(condition(&first, "PruneHeld").1, "NothingHeld");
        assert_eq!(condition(&first, "Moving").0, "False");
        assert_eq!((first.observed_generation, &first.history), (Some(3), &vec!["r1".to_owned()]));
        let again = report(&sync(), &first, Some("r1"), &applied(&[], vec![]), at(9));
        assert_eq!(again, first, "the same again changes nothing");
        let mut status = first;
        for number in 2..=12 {
            let revision = format!("r{number}");
            status = report(&sync(), &status, Some(&revision), &applied(&[], vec![]), at(number));
        }
        assert_eq!((status.history.len(), &*status.history[0], &*status.history[9]), (10, "r12", "r3"));
        let back = report(&sync(), &status, Some("r5"), &applied(&[], vec![]), at(20));
        assert_eq!(back.history.iter().filter(|revision| *revision == "r5").count(), 1);
    }

    #[test]
    fn a_failure_keeps_the_last_applied_revision_and_the_inventory() {
        let first = report(&sync(), &SyncStatus::default(), Some("r1"), &applied(&[], vec![]), at(1));
        let failure = Failure::new(Category::InvalidPackage, "a.yaml:7: the document is not valid YAML");
        let failed = Outcome::Failed { failure, inventory: None };
        let second = report(&sync(), &first, Some("r2"), &failed, at(2));
        assert_eq!(
            condition(&second, "Ready"),
            ("False", "InvalidPackage", "a.yaml:7: the document is not valid YAML")
        );
        assert_eq!((&second.last_applied, &second.inventory), (&first.last_applied, &first.inventory));
        assert_eq!(second.revision.as_deref(), Some("r2"));
        let recorded = Outcome::Recorded { inventory: vec![object("a"), object("b")], held: Vec::new() };
        let third = report(&sync(), &second, Some("r2"), &recorded, at(3));
        assert_eq!((condition(&third, "Ready").1, third.inventory.len()), ("Progressing", 2));
        assert_eq!(third.last_applied, first.last_applied);
    }

    #[test]
    fn paused_clusters_keep_a_sync_from_being_ready() {
        let cluster = ObjectId::new("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "blue");
        let status = report(&sync(), &SyncStatus::default(), Some("r1"), &applied(&[], vec![cluster]), at(1));
        let (ready, reason, message) = condition(&status, "Ready");
        assert_eq!((ready, reason), ("False", "ClusterPaused"));
        assert!(message.starts_with("Cluster fleet/blue is paused"), "{message}");
        assert_eq!(status.last_applied, None);
    }

    #[test]
    fn held_objects_are_listed_with_what_to_do() {
        let held = |count: usize, reason| -> Vec<_> {
            (0..count).map(|number| Held::new(object(&format!("m{number}")), reason)).collect()
        };
        let of = |held: &[Held]| {
            report(&sync(), &SyncStatus::default(), Some("r1"), &applied(held, vec![]), at(1))
        };
        let guarded = of(&held(12, HeldReason::TooManyDeletions));
        let (status, reason, message) = condition(&guarded, "PruneHeld");
        assert_eq!((status, reason), ("True", "Held"));
        assert!(message.starts_with("ConfigMap fleet/m0 (TooManyDeletions), "), "{message}");
        assert!(message.contains("and 2 more are no longer") && message.contains("revision r1"), "{message}");
        assert_eq!(condition(&guarded, "Ready").0, "True", "the rest is applied");
        assert_eq!(guarded.held.len(), 12);
        let disabled = of(&held(1, HeldReason::PruneDisabled));
        assert_eq!(
            (condition(&disabled, "PruneHeld").0, condition(&disabled, "PruneHeld").1),
            ("False", "PruneDisabled")
        );
    }

    #[test]
    fn a_moved_sync_stays_suspended_until_a_complete_run() {
        let cluster = ObjectId::new("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "blue");
        let moving = Outcome::Moving(Move::Deleting(cluster));
        let status = report(&sync(), &SyncStatus::default(), Some("r1"), &moving, at(1));
        let (is, reason, message) = condition(&status, "Moving");
        assert!(
            (is, reason) == ("True", "Moving") && message.contains("chandler resume sync base"),
            "{message}"
        );
        assert_eq!(condition(&status, "Ready").1, "Moving");
        let suspended = report(&sync(), &status, None, &Outcome::Suspended, at(2));
        let still = report(&sync(), &suspended, None, &Outcome::StillMoving, at(2));
        assert_eq!((condition(&still, "Ready").1, condition(&still, "Moving").0), ("Moving", "True"));
        let missing = ObjectId::new("cluster.x-k8s.io/v1beta2", "Cluster", "fleet", "green");
        let missing = Outcome::Moving(Move::ClusterMissing(missing));
        let missing = report(&sync(), &SyncStatus::default(), Some("r1"), &missing, at(1));
        let still = report(&sync(), &missing, None, &Outcome::StillMoving, at(2));
        assert_eq!(still, missing, "the reason stays");
        let failure = Failure::new(Category::Timeout, "why");
        let failed =
            report(&sync(), &status, Some("r1"), &Outcome::Failed { failure, inventory: None }, at(2));
        assert_eq!(condition(&failed, "Moving").0, "True");
        let recorded = Outcome::Recorded { inventory: vec![object("a")], held: Vec::new() };
        for (resumed, moving) in [("1970-01-01T00:00:00Z", "True"), ("1970-01-01T00:00:09Z", "False")] {
            let mut sync = sync();
            sync.status = Some(failed.clone());
            sync.metadata.annotations = Some([(RESUMED_ANNOTATION.to_owned(), resumed.to_owned())].into());
            let status = report(&sync, &failed, Some("r1"), &recorded, at(10));
            assert_eq!(condition(&status, "Moving").0, moving, "resumed at {resumed}");
        }
        let ended = report(&sync(), &failed, Some("r1"), &applied(&[], vec![]), at(3));
        assert_eq!((condition(&ended, "Moving").0, condition(&ended, "Ready").0), ("False", "True"));
    }

    #[test]
    fn suspended_and_waiting_syncs_say_so() {
        let of = |outcome| report(&sync(), &SyncStatus::default(), None, &outcome, at(1));
        assert_eq!(condition(&of(Outcome::Suspended), "Ready").1, "Suspended");
        let waiting = of(Outcome::Waiting("Sync base does not exist".to_owned()));
        assert_eq!(condition(&waiting, "Ready").1, "WaitingForDependencies");
    }
}
