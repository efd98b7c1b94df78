//! The invariants, as pure functions of the model and of recorded facts. Each returns its violations.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    action::ReleaseId,
    chart::Hook,
    facts::{EndState, Events, ObservedRelease, RecordWrite, RevisionEvent, RevisionStep},
    model::{Content, Expected, Model},
};

/// The number of objects of a release.
pub const OBJECTS: usize = 3;
/// How long the manager that objects were moved from may take to cancel an operation.
const MOVE_GRACE: Duration = Duration::from_secs(15);

/// Checks that the releases and the statuses of their objects are as the model predicts.
pub fn check_end_state(model: &Model, observed: &EndState) -> Vec<String> {
    let none = ObservedRelease::default();
    ReleaseId::all()
        .flat_map(|release| {
            let found = observed.releases.get(&release).unwrap_or(&none);
            let problems = match model.expected(release) {
                Expected::Deployed(content) => {
                    [check_content(model, release, content, found), check_status(model, found)].concat()
                }
                Expected::Absent => [check_absent(found), check_no_release_object(found)].concat(),
                Expected::Unmanaged => check_no_release_object(found),
            };
            problems.into_iter().map(move |problem| format!("{release}: {problem}")).collect::<Vec<_>>()
        })
        .collect()
}

fn check_content(
    model: &Model,
    release: ReleaseId,
    content: Content,
    found: &ObservedRelease,
) -> Vec<String> {
    let mut problems = Vec::new();
    match &found.newest {
        None => problems.push("there is no release record".to_owned()),
        Some(record) if record.status != "deployed" => {
            problems.push(format!("revision {} is {}, not deployed", record.revision, record.status));
        }
        Some(_) => {}
    }
    let wrong = found.objects.iter().filter(|object| **object != Some(content));
    problems.extend(wrong.map(|object| format!("an object has {object:?} instead of {content:?}")));
    let missing = OBJECTS.saturating_sub(found.objects.len());
    if missing > usize::from(model.may_lack_objects(release)) {
        problems.push(format!("{missing} of {OBJECTS} objects are missing"));
    }
    problems
}

fn check_absent(found: &ObservedRelease) -> Vec<String> {
    let record = found.newest.iter().map(|record| format!("there still is revision {}", record.revision));
    let objects =
        (!found.objects.is_empty()).then(|| format!("there still are {} objects", found.objects.len()));
    record.chain(objects).collect()
}

fn check_no_release_object(found: &ObservedRelease) -> Vec<String> {
    let objects = found.release_objects.iter();
    objects
        .map(|object| {
            format!("there still is a release object on management cluster {:?}", object.management)
        })
        .collect()
}

/// Checks that there is one release object, on the right management cluster, that it has the newest revision, and that it is Ready
/// unless an object is missing.
fn check_status(model: &Model, found: &ObservedRelease) -> Vec<String> {
    let [object] = found.release_objects.as_slice() else {
        return vec![format!("there are {} release objects, not 1", found.release_objects.len())];
    };
    let mut problems = Vec::new();
    if object.management != model.management() {
        problems.push(format!(
            "its release object is on management cluster {:?}, not {:?}",
            object.management,
            model.management()
        ));
    }
    // An object that a user has deleted is not created again, but the status says that it is missing.
    let expected = if found.objects.len() == OBJECTS { "True" } else { "False" };
    if object.ready != expected || !object.is_current {
        problems
            .push(format!("Ready is {:?}, not {expected:?}, current: {}", object.ready, object.is_current));
    }
    // It is written as soon as the objects have been observed, which may be after the release has become Ready.
    if object.healthy != expected {
        problems.push(format!("Healthy is {:?}, not {expected:?}", object.healthy));
    }
    let newest = found.newest.as_ref().map(|record| record.revision);
    if object.revision != newest {
        problems.push(format!("the status says revision {:?}, the newest is {newest:?}", object.revision));
    }
    problems
}

