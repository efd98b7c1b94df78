//! What was compared and found, and what has to be compared next.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::{
    extensions::DriftMode,
    status::{DriftStatus, DriftedObject, DriftedState, ObjectRecord},
};
use jiff::Timestamp;

use super::{
    ComparisonOutcome, ComparisonScope, DriftReport, Fingerprint, ObjectComparison, Snapshot,
    repeats::{COMPARISONS, CORRECTIONS, DIGEST_WRITES, Limit, Repeats},
    report,
};
use crate::{
    backoff,
    failure::{Category, Failure},
};

/// Objects are compared so long after an operation: controllers complete new objects first.
const SETTLING: Duration = Duration::from_secs(2);
/// After so many comparisons that have ended the process of the package tool, a revision is not compared any more.
const MAX_CRASHES: u32 = 3;
/// Maximum number of objects in the status.
const MAX_OBJECTS: usize = 10;
/// Maximum number of objects that a condition names.
const NAMED_OBJECTS: usize = 3;

/// What was found when the objects of a release were compared last. After a restart it is restored from the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftState {
    /// What was compared.
    last: Option<Snapshot>,
    /// The objects that differ or could not be compared.
    found: Vec<DriftedObject>,
    /// Recent corrections by object.
    corrections: BTreeMap<ObjectRecord, Repeats>,
    /// Recent comparisons of objects that have changed, but did not have to be corrected.
    comparisons: BTreeMap<ObjectRecord, Repeats>,
    /// The last comparisons in a row after which an object was not as it should be, and that have to be repeated: how many, and
    /// when the last one was.
    unresolved: Option<(u32, Timestamp)>,
    failure: Option<PastFailure>,
    /// When the objects have settled after the last operation.
    settled_at: Option<Timestamp>,
    /// Recent writes of a status in which only the digest had changed.
    digest_writes: Option<Repeats>,
    /// When the digest has to be written, if that was postponed.
    digest_due_at: Option<Timestamp>,
}

/// Comparisons that have failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PastFailure {
    of: ComparisonScope,
    failure: Failure,
    count: u32,
    /// How many of them have ended the process of the package tool.
    crashes: u32,
    at: Timestamp,
}

/// When to compare objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextComparison {
    /// When one of them changes.
    OnChange,
    At(Timestamp),
    Now(Vec<ObjectRecord>),
}

/// What a comparison has shown that was not known before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Objects that differ or are missing.
    pub drifted: Vec<DriftedObject>,
    pub corrected: Vec<ObjectComparison>,
}

