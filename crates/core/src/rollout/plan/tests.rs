use serde_json::{Value, json};

use super::*;
use crate::rollout::Target;

/// A cluster: its name, the value of its label `tier`, and its state.
type Row<'a> = (&'a str, &'a str, MemberState);

const OUTDATED: MemberState = MemberState::Outdated;
const MOVING: MemberState = MemberState::Moving { until: None };

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn moved(minute: i64) -> MemberState {
    MemberState::Moved { ready_since: at(minute) }
}

fn failed(minute: i64) -> MemberState {
    MemberState::Failed { at: at(minute) }
}

fn settings(policy: Value) -> Settings {
    Settings::parse(&serde_json::from_value(policy).unwrap()).unwrap()
}

/// Two waves with selectors, of which the first has to be ready for ten minutes.
fn tiers(max_concurrent: &Value, stop_after: u32) -> Settings {
    let wave = |tier: &str, soak: &str| json!({"name": tier, "selector": {"matchLabels": {"tier": tier}}, "soak": soak});
    settings(json!({
        "maxConcurrent": max_concurrent, "stopAfterFailures": stop_after,
        "waves": [wave("canary", "10m"), wave("staging", "0s")],
    }))
}

fn run(settings: &Settings, rows: &[Row<'_>], requests: &Requests, minute: i64) -> RolloutPlan {
    let target = Target { spec: "s1".to_owned(), package: "1".to_owned(), kubernetes: None };
    let all: Vec<_> = rows
        .iter()
        .map(|(name, tier, state)| {
            let labels = BTreeMap::from([("tier".to_owned(), (*tier).to_owned())]);
            (ClusterKey::new("fleet", *name), labels, *state)
        })
        .collect();
    let members: Vec<_> = all
        .iter()
        .map(|(cluster, labels, state)| Member { cluster, labels, target: Some(&target), state: *state })
        .collect();
    plan(settings, &members, requests, at(minute))
}

/// The names of the clusters that are updated now, and the state.
fn next(plan: &RolloutPlan) -> (Vec<&str>, RolloutState) {
    (plan.may_move.iter().map(|key| key.name.as_str()).collect(), plan.status.state)
}

fn none() -> Requests {
    Requests::default()
}

#[test]
fn waves_follow_each_other_and_unmatched_clusters_are_last() {
    use RolloutState::{Done, Progressing, Soaking};
    let settings = tiers(&json!("100%"), 1);
    let fleet = |a, b, c, d, e| {
        [("a", "canary", a), ("b", "canary", b), ("c", "staging", c), ("d", "prod", d), ("e", "", e)]
    };
    let rows: [(_, i64, &[&str], _, &str); 9] = [
        (fleet(OUTDATED, OUTDATED, OUTDATED, OUTDATED, OUTDATED), 0, &["a", "b"], Progressing, "canary"),
        (fleet(MOVING, MOVING, OUTDATED, OUTDATED, OUTDATED), 1, &[], Progressing, "canary"),
        (fleet(moved(2), MOVING, OUTDATED, OUTDATED, OUTDATED), 50, &[], Progressing, "canary"),
        (fleet(moved(2), moved(4), OUTDATED, OUTDATED, OUTDATED), 13, &[], Soaking, "canary"),
        (fleet(moved(2), moved(4), OUTDATED, OUTDATED, OUTDATED), 14, &["c"], Progressing, "staging"),
        (fleet(moved(2), moved(4), moved(15), OUTDATED, OUTDATED), 15, &["d", "e"], Progressing, "others"),
        (fleet(moved(2), moved(4), moved(15), MOVING, MOVING), 16, &[], Progressing, "others"),
        (fleet(moved(2), moved(4), moved(15), moved(16), moved(16)), 17, &[], Done, ""),
        // A cluster that has joined the first wave, or is reachable again, is updated before the others.
        (fleet(moved(2), OUTDATED, OUTDATED, OUTDATED, MOVING), 14, &["b"], Progressing, "canary"),
    ];
    for (fleet, minute, expected, state, wave) in rows {
        let plan = run(&settings, &fleet, &none(), minute);
        assert_eq!(next(&plan), (expected.to_vec(), state), "{fleet:?} at {minute}");
        assert_eq!(plan.status.wave.as_deref().unwrap_or_default(), wave);
        assert_eq!(plan.status.waves, 3);
    }
    let soaking = run(&settings, &fleet(moved(2), moved(4), OUTDATED, OUTDATED, OUTDATED), &none(), 13);
    assert_eq!(soaking.recheck_at, Some(at(14)));
    assert!(soaking.held.values().all(|reason| *reason == HoldReason::Soak), "{:?}", soaking.held);
    assert_eq!(
        soaking.status.message,
        "wave canary (1 of 3): 2 of 5 clusters are updated; the next wave waits until 1970-01-01T00:14:00Z"
    );
}

#[test]
fn the_time_after_the_last_wave_with_work_does_not_matter() {
    let settings = tiers(&json!(1), 1);
    let fleet = [("a", "canary", moved(2)), ("b", "staging", MemberState::Current)];
    assert_eq!(run(&settings, &fleet, &none(), 3).status.state, RolloutState::Done);
    let installed = [("a", "canary", MemberState::Current), ("b", "staging", OUTDATED)];
    assert_eq!(next(&run(&settings, &installed, &none(), 3)).0, ["b"], "nothing was moved in the first wave");
}

#[test]
fn only_so_many_are_updated_at_the_same_time() {
    let fleet = |moving: usize, failed_ones: usize| -> Vec<(String, MemberState)> {
        let state = |n: usize| {
            if n < moving {
                MOVING
            } else if n < moving + failed_ones {
                failed(1)
            } else {
                OUTDATED
            }
        };
        (0..10).map(|n| (format!("c{n}"), state(n))).collect()
    };
    let rows = [
        (json!(3), 0, 0, 3),
        (json!(3), 2, 0, 1),
        (json!(3), 4, 0, 0),
        (json!(3), 1, 2, 2),
        (json!("25%"), 0, 0, 3),
        (json!("100%"), 0, 0, 10),
    ];
    for (max_concurrent, moving, failures, expected) in rows {
        let settings = settings(json!({"maxConcurrent": max_concurrent, "stopAfterFailures": 0}));
        let all = fleet(moving, failures);
        let rows: Vec<Row<'_>> = all.iter().map(|(name, state)| (name.as_str(), "", *state)).collect();
        let plan = run(&settings, &rows, &none(), 5);
        assert_eq!(plan.may_move.len(), expected, "{max_concurrent}, {moving} moving, {failures} failed");
        assert!(plan.held.values().all(|reason| *reason == HoldReason::Slot));
        assert_eq!(plan.status.total, 10);
    }
}

#[test]
fn failures_stop_a_rollout_until_it_is_resumed() {
    use RolloutState::{Progressing, Stopped};
    let fleet = [("a", "", failed(3)), ("b", "", failed(5)), ("c", "", OUTDATED)];
    let resumed = |minute| Requests { resumed_at: Some(at(minute)), ..none() };
    let rows: [(u32, Requests, _, u32); 7] = [
        (0, none(), Progressing, 2),
        (3, none(), Progressing, 2),
        (2, none(), Stopped, 2),
        (1, none(), Stopped, 2),
        (1, resumed(4), Stopped, 1),
        (1, resumed(5), Progressing, 0),
        (2, resumed(4), Progressing, 1),
    ];
    for (stop_after, requests, state, failures) in rows {
        let plan = run(&tiers(&json!(5), stop_after), &fleet, &requests, 9);
        let expected = if state == Stopped { vec![] } else { vec!["c"] };
        assert_eq!(next(&plan), (expected, state), "{stop_after} {requests:?}");
        assert_eq!(plan.status.failed, failures);
    }
    let stopped = run(&tiers(&json!(5), 2), &fleet, &none(), 9);
    assert!(stopped.status.message.contains("stopped after 2 of 2 failures"), "{}", stopped.status.message);
    let all_failed = [("a", "", failed(3))];
    assert_eq!(run(&tiers(&json!(5), 1), &all_failed, &none(), 9).status.state, Stopped, "nothing is left");
}

#[test]
fn unreachable_and_paused_clusters_neither_block_nor_count() {
    let settings = tiers(&json!(1), 1);
    let waiting = [MemberState::Unreachable, MemberState::Paused];
    for state in waiting {
        let fleet = [("a", "canary", state), ("b", "canary", moved(0)), ("c", "staging", OUTDATED)];
        let plan = run(&settings, &fleet, &none(), 20);
        assert_eq!(next(&plan), (vec!["c"], RolloutState::Progressing), "{state:?}");
        assert_eq!((plan.status.unavailable, plan.status.updated), (1, 1));
        let rest = [("a", "canary", state), ("b", "canary", moved(0)), ("c", "staging", moved(20))];
        let plan = run(&settings, &rest, &none(), 21);
        assert_eq!(plan.status.state, RolloutState::Done);
        assert_eq!(plan.status.message, "2 of 3 clusters are updated; 1 unreachable or paused");
    }
}

#[test]
fn releases_that_no_rollout_has_moved_take_no_slot() {
    let fleet = [("a", "", MemberState::Current), ("b", "", OUTDATED)];
    assert_eq!(next(&run(&tiers(&json!(1), 1), &fleet, &none(), 1)).0, ["b"]);
}

#[test]
fn users_pause_skip_and_abort() {
    let settings = tiers(&json!(1), 1);
    let fleet = [("a", "canary", OUTDATED), ("b", "staging", MOVING), ("c", "prod", OUTDATED)];
    let paused = Requests { paused: true, ..none() };
    assert_eq!(next(&run(&settings, &fleet, &paused, 1)), (vec![], RolloutState::Paused));
    let done = [("a", "canary", moved(0))];
    assert_eq!(
        run(&settings, &done, &paused, 1).status.state,
        RolloutState::Done,
        "nothing is left to pause"
    );

    let skip = Requests { skip: ["a".to_owned()].into(), ..none() };
    let stuck = [("a", "canary", failed(1)), ("b", "staging", OUTDATED), ("c", "prod", OUTDATED)];
    let plan = run(&settings, &stuck, &skip, 2);
    assert_eq!(next(&plan), (vec!["b"], RolloutState::Progressing), "its failure does not count");
    assert_eq!((plan.status.skipped, plan.status.failed), (1, 0));
    let held = [("a", "canary", OUTDATED), ("b", "staging", OUTDATED)];
    let plan = run(&settings, &held, &skip, 2);
    assert_eq!(next(&plan).0, ["b"]);
    assert_eq!(plan.held[&ClusterKey::new("fleet", "a")], HoldReason::Skipped);

    let target = run(&settings, &fleet, &none(), 1).status.targets;
    assert_eq!(target.len(), 1);
    let abort = Requests { aborted: target.into_iter().collect(), ..none() };
    let plan = run(&settings, &[("a", "canary", moved(0)), ("c", "prod", OUTDATED)], &abort, 60);
    assert_eq!(next(&plan), (vec![], RolloutState::Aborted));
    assert_eq!(plan.held[&ClusterKey::new("fleet", "c")], HoldReason::Aborted);
    let other = Requests { aborted: ["another".to_owned()].into(), ..none() };
    assert_eq!(next(&run(&settings, &fleet, &other, 1)).0, [] as [&str; 0], "the only slot is taken");
    assert_eq!(run(&settings, &fleet, &other, 1).status.state, RolloutState::Progressing);
}

#[test]
fn a_plan_is_checked_again_when_a_release_has_to_be_ready() {
    let until = MemberState::Moving { until: Some(at(7)) };
    let fleet = [("a", "", until), ("b", "", MemberState::Moving { until: Some(at(9)) }), ("c", "", MOVING)];
    assert_eq!(run(&tiers(&json!(3), 1), &fleet, &none(), 1).recheck_at, Some(at(7)));
}