/// Returns which releases claim to be Ready although they are not as the model predicts.
pub fn check_ready_is_true(model: &Model, observed: &EndState) -> Vec<String> {
    let claims = observed.releases.iter().filter(|(_, found)| {
        found.release_objects.iter().any(|object| object.ready == "True" && object.is_current)
    });
    claims
        .filter_map(|(release, found)| {
            let problems = match model.expected(*release) {
                Expected::Deployed(content) => check_content(model, *release, content, found),
                Expected::Absent | Expected::Unmanaged => return None,
            };
            (!problems.is_empty()).then(|| format!("{release} is Ready, but {}", problems.join(", ")))
        })
        .collect()
}

/// Checks what has happened on the way to the end state.
pub fn check_events(model: &Model, events: &Events) -> Vec<String> {
    [check_single_driver(events), check_removals(model, events), check_revisions(model, events)].concat()
}

/// Checks that no driver writes to a release after another one has taken over. A driver may return if the objects were
/// moved meanwhile. Each operation of a driver that was suspended with SIGSTOP may send one request late, which the
/// documentation names as a limit. Writes of unknown processes are not judged.
fn check_single_driver(events: &Events) -> Vec<String> {
    let mut problems = Vec::new();
    for (release, writes) in by_release(events) {
        let mut late: BTreeMap<u32, usize> = BTreeMap::new();
        // The writes of the driver that is in charge; late ones of its predecessors are not among them.
        let mut accepted: Vec<&RecordWrite> = Vec::new();
        for write in writes {
            let (Some(successor), Some(pid)) = (successor(&accepted, write), write.pid) else {
                accepted.push(write);
                continue;
            };
            if is_moved(events, successor, write) {
                accepted.push(write);
                continue;
            }
            let count = late.entry(pid).or_default();
            *count += 1;
            if !(events.suspended_drivers.contains(&pid) && *count == 1) {
                problems.push(format!(
                    "{release}: driver {pid} wrote a record at {} after driver {:?} at {}",
                    write.at, successor.pid, successor.at
                ));
            }
        }
    }
    problems
}

/// Returns whether objects were moved between two writes, or shortly before the first.
fn is_moved(events: &Events, first: &RecordWrite, second: &RecordWrite) -> bool {
    events.moves.iter().any(|(start, end)| {
        *start <= second.at && end.checked_add(MOVE_GRACE).is_ok_and(|end| first.at <= end)
    })
}

/// Returns the last write of another driver after an earlier write of the same driver.
fn successor<'a>(before: &[&'a RecordWrite], write: &RecordWrite) -> Option<&'a RecordWrite> {
    let earlier = before.iter().rposition(|other| other.pid == write.pid)?;
    before[earlier + 1..].iter().rev().find(|other| other.pid.is_some()).copied()
}

fn by_release(events: &Events) -> BTreeMap<ReleaseId, Vec<&RecordWrite>> {
    let mut releases: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for write in &events.record_writes {
        releases.entry(write.release).or_default().push(write);
    }
    for writes in releases.values_mut() {
        writes.sort_by_key(|write| write.at);
    }
    releases
}

fn check_removals(model: &Model, events: &Events) -> Vec<String> {
    let wrong = events.removals.iter().filter(|release| !model.may_be_removed(**release));
    wrong.map(|release| format!("{release}: Chandler removed objects that no user removed")).collect()
}

fn check_revisions(model: &Model, events: &Events) -> Vec<String> {
    let exceeds = |(release, writes): (ReleaseId, Vec<&RecordWrite>)| {
        let revisions = writes.iter().filter(|write| write.verb == "create").count();
        let limit = model.revision_limit(release);
        (revisions > usize::try_from(limit).unwrap_or(usize::MAX))
            .then(|| format!("{release}: {revisions} revisions for {limit} changes and faults"))
    };
    by_release(events).into_iter().filter_map(exceeds).collect()
}

/// Checks that each hook has run at most once for each revision, and that those of a deployed revision have run. An
/// operation of a driver that was suspended with SIGSTOP may run a hook late; a driver that was suspended is not judged.
pub fn check_hooks(observed: &EndState, events: &Events) -> Vec<String> {
    let revisions = hook_runs(events);
    [check_repeated_hooks(events, &revisions), check_missing_hooks(observed, &revisions)].concat()
}

