use chandler_api::extensions::{DriftPolicy, FieldConflicts};

use super::*;
use crate::drift::DriftRules;

const SEED: &str = "fleet/blue";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn object(kind: &str, name: &str) -> ObjectRecord {
    let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    ObjectRecord {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn web() -> ObjectRecord {
    object("Deployment", "web")
}

fn config() -> ObjectRecord {
    object("ConfigMap", "config")
}

/// A Deployment and a ConfigMap of revision 3 with these fingerprints.
fn seen(mode: DriftMode, web_seen: u64, config_seen: Option<u64>) -> Snapshot {
    let policy = DriftPolicy { mode, ignore: Vec::new() };
    let rules = DriftRules { policy, conflicts: FieldConflicts::Fail };
    let objects = vec![web(), config()].into();
    let config_seen = config_seen.map_or(Fingerprint::Missing, Fingerprint::Seen);
    let fingerprints = vec![Fingerprint::Seen(web_seen), config_seen];
    Snapshot { scope: ComparisonScope { revision: 3, rules, objects }, fingerprints }
}

fn result(object: ObjectRecord, outcome: ComparisonOutcome) -> ObjectComparison {
    let path = || "/spec/template/spec/containers/0/image".to_owned();
    let has_paths = matches!(outcome, ComparisonOutcome::Drifted | ComparisonOutcome::Corrected);
    let paths = has_paths.then(path).into_iter().collect();
    let reason =
        if outcome == ComparisonOutcome::Unknown { "a webhook does not support dry run" } else { "" };
    ObjectComparison { object, outcome, paths, reason: reason.to_owned() }
}

/// The state after both objects were compared at second 0.
fn compared(mode: DriftMode, web_is: ComparisonOutcome, config_is: ComparisonOutcome) -> DriftState {
    let mut state = DriftState::default();
    let results = [result(web(), web_is), result(config(), config_is)];
    state.compared(seen(mode, 1, Some(1)), &[web(), config()], &results, at(0));
    state
}

fn in_sync(mode: DriftMode) -> DriftState {
    compared(mode, ComparisonOutcome::InSync, ComparisonOutcome::InSync)
}

#[test]
fn objects_are_compared_once_and_again_if_they_change() {
    use DriftMode::{Correct, Report};
    let (now, both) = (NextComparison::Now, vec![web(), config()]);
    let next_revision = || {
        let mut seen = seen(Report, 1, Some(1));
        seen.scope.revision = 4;
        seen
    };
    let rows = [
        ("first", DriftState::default(), seen(Report, 1, Some(1)), now(both.clone())),
        ("the same", in_sync(Report), seen(Report, 1, Some(1)), NextComparison::OnChange),
        ("changed", in_sync(Report), seen(Report, 2, Some(1)), now(vec![web()])),
        ("deleted", in_sync(Report), seen(Report, 1, None), now(vec![config()])),
        ("another revision", in_sync(Report), next_revision(), now(both.clone())),
        ("another mode", in_sync(Report), seen(Correct, 1, Some(1)), now(both)),
    ];
    for (name, state, seen, expected) in rows {
        assert_eq!(state.next(&seen, SEED, at(1)), expected, "{name}");
    }
}

#[test]
fn a_change_during_a_comparison_is_compared_afterwards() {
    let mut state = in_sync(DriftMode::Correct);
    let snapshot = seen(DriftMode::Correct, 2, Some(2));
    let corrected = result(web(), ComparisonOutcome::Corrected);
    let found = state.compared(snapshot, &[web()], std::slice::from_ref(&corrected), at(10));
    assert_eq!(found, Changes { drifted: Vec::new(), corrected: vec![corrected] });
    // The ConfigMap was not part of the comparison, and the correction changes the Deployment.
    let now = seen(DriftMode::Correct, 3, Some(2));
    assert_eq!(state.next(&now, SEED, at(11)), NextComparison::Now(vec![web(), config()]));
    assert_eq!(state.report(&now, at(11)), DriftReport::InSync);
}

#[test]
fn what_is_not_resolved_is_tried_again() {
    use ComparisonOutcome::{Drifted, Ignored, InSync, Missing, Unknown};
    use DriftMode::{Correct, Report};
    // The mode, the outcomes, and whether an object is compared again although it has not changed.
    let rows = [
        (Report, Drifted, Missing, None),
        (Report, InSync, Ignored, None),
        (Report, Unknown, Drifted, Some(vec![web()])),
        (Correct, InSync, Ignored, None),
        (Correct, InSync, Missing, Some(vec![config()])),
        (Correct, Drifted, Unknown, Some(vec![web(), config()])),
    ];
    for (mode, web_is, config_is, retried) in rows {
        let state = compared(mode, web_is, config_is);
        let same = seen(mode, 1, Some(1));
        let first = state.next(&same, SEED, at(1));
        let later = state.next(&same, SEED, at(100));
        match retried {
            Some(objects) => {
                assert!(matches!(first, NextComparison::At(_)), "{mode:?} {web_is:?} {config_is:?}");
                assert_eq!(later, NextComparison::Now(objects));
            }
            None => assert_eq!((first, later), (NextComparison::OnChange, NextComparison::OnChange)),
        }
    }
}

#[test]
fn a_persistent_conflict_is_compared_again_although_nothing_changes() {
    use ComparisonOutcome::{Drifted, InSync, Unknown};
    use DriftMode::{Correct, Report};
    for (mode, outcome) in [(Report, Unknown), (Correct, Unknown), (Correct, Drifted)] {
        let mut state = in_sync(mode);
        let same = seen(mode, 2, Some(1));
        let conflict = || {
            let reason = "another client changes it at the same time".to_owned();
            [ObjectComparison { reason, ..result(web(), outcome) }]
        };
        let (mut now, mut waits) = (at(10), Vec::new());
        for _ in 0..10 {
            state.compared(same.clone(), &[web()], &conflict(), now);
            let NextComparison::At(next) = state.next(&same, SEED, now) else {
                panic!("{mode:?} {outcome:?} is not compared again")
            };
            waits.push(next.duration_since(now).as_secs());
            assert_eq!(state.next(&same, SEED, next), NextComparison::Now(vec![web()]));
            let restored = DriftState::restore(state.status().as_ref(), &same);
            assert_eq!(restored.next(&same, SEED, now), NextComparison::Now(vec![web()]), "after a restart");
            now = next;
        }
        assert!(waits[0] <= 6 && waits[9] > 400 && waits[9] <= 720, "{waits:?}");
        state.compared(same.clone(), &[web()], &[result(web(), InSync)], now);
        assert_eq!(state.next(&same, SEED, now), NextComparison::OnChange);
        assert_eq!(state.report(&same, now), DriftReport::InSync);
    }
}

#[test]
fn a_release_is_compared_when_its_objects_have_settled() {
    let mut state = DriftState::default();
    state.operated(at(10));
    let new = seen(DriftMode::Report, 1, Some(1));
    assert_eq!(state.next(&new, SEED, at(11)), NextComparison::At(at(12)));
    assert_eq!(state.next(&new, SEED, at(12)), NextComparison::Now(vec![web(), config()]));
}

#[test]
fn a_comparison_that_has_failed_is_repeated_later() {
    let mut state = in_sync(DriftMode::Report);
    let changed = seen(DriftMode::Report, 2, Some(1));
    let failure = Failure::new(Category::Unreachable, "no route");
    state.failed(&changed.scope, failure.clone(), at(10));
    assert!(matches!(state.next(&changed, SEED, at(11)), NextComparison::At(retry) if retry < at(17)));
    assert_eq!(state.next(&changed, SEED, at(17)), NextComparison::Now(vec![web()]));
    assert_eq!(state.report(&changed, at(17)), DriftReport::InSync, "one failure says little");
    state.failed(&changed.scope, failure, at(17));
    assert!(matches!(state.next(&changed, SEED, at(24)), NextComparison::At(_)));
    let message = "the objects could not be compared: no route".to_owned();
    assert_eq!(state.report(&changed, at(24)), DriftReport::Unknown(message));
    let other = seen(DriftMode::Correct, 2, Some(1));
    assert!(matches!(state.next(&other, SEED, at(18)), NextComparison::Now(_)), "another policy");
    state.compared(changed.clone(), &[web()], &[result(web(), ComparisonOutcome::InSync)], at(30));
    assert_eq!(state.report(&changed, at(30)), DriftReport::InSync);
}

#[test]
fn comparisons_that_end_the_package_tool_are_not_repeated_for_ever() {
    let mut state = in_sync(DriftMode::Correct);
    let changed = seen(DriftMode::Correct, 2, Some(1));
    for (second, category) in
        [Category::ToolUnavailable, Category::ToolCrashed, Category::ToolCrashed, Category::ToolCrashed]
            .into_iter()
            .enumerate()
    {
        assert_ne!(state.next(&changed, SEED, at(10_000)), NextComparison::OnChange, "{second}");
        state.failed(&changed.scope, Failure::new(category, "out of memory"), at(10));
    }
    assert_eq!(state.next(&changed, SEED, at(10_000)), NextComparison::OnChange);
    let other = seen(DriftMode::Report, 2, Some(1));
    assert_ne!(state.next(&other, SEED, at(10_000)), NextComparison::OnChange, "another policy");
}

#[test]
fn an_object_that_another_client_keeps_changing_is_corrected_less_often() {
    let mut state = in_sync(DriftMode::Correct);
    let corrected = [result(web(), ComparisonOutcome::Corrected)];
    for second in 1..=5 {
        let changed = seen(DriftMode::Correct, 10 + second, Some(1));
        assert_eq!(state.next(&changed, SEED, at(5)), NextComparison::Now(vec![web()]), "{second}");
        state.compared(changed, &[web()], &corrected, at(i64::try_from(second).unwrap()));
    }
    let again = seen(DriftMode::Correct, 20, Some(1));
    assert_eq!(state.next(&again, SEED, at(6)), NextComparison::At(at(15)));
    let DriftReport::Drifted(message) = state.report(&again, at(6)) else { panic!("not drifted") };
    assert!(message.starts_with("another client keeps changing Deployment default/web"), "{message}");
    let other = seen(DriftMode::Correct, 20, Some(2));
    assert_eq!(state.next(&other, SEED, at(6)), NextComparison::Now(vec![config()]), "others are not held");
    assert_eq!(state.next(&again, SEED, at(15)), NextComparison::Now(vec![web()]));
}

#[test]
fn contested_objects_are_named_up_to_a_limit() {
    let policy = DriftPolicy { mode: DriftMode::Correct, ignore: Vec::new() };
    let rules = DriftRules { policy, conflicts: FieldConflicts::Fail };
    let objects: Vec<_> = (0..5).map(|n| object("ConfigMap", &format!("c{n}"))).collect();
    let seen = |number| {
        let scope = ComparisonScope { revision: 3, rules: rules.clone(), objects: objects.clone().into() };
        Snapshot { scope, fingerprints: vec![Fingerprint::Seen(number); 5] }
    };
    let corrected: Vec<_> =
        objects.iter().map(|one| result(one.clone(), ComparisonOutcome::Corrected)).collect();
    let mut state = DriftState::default();
    for number in 0..5 {
        state.compared(seen(number), &objects, &corrected, at(i64::try_from(number).unwrap()));
    }
    let DriftReport::Drifted(message) = state.report(&seen(9), at(6)) else { panic!("not drifted") };
    let named = "ConfigMap default/c0; ConfigMap default/c1; ConfigMap default/c2; and 2 more, so Chandler";
    assert!(message.contains(named), "{message}");
}

#[test]
fn an_object_that_changes_often_without_drift_is_compared_less_often() {
    let mut state = in_sync(DriftMode::Correct);
    let compare = |state: &mut DriftState, number: u64, outcome| {
        let changed = seen(DriftMode::Correct, 10 + number, Some(1));
        let now = at(i64::try_from(number).unwrap());
        assert_eq!(state.next(&changed, SEED, now), NextComparison::Now(vec![web()]), "{number}");
        state.compared(changed, &[web()], &[result(web(), outcome)], now);
    };
    for number in 1..=5 {
        compare(&mut state, number, ComparisonOutcome::InSync);
    }
    // A correction begins to count again.
    compare(&mut state, 6, ComparisonOutcome::Corrected);
    for number in 7..=12 {
        compare(&mut state, number, ComparisonOutcome::InSync);
    }
    let again = seen(DriftMode::Correct, 30, Some(1));
    assert_eq!(state.next(&again, SEED, at(13)), NextComparison::At(at(22)));
    assert_eq!(state.report(&again, at(13)), DriftReport::InSync);
    let other = seen(DriftMode::Correct, 30, Some(2));
    assert_eq!(state.next(&other, SEED, at(13)), NextComparison::Now(vec![config()]), "others are not held");
    assert_eq!(state.next(&again, SEED, at(22)), NextComparison::Now(vec![web()]));
    state.compared(again, &[web()], &[result(web(), ComparisonOutcome::InSync)], at(22));
    let again = seen(DriftMode::Correct, 31, Some(1));
    assert_eq!(state.next(&again, SEED, at(23)), NextComparison::At(at(42)), "the wait doubles");
    let next_policy = seen(DriftMode::Report, 31, Some(1));
    assert!(matches!(state.next(&next_policy, SEED, at(23)), NextComparison::Now(_)));
}

#[test]
fn a_digest_is_written_a_few_times_and_then_once_a_minute() {
    let mut state = in_sync(DriftMode::Report);
    let mut status = None;
    state.update_status(&mut status, at(0));
    let compare = |state: &mut DriftState, number: u64, outcome, now: i64| {
        let changed = seen(DriftMode::Report, 10 + number, Some(1));
        state.compared(changed, &[web()], &[result(web(), outcome)], at(now));
    };
    let digest = |status: &Option<DriftStatus>| status.as_ref().unwrap().compared_digest.clone();
    for number in 1..=5 {
        let before = digest(&status);
        compare(&mut state, number, ComparisonOutcome::InSync, 1);
        state.update_status(&mut status, at(1));
        assert!(before != digest(&status) && state.status_due_at().is_none(), "{number}");
    }
    let before = digest(&status);
    compare(&mut state, 6, ComparisonOutcome::InSync, 2);
    state.update_status(&mut status, at(2));
    assert_eq!((digest(&status), state.status_due_at()), (before.clone(), Some(at(61))));
    let postponed = (state.clone(), status.clone());
    state.update_status(&mut status, at(61));
    assert!(before != digest(&status) && state.status_due_at().is_none(), "once a minute");

    let (mut state, mut status) = postponed;
    compare(&mut state, 7, ComparisonOutcome::Drifted, 3);
    state.update_status(&mut status, at(3));
    assert_eq!(status.as_ref().unwrap().objects.len(), 1, "drift is written at once");
    assert!(before != digest(&status) && state.status_due_at().is_none());
}

#[test]
fn the_objects_of_a_revision_that_a_rollback_restored_are_unknown() {
    let state = in_sync(DriftMode::Report);
    assert_eq!(state.report_rolled_back(3), None, "they were compared before");
    for state in [state, DriftState::default()] {
        let Some(DriftReport::Unknown(message)) = state.report_rolled_back(4) else { panic!("known") };
        assert!(message.contains("revision 4"), "{message}");
    }
}

#[test]
fn the_first_objects_are_named() {
    use ComparisonOutcome::{Drifted, InSync, Missing, Unknown};
    let image = "Deployment default/web: /spec/template/spec/containers/0/image";
    let drifted = |text: &str| DriftReport::Drifted(text.to_owned());
    let rows = [
        (InSync, InSync, DriftReport::InSync),
        (Drifted, InSync, drifted(image)),
        (Drifted, Missing, drifted(&format!("{image}; ConfigMap default/config is missing"))),
        (Drifted, Unknown, drifted(image)),
        (
            Unknown,
            InSync,
            DriftReport::Unknown(
                "Deployment default/web could not be compared (a webhook does not support dry run)"
                    .to_owned(),
            ),
        ),
    ];
    for (web_is, config_is, expected) in rows {
        let state = compared(DriftMode::Report, web_is, config_is);
        assert_eq!(state.report(&seen(DriftMode::Report, 1, Some(1)), at(1)), expected);
    }
    let many = |count: usize| {
        let names = (0..count).map(|n| object("ConfigMap", &format!("c{n}")));
        names.map(|object| result(object, Missing).found().unwrap()).collect::<Vec<_>>()
    };
    let expected = "ConfigMap default/c0 is missing; ConfigMap default/c1 is missing; ConfigMap default/c2 is missing; and \
                    2 more";
    assert_eq!(report::message(&many(5), 3), expected);
    let paths: Vec<_> = ["/a", "/b", "/c", "/d"].map(str::to_owned).into();
    assert_eq!(report::fields(&paths), "/a, /b, /c and more fields");
    let corrected =
        [result(web(), ComparisonOutcome::Corrected), result(config(), ComparisonOutcome::Corrected)];
    let corrected = [corrected[0].clone(), ObjectComparison { paths: Vec::new(), ..corrected[1].clone() }];
    assert_eq!(report::correction_message(&corrected, 5), format!("{image}; ConfigMap default/config"));
}

#[test]
fn what_cannot_be_watched_or_was_not_compared_is_unknown() {
    let mut unwatched = seen(DriftMode::Report, 1, Some(1));
    unwatched.fingerprints[1] = Fingerprint::Unwatched;
    let mut state = DriftState::default();
    let in_sync = |object| result(object, ComparisonOutcome::InSync);
    state.compared(unwatched.clone(), &[web(), config()], &[in_sync(web()), in_sync(config())], at(0));
    let DriftReport::Unknown(message) = state.report(&unwatched, at(0)) else { panic!("known") };
    assert!(message.starts_with("ConfigMap (v1) cannot be watched"), "{message}");
    assert_eq!(state.next(&unwatched, SEED, at(1)), NextComparison::OnChange);

    let known = seen(DriftMode::Report, 1, Some(1));
    let mut state = DriftState::default();
    assert_eq!(state.report(&known, at(0)), DriftReport::Unchanged, "nothing was compared yet");
    state.compared(known.clone(), &[web(), config()], &[in_sync(web())], at(0));
    let DriftReport::Unknown(message) = state.report(&known, at(0)) else { panic!("known") };
    assert!(message.contains("ConfigMap default/config"), "{message}");
}

#[test]
fn events_name_what_is_new() {
    let mut state = compared(DriftMode::Report, ComparisonOutcome::Drifted, ComparisonOutcome::InSync);
    let again = seen(DriftMode::Report, 2, None);
    let results = [result(web(), ComparisonOutcome::Drifted), result(config(), ComparisonOutcome::Missing)];
    let changes = state.compared(again, &[web(), config()], &results, at(9));
    let names: Vec<_> = changes.drifted.iter().map(|found| found.object.name.as_str()).collect();
    assert_eq!(names, ["config"]);
}

#[test]
fn a_restart_compares_only_what_may_have_changed() {
    let state = compared(DriftMode::Report, ComparisonOutcome::Drifted, ComparisonOutcome::InSync);
    let (status, same) = (state.status().unwrap(), seen(DriftMode::Report, 1, Some(1)));
    assert_eq!(status.compared_digest.len(), 32);
    let restored = DriftState::restore(Some(&status), &same);
    assert_eq!(restored.next(&same, SEED, at(9)), NextComparison::OnChange);
    assert_eq!(restored.report(&same, at(9)), state.report(&same, at(9)));
    assert_eq!(restored.status(), Some(status.clone()));
    let truncated = DriftStatus { more: 1, ..status.clone() };
    let rows = [
        (None, same.clone()),
        (Some(&truncated), same),
        (Some(&status), seen(DriftMode::Report, 2, Some(1))),
        (Some(&status), seen(DriftMode::Correct, 1, Some(1))),
    ];
    for (status, seen) in rows {
        let restored = DriftState::restore(status, &seen);
        assert_eq!(restored.next(&seen, SEED, at(9)), NextComparison::Now(vec![web(), config()]));
    }
}