impl DriftState {
    /// Returns the state after a restart. If an object may have changed meanwhile, it is empty, so that all are compared.
    pub fn restore(status: Option<&DriftStatus>, snapshot: &Snapshot) -> Self {
        match status {
            Some(status) if status.more == 0 && status.compared_digest == snapshot.digest() => {
                Self { last: Some(snapshot.clone()), found: status.objects.clone(), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    /// Takes in that an operation has changed the objects.
    pub fn operated(&mut self, now: Timestamp) {
        self.settled_at = now.checked_add(SETTLING).ok();
    }

    /// Returns when to compare which objects. `seed` identifies the release, see [`backoff::delay`].
    pub fn next(&self, snapshot: &Snapshot, seed: &str, now: Timestamp) -> NextComparison {
        let (due, later) = self.suspects(snapshot, seed, now);
        if due.is_empty() {
            return later.map_or(NextComparison::OnChange, NextComparison::At);
        }
        let failure = self.failure.as_ref().filter(|past| past.of == snapshot.scope);
        if failure.is_some_and(|past| past.crashes >= MAX_CRASHES) {
            return NextComparison::OnChange;
        }
        let retry_at = failure.and_then(|past| {
            past.at.checked_add(backoff::delay(past.failure.category, past.count, seed)).ok()
        });
        match retry_at.max(self.settled_at) {
            Some(earliest) if earliest > now => NextComparison::At(earliest),
            _ => NextComparison::Now(due),
        }
    }

    /// Returns the objects to compare now, and when the next one follows: those that have changed since they were compared, and
    /// those that have to be tried again.
    fn suspects(
        &self,
        snapshot: &Snapshot,
        seed: &str,
        now: Timestamp,
    ) -> (Vec<ObjectRecord>, Option<Timestamp>) {
        let (mut due, mut later): (Vec<ObjectRecord>, Option<Timestamp>) = (Vec::new(), None);
        let Some(last) = self.last_of(&snapshot.scope) else {
            return (snapshot.objects().map(|(object, _)| object.clone()).collect(), None);
        };
        // The reason may be over soon, such as another client that has changed the object at the same time.
        let retry_at = self
            .unresolved
            .and_then(|(count, at)| at.checked_add(backoff::delay(Category::Internal, count, seed)).ok());
        for (object, fingerprint) in snapshot.objects() {
            let wait_until = if last.fingerprint(object) != Some(fingerprint) {
                held_until(&self.corrections, object).max(held_until(&self.comparisons, object))
            } else if self.must_retry(object, &snapshot.scope) {
                retry_at
            } else {
                continue;
            };
            match wait_until.filter(|at| *at > now) {
                Some(at) => later = Some(later.map_or(at, |later| later.min(at))),
                None => due.push(object.clone()),
            }
        }
        (due, later)
    }

    /// Returns what was compared last, if it was the same revision under the same policy.
    fn last_of(&self, scope: &ComparisonScope) -> Option<&Snapshot> {
        self.last.as_ref().filter(|last| last.scope == *scope)
    }

    /// Returns whether an object has to be compared again although it has not changed.
    fn must_retry(&self, object: &ObjectRecord, scope: &ComparisonScope) -> bool {
        let corrects = scope.rules.policy.mode == DriftMode::Correct;
        let found = self.found.iter().find(|found| found.object == *object);
        found.is_some_and(|found| corrects || found.state == DriftedState::Unknown)
    }

    /// Takes in the comparison of some objects, as they were in a snapshot.
    pub fn compared(
        &mut self,
        snapshot: Snapshot,
        objects: &[ObjectRecord],
        results: &[ObjectComparison],
        now: Timestamp,
    ) -> Changes {
        let before = std::mem::take(&mut self.found);
        let is_first = self.last_of(&snapshot.scope).is_none();
        if is_first {
            self.corrections.clear();
            self.comparisons.clear();
            self.unresolved = None;
        }
        let kept = before.iter().filter(|found| {
            !objects.contains(&found.object) && snapshot.scope.objects.contains(&found.object)
        });
        self.found = kept.cloned().collect();
        for object in objects {
            let result = results.iter().find(|result| result.object == *object);
            self.found.extend(result.map_or_else(|| Some(unanswered(object)), ObjectComparison::found));
        }
        let corrected: Vec<_> =
            results.iter().filter(|one| one.outcome == ComparisonOutcome::Corrected).cloned().collect();
        for object in objects {
            if corrected.iter().any(|one| one.object == *object) {
                record(&mut self.corrections, object, CORRECTIONS, now);
                self.comparisons.remove(object);
            } else if !is_first {
                record(&mut self.comparisons, object, COMPARISONS, now);
            }
        }
        for repeats in [&mut self.corrections, &mut self.comparisons] {
            repeats.retain(|_, repeats| repeats.is_recent(now));
        }
        let is_unresolved = objects.iter().any(|object| self.must_retry(object, &snapshot.scope));
        if is_unresolved {
            let count = self.unresolved.map_or(1, |(count, _)| count.saturating_add(1));
            self.unresolved = Some((count, now));
        } else if !self.found.iter().any(|found| self.must_retry(&found.object, &snapshot.scope)) {
            self.unresolved = None;
        }
        self.failure = None;
        self.remember(snapshot, objects);
        let is_new = |found: &&DriftedObject| found.state != DriftedState::Unknown && !before.contains(found);
        Changes { drifted: self.found.iter().filter(is_new).cloned().collect(), corrected }
    }

    /// Remembers the fingerprints of objects that were compared. Those of others stay as they were.
    fn remember(&mut self, mut snapshot: Snapshot, objects: &[ObjectRecord]) {
        if let Some(last) = self.last.take().filter(|last| last.scope == snapshot.scope) {
            let all = snapshot.scope.objects.iter().zip(&mut snapshot.fingerprints).zip(last.fingerprints);
            for ((object, fingerprint), before) in all {
                if !objects.contains(object) {
                    *fingerprint = before;
                }
            }
        }
        self.last = Some(snapshot);
    }

    /// Takes in that a comparison has failed.
    pub fn failed(&mut self, scope: &ComparisonScope, failure: Failure, now: Timestamp) {
        let before = self.failure.take().filter(|past| past.of == *scope);
        let (count, crashes) = before.map_or((0, 0), |past| (past.count, past.crashes));
        let crashes = crashes.saturating_add(u32::from(failure.category == Category::ToolCrashed));
        let count = count.saturating_add(1);
        self.failure = Some(PastFailure { of: scope.clone(), failure, count, crashes, at: now });
    }

    /// Updates the entry of the status. An object that changes often, but as it may, changes only the digest: that is written a
    /// few times a minute at once, and then once a minute.
    pub fn update_status(&mut self, status: &mut Option<DriftStatus>, now: Timestamp) {
        let Some(new) = self.status() else { return };
        self.digest_due_at = None;
        let is_same = |old: &DriftStatus| old.objects == new.objects && old.more == new.more;
        if !status.as_ref().is_some_and(is_same) {
            *status = Some(new);
        } else if status.as_ref() != Some(&new) {
            let writes = self.digest_writes.get_or_insert_with(|| Repeats::new(DIGEST_WRITES));
            self.digest_due_at = writes.held_until().filter(|until| *until > now);
            if self.digest_due_at.is_none() {
                writes.record(now);
                *status = Some(new);
            }
        }
    }

    /// Returns when [`update_status`](Self::update_status) has to be called although nothing was compared.
    pub fn status_due_at(&self) -> Option<Timestamp> {
        self.digest_due_at
    }

    fn status(&self) -> Option<DriftStatus> {
        let compared_digest = self.last.as_ref()?.digest();
        let objects: Vec<_> = self.found.iter().take(MAX_OBJECTS).cloned().collect();
        let more = u32::try_from(self.found.len() - objects.len()).unwrap_or(u32::MAX);
        Some(DriftStatus { compared_digest, objects, more })
    }

    /// Returns what is known about drift while the release is rolled back to a revision. Its objects are not compared. If they
    /// were before, [`report`](Self::report) counts.
    pub fn report_rolled_back(&self, revision: u32) -> Option<DriftReport> {
        let was_compared = self.last.as_ref().is_some_and(|last| last.scope.revision == revision);
        let unknown = || {
            format!("the objects of revision {revision} are not compared while the release is rolled back")
        };
        (!was_compared).then(|| DriftReport::Unknown(unknown()))
    }

    /// Returns what is known about drift.
    pub fn report(&self, snapshot: &Snapshot, now: Timestamp) -> DriftReport {
        let failure = self.failure.as_ref().filter(|past| past.of == snapshot.scope);
        // A single failure says little: it is repeated soon.
        let failure = failure
            .filter(|past| past.count > 1)
            .map(|past| DriftReport::Unknown(format!("the objects could not be compared: {}", past.failure)));
        let Some(last) = self.last_of(&snapshot.scope) else {
            return failure.unwrap_or(DriftReport::Unchanged);
        };
        let is_unknown = |found: &&DriftedObject| found.state == DriftedState::Unknown;
        let contested = snapshot.objects().filter(|(object, fingerprint)| {
            let is_held = held_until(&self.corrections, object).is_some_and(|until| until > now);
            last.fingerprint(object) != Some(*fingerprint) && is_held
        });
        let contested: Vec<String> = contested.map(|(object, _)| object.to_string()).collect();
        let (unknown, drifted): (Vec<_>, Vec<_>) = self.found.iter().partition(is_unknown);
        let drifted = report::message(drifted, NAMED_OBJECTS);
        if !contested.is_empty() {
            let contested = report::first(contested, NAMED_OBJECTS);
            let rest = if drifted.is_empty() { drifted } else { format!("; {drifted}") };
            return DriftReport::Drifted(format!(
                "another client keeps changing {contested}, so Chandler corrects it less and less often, at least every 10 \
                 minutes; find the other client, or add the fields to `drift.ignore` of the policy{rest}"
            ));
        }
        if !drifted.is_empty() {
            return DriftReport::Drifted(drifted);
        }
        let unwatched = snapshot.objects().find(|(_, fingerprint)| *fingerprint == Fingerprint::Unwatched);
        let unwatched = unwatched.map(|(object, _)| {
            let ObjectRecord { api_version, kind, .. } = object;
            DriftReport::Unknown(format!(
                "{kind} ({api_version}) cannot be watched, so changes are not noticed; let the kubeconfig list and watch it, or \
                 check that the cluster serves it"
            ))
        });
        let unknown = report::message(unknown, NAMED_OBJECTS);
        let unknown = (!unknown.is_empty()).then_some(DriftReport::Unknown(unknown));
        failure.or(unknown).or(unwatched).unwrap_or(DriftReport::InSync)
    }
}

fn record(all: &mut BTreeMap<ObjectRecord, Repeats>, object: &ObjectRecord, limit: Limit, now: Timestamp) {
    all.entry(object.clone()).or_insert_with(|| Repeats::new(limit)).record(now);
}

/// Returns until when an object is not compared although it has changed.
fn held_until(all: &BTreeMap<ObjectRecord, Repeats>, object: &ObjectRecord) -> Option<Timestamp> {
    all.get(object).and_then(Repeats::held_until)
}

/// The package tool has returned nothing about an object.
fn unanswered(object: &ObjectRecord) -> DriftedObject {
    DriftedObject {
        object: object.clone(),
        state: DriftedState::Unknown,
        paths: Vec::new(),
        reason: "the package tool did not compare it".to_owned(),
    }
}

#[cfg(test)]
mod tests;