/// A revision, and the drivers that have run each of its hooks.
struct RevisionHooks {
    release: ReleaseId,
    revision: u32,
    runs: BTreeMap<Hook, Vec<Option<u32>>>,
}

/// Returns the revisions in the order of their creation. A number can occur again after the release was uninstalled.
fn hook_runs(events: &Events) -> Vec<RevisionHooks> {
    let mut sorted: Vec<&RevisionEvent> = events.revisions.iter().collect();
    sorted.sort_by_key(|event| event.at);
    let mut revisions: Vec<RevisionHooks> = Vec::new();
    for RevisionEvent { release, revision, step, pid, .. } in sorted {
        match step {
            RevisionStep::Created => {
                let runs = BTreeMap::new();
                revisions.push(RevisionHooks { release: *release, revision: *revision, runs });
            }
            RevisionStep::HookRan(hook) => {
                let mut newest_first = revisions.iter_mut().rev();
                let of = newest_first.find(|of| of.release == *release && of.revision == *revision);
                if let Some(of) = of {
                    of.runs.entry(*hook).or_default().push(*pid);
                }
            }
        }
    }
    revisions
}

fn check_repeated_hooks(events: &Events, revisions: &[RevisionHooks]) -> Vec<String> {
    let is_judged = |pid: &&Option<u32>| pid.is_none_or(|pid| !events.suspended_drivers.contains(&pid));
    let mut problems = Vec::new();
    for RevisionHooks { release, revision, runs } in revisions {
        for (hook, pids) in runs {
            let count = pids.iter().filter(is_judged).count();
            if count > 1 {
                problems.push(format!("{release}: hook {hook:?} of revision {revision} ran {count} times"));
            }
        }
    }
    problems
}

fn check_missing_hooks(observed: &EndState, revisions: &[RevisionHooks]) -> Vec<String> {
    let mut problems = Vec::new();
    for (release, found) in observed.releases.iter().filter(|(release, _)| release.placement.has_hooks()) {
        let Some(newest) = found.newest.as_ref().filter(|newest| newest.status == "deployed") else {
            continue;
        };
        let mut newest_first = revisions.iter().rev();
        let of = newest_first.find(|of| of.release == *release && of.revision == newest.revision);
        let Some(of) = of else { continue };
        for hook in Hook::ALL.into_iter().filter(|hook| !of.runs.contains_key(hook)) {
            let revision = newest.revision;
            problems.push(format!(
                "{release}: hook {hook:?} of revision {revision} did not run, but it is deployed"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use chandler_sandbox::assets::KubernetesVersion;
    use jiff::Timestamp;

    use super::*;
    use crate::{
        action::{Action, ChartVersion, Cluster, ManagementCluster, Placement, UserAction},
        chart::PublishedVersion,
        facts::{Record, ReleaseObject},
    };

    const P: Placement = Placement(0);
    const ON_ALPHA: ReleaseId = ReleaseId { placement: P, cluster: Cluster::Alpha };
    const ON_BRAVO: ReleaseId = ReleaseId { placement: P, cluster: Cluster::Bravo };
    const CONTENT: Content = Content {
        value: 0,
        version: PublishedVersion { kubernetes: None, version: ChartVersion::First },
        annotation: 0,
        kubernetes: KubernetesVersion::V1_34,
    };
    const HOOKED: ReleaseId = ReleaseId { placement: Placement(1), cluster: Cluster::Alpha };

    type Change = fn(&mut ObservedRelease);

    fn model(actions: &[UserAction]) -> Model {
        let mut model = Model::default();
        for action in actions {
            model.apply(Action::User(*action));
        }
        model
    }

    fn deployed() -> ObservedRelease {
        ObservedRelease {
            newest: Some(Record { revision: 1, status: "deployed".to_owned() }),
            objects: vec![Some(CONTENT); OBJECTS],
            release_objects: vec![ReleaseObject {
                management: ManagementCluster::A,
                ready: "True".to_owned(),
                healthy: "True".to_owned(),
                is_current: true,
                revision: Some(1),
            }],
        }
    }

    fn observed(change: impl FnOnce(&mut ObservedRelease)) -> EndState {
        let mut changed = deployed();
        change(&mut changed);
        EndState { releases: [(ON_ALPHA, changed), (ON_BRAVO, deployed())].into() }
    }

    #[test]
    fn the_end_state_must_equal_the_model() {
        let created = model(&[UserAction::CreatePlacement(P)]);
        assert_eq!(check_end_state(&created, &observed(|_| ())), [""; 0]);
        let rows: [(Change, &str); 9] = [
            (|release| release.newest = None, "there is no release record"),
            (|release| release.newest.as_mut().unwrap().status = "failed".to_owned(), "is failed"),
            (|release| release.objects[0] = None, "an object has None"),
            (|release| release.objects.truncate(2), "1 of 3 objects are missing"),
            (|release| release.release_objects.clear(), "0 release objects"),
            (
                |release| release.release_objects[0].management = ManagementCluster::B,
                "on management cluster B, not A",
            ),
            (|release| release.release_objects[0].is_current = false, "current: false"),
            (|release| release.release_objects[0].healthy = "Unknown".to_owned(), "Healthy is"),
            (|release| release.release_objects[0].revision = Some(7), "says revision Some(7)"),
        ];
        for (change, text) in rows {
            let problems = check_end_state(&created, &observed(change));
            assert!(problems.iter().any(|problem| problem.contains(text)), "{text}: {problems:?}");
        }
    }

    #[test]
    fn removed_releases_must_be_absent_unless_their_cluster_was_recreated() {
        let mut actions = vec![UserAction::CreatePlacement(P), UserAction::Deselect(ON_ALPHA)];
        let problems =
            check_end_state(&model(&actions), &observed(|release| release.release_objects.clear()));
        assert_eq!(problems.len(), 2, "{problems:?}");
        actions.push(UserAction::RecreateCluster(Cluster::Alpha));
        assert_eq!(
            check_end_state(&model(&actions), &observed(|release| release.release_objects.clear())),
            [""; 0]
        );
        assert_eq!(check_end_state(&model(&actions), &observed(|_| ())).len(), 1, "it has an object");
    }

    #[test]
    fn an_object_that_a_user_deleted_may_be_missing() {
        let deleted = model(&[UserAction::CreatePlacement(P), UserAction::DeleteObject(ON_ALPHA)]);
        let missing = |left: usize, status: &'static str| {
            observed(move |release| {
                release.objects.truncate(left);
                release.release_objects[0].ready = status.to_owned();
                release.release_objects[0].healthy = status.to_owned();
            })
        };
        assert_eq!(check_end_state(&deleted, &missing(2, "False")), [""; 0]);
        assert_eq!(check_end_state(&deleted, &missing(1, "False")).len(), 1);
        assert_eq!(check_end_state(&deleted, &missing(2, "True")).len(), 2, "the status is not true");
        assert_eq!(check_end_state(&deleted, &missing(3, "True")), [""; 0]);
    }

    #[test]
    fn a_status_that_claims_too_much_is_a_violation() {
        let edited = model(&[UserAction::CreatePlacement(P), UserAction::EditValues(P, 5)]);
        assert_eq!(check_ready_is_true(&edited, &observed(|_| ())).len(), 2);
        let created = model(&[UserAction::CreatePlacement(P)]);
        assert_eq!(check_ready_is_true(&created, &observed(|_| ())), [""; 0]);
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns writes to one release by these drivers, one per second.
    fn writes(pids: &[u32]) -> Events {
        let write = |(at, pid): (i64, &u32)| RecordWrite {
            release: ON_ALPHA,
            pid: Some(*pid),
            verb: "update".to_owned(),
            at: second(at),
        };
        Events { record_writes: (0..).zip(pids).map(write).collect(), ..Events::default() }
    }

    #[test]
    fn a_driver_must_not_write_after_another_has_taken_over() {
        let problems = |events: &Events| check_single_driver(events).len();
        for (pids, expected) in [
            (&[1, 1, 1][..], 0),
            (&[1, 1, 2, 2, 3], 0),
            (&[1, 2, 1], 1),
            (&[1, 2, 1, 2], 1),
            (&[1, 2, 1, 1], 2),
        ] {
            assert_eq!(problems(&writes(pids)), expected, "{pids:?}");
        }
        let moved = Events { moves: vec![(second(1), second(2))], ..writes(&[1, 2, 1]) };
        assert_eq!(problems(&moved), 0);
        let moved_long_before = Events { moves: vec![(second(-90), second(-80))], ..writes(&[1, 2, 1]) };
        assert_eq!(problems(&moved_long_before), 1);
        let suspended = |pids: &[u32]| Events { suspended_drivers: [1].into(), ..writes(pids) };
        assert_eq!(problems(&suspended(&[1, 2, 1])), 0, "one late request");
        assert_eq!(problems(&suspended(&[1, 2, 1, 2])), 0, "the successor continues");
        assert_eq!(problems(&suspended(&[1, 2, 1, 2, 1])), 1, "one late request only");
    }

    #[test]
    fn removals_and_revisions_need_a_reason() {
        let created = model(&[UserAction::CreatePlacement(P)]);
        let removed = Events { removals: [ON_ALPHA].into(), ..Events::default() };
        assert_eq!(check_events(&created, &removed).len(), 1);
        let deselected = model(&[UserAction::CreatePlacement(P), UserAction::Deselect(ON_ALPHA)]);
        assert_eq!(check_events(&deselected, &removed), [""; 0]);

        let mut events = writes(&[1, 1]);
        events.record_writes[0].verb = "create".to_owned();
        assert_eq!(check_events(&created, &events), [""; 0]);
        events.record_writes[1].verb = "create".to_owned();
        assert_eq!(check_events(&created, &events).len(), 1);
    }

    /// Returns the events of a release, one per second: a revision is created, or a driver runs one of its hooks.
    fn revisions(steps: &[(u32, RevisionStep, u32)]) -> Events {
        let event = |(at, (revision, step, pid)): (i64, &(u32, RevisionStep, u32))| RevisionEvent {
            release: HOOKED,
            revision: *revision,
            step: *step,
            pid: Some(*pid),
            at: second(at),
        };
        Events { revisions: (0..).zip(steps).map(event).collect(), ..Events::default() }
    }

    #[test]
    fn hooks_run_once_per_revision() {
        const CREATED: RevisionStep = RevisionStep::Created;
        const PRE: RevisionStep = RevisionStep::HookRan(Hook::Pre);
        const POST: RevisionStep = RevisionStep::HookRan(Hook::Post);
        let state = |revision| {
            let mut observed = deployed();
            observed.newest = Some(Record { revision, status: "deployed".to_owned() });
            EndState { releases: [(HOOKED, observed)].into() }
        };
        let problems = |revision, events: &Events| check_hooks(&state(revision), events).len();
        let installed = [(1, CREATED, 7), (1, PRE, 7), (1, POST, 7)];
        assert_eq!(problems(1, &revisions(&installed)), 0);
        let interrupted = [(1, CREATED, 7), (1, PRE, 7), (2, CREATED, 8), (2, PRE, 8), (2, POST, 8)];
        assert_eq!(problems(2, &revisions(&interrupted)), 0, "a later revision runs them again");
        assert_eq!(problems(1, &revisions(&interrupted[..2])), 1, "one did not run");
        let installed_again = [installed, installed].concat();
        assert_eq!(problems(1, &revisions(&installed_again)), 0, "the release was uninstalled meanwhile");
        let repeated = [&installed[..], &[(1, POST, 8)]].concat();
        assert_eq!(problems(1, &revisions(&repeated)), 1);
        let suspended = Events { suspended_drivers: [8].into(), ..revisions(&repeated) };
        assert_eq!(problems(1, &suspended), 0, "a driver that was suspended sends a request late");
    }
}
