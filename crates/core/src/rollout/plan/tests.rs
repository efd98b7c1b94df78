use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::rollout::RolloutTarget;

/// A cluster: its name, the value of its label `tier`, and its state.
type Row<'a> = (&'a str, &'a str, MemberState);

const OUTDATED: MemberState = MemberState::Outdated;
const UPDATING: MemberState = MemberState::Updating { until: None };

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn updated(minute: i64) -> MemberState {
    MemberState::Updated { ready_since: at(minute) }
}

fn failed(minute: i64) -> MemberState {
    MemberState::Failed { at: at(minute) }
}

fn settings(policy: Value) -> RolloutSettings {
    RolloutSettings::parse(&serde_json::from_value(policy).unwrap()).unwrap()
}

/// Two waves with selectors, of which the first has to be ready for ten minutes.
fn tiers(max_concurrent: &Value, stop_after: u32) -> RolloutSettings {
    let wave = |tier: &str, soak: &str| json!({"name": tier, "selector": {"matchLabels": {"tier": tier}}, "soak": soak});
    settings(json!({
        "maxConcurrent": max_concurrent, "stopAfterFailures": stop_after,
        "waves": [wave("canary", "10m"), wave("staging", "0s")],
    }))
}

fn run(settings: &RolloutSettings, rows: &[Row<'_>], requests: &RolloutRequests, minute: i64) -> RolloutPlan {
    let target = RolloutTarget { spec: "s1".to_owned(), package: "1".to_owned(), ..RolloutTarget::default() };
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
    (plan.may_update.iter().map(|key| key.name.as_str()).collect(), plan.status.state)
}

fn none() -> RolloutRequests {
    RolloutRequests::default()
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
        (fleet(UPDATING, UPDATING, OUTDATED, OUTDATED, OUTDATED), 1, &[], Progressing, "canary"),
        (fleet(updated(2), UPDATING, OUTDATED, OUTDATED, OUTDATED), 50, &[], Progressing, "canary"),
        (fleet(updated(2), updated(4), OUTDATED, OUTDATED, OUTDATED), 13, &[], Soaking, "canary"),
        (fleet(updated(2), updated(4), OUTDATED, OUTDATED, OUTDATED), 14, &["c"], Progressing, "staging"),
        (
            fleet(updated(2), updated(4), updated(15), OUTDATED, OUTDATED),
            15,
            &["d", "e"],
            Progressing,
            "others",
        ),
        (fleet(updated(2), updated(4), updated(15), UPDATING, UPDATING), 16, &[], Progressing, "others"),
        (fleet(updated(2), updated(4), updated(15), updated(16), updated(16)), 17, &[], Done, ""),
        // A cluster that has joined the first wave, or is reachable again, is updated before the others.
        (fleet(updated(2), OUTDATED, OUTDATED, OUTDATED, UPDATING), 14, &["b"], Progressing, "canary"),
    ];
    for (fleet, minute, expected, state, wave) in rows {
        let plan = run(&settings, &fleet, &none(), minute);
        assert_eq!(next(&plan), (expected.to_vec(), state), "{fleet:?} at {minute}");
        assert_eq!(plan.status.wave.as_deref().unwrap_or_default(), wave);
        assert_eq!(plan.status.waves, 3);
    }
    let soaking = run(&settings, &fleet(updated(2), updated(4), OUTDATED, OUTDATED, OUTDATED), &none(), 13);
    assert_eq!(soaking.recheck_at, Some(at(14)));
    assert_eq!(
        soaking.status.message,
        "wave canary (1 of 3): 2 of 5 clusters are updated; the next wave waits until 1970-01-01T00:14:00Z"
    );
}

#[test]
fn the_time_after_the_last_wave_with_work_does_not_matter() {
    let settings = tiers(&json!(1), 1);
    let fleet = [("a", "canary", updated(2)), ("b", "staging", MemberState::Current)];
    assert_eq!(run(&settings, &fleet, &none(), 3).status.state, RolloutState::Done);
    let installed = [("a", "canary", MemberState::Current), ("b", "staging", OUTDATED)];
    assert_eq!(
        next(&run(&settings, &installed, &none(), 3)).0,
        ["b"],
        "nothing was updated in the first wave"
    );
}

#[test]
fn only_so_many_are_updated_at_the_same_time() {
    let fleet = |updating: usize, failed_ones: usize| -> Vec<(String, MemberState)> {
        let state = |n: usize| {
            if n < updating {
                UPDATING
            } else if n < updating + failed_ones {
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
    for (max_concurrent, updating, failures, expected) in rows {
        let settings = settings(json!({"maxConcurrent": max_concurrent, "stopAfterFailures": 0}));
        let all = fleet(updating, failures);
        let rows: Vec<Row<'_>> = all.iter().map(|(name, state)| (name.as_str(), "", *state)).collect();
        let plan = run(&settings, &rows, &none(), 5);
        assert_eq!(
            plan.may_update.len(),
            expected,
            "{max_concurrent}, {updating} updating, {failures} failed"
        );
        assert_eq!(plan.status.total, 10);
    }
}

#[test]
fn failures_stop_a_rollout_until_it_is_resumed() {
    use RolloutState::{Progressing, Stopped};
    let fleet = [("a", "", failed(3)), ("b", "", failed(5)), ("c", "", OUTDATED)];
    let resumed = |minute| RolloutRequests { resumed_at: Some(at(minute)), ..none() };
    let rows: [(u32, RolloutRequests, _, u32); 7] = [
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
    assert!(
        stopped.status.message.contains("because 2 releases have failed (`stopAfterFailures: 2`)"),
        "{}",
        stopped.status.message
    );
    let all_failed = [("a", "", failed(3))];
    assert_eq!(run(&tiers(&json!(5), 1), &all_failed, &none(), 9).status.state, Stopped, "nothing is left");
}

#[test]
fn unreachable_and_paused_clusters_neither_block_nor_count() {
    let settings = tiers(&json!(1), 1);
    let waiting = [MemberState::Unreachable, MemberState::Paused];
    for state in waiting {
        let fleet = [("a", "canary", state), ("b", "canary", updated(0)), ("c", "staging", OUTDATED)];
        let plan = run(&settings, &fleet, &none(), 20);
        assert_eq!(next(&plan), (vec!["c"], RolloutState::Progressing), "{state:?}");
        assert_eq!((plan.status.unavailable, plan.status.updated), (1, 1));
        let rest = [("a", "canary", state), ("b", "canary", updated(0)), ("c", "staging", updated(20))];
        let plan = run(&settings, &rest, &none(), 21);
        assert_eq!(plan.status.state, RolloutState::Done);
        assert_eq!(plan.status.message, "2 of 3 clusters are updated; 1 unreachable or paused");
    }
}

#[test]
fn a_cluster_whose_target_is_unknown_holds_its_wave_and_later_ones() {
    use RolloutState::{Paused, Progressing};
    let settings = tiers(&json!("100%"), 1);
    let unknown = MemberState::Unknown;
    let rows: [([Row<'_>; 3], &[&str]); 4] = [
        ([("a", "canary", unknown), ("b", "canary", OUTDATED), ("c", "staging", OUTDATED)], &["b"]),
        ([("a", "canary", unknown), ("b", "canary", updated(0)), ("c", "staging", OUTDATED)], &[]),
        ([("a", "canary", updated(0)), ("b", "canary", updated(0)), ("c", "staging", unknown)], &[]),
        ([("a", "canary", updated(0)), ("b", "staging", OUTDATED), ("c", "prod", unknown)], &["b"]),
    ];
    for (fleet, expected) in rows {
        let plan = run(&settings, &fleet, &none(), 60);
        assert_eq!(next(&plan), (expected.to_vec(), Progressing), "{fleet:?}");
        assert!(plan.status.message.contains("1 cannot be composed"), "{}", plan.status.message);
    }
    let all = [("a", "canary", unknown), ("b", "", unknown)];
    assert_eq!(run(&settings, &all, &none(), 60).status.state, Progressing, "it is not known to be done");
    let paused = RolloutRequests { paused: true, ..none() };
    assert_eq!(run(&settings, &all, &paused, 60).status.state, Paused);
}

#[test]
fn a_release_that_a_user_has_rolled_back_neither_blocks_nor_counts() {
    let settings = tiers(&json!(1), 1);
    let fleet =
        [("a", "canary", MemberState::RolledBack), ("b", "canary", updated(0)), ("c", "staging", OUTDATED)];
    let plan = run(&settings, &fleet, &none(), 20);
    assert_eq!(next(&plan), (vec!["c"], RolloutState::Progressing));
    assert_eq!((plan.status.failed, plan.status.updated), (0, 1));
    let rest = [("a", "canary", MemberState::RolledBack), ("b", "canary", updated(0))];
    assert_eq!(
        run(&settings, &rest, &none(), 20).status.message,
        "1 of 2 clusters are updated; 1 rolled back"
    );
    let abort = RolloutRequests { aborted: ["s1".to_owned()].into(), ..none() };
    let all = [("a", "canary", MemberState::RolledBack)];
    let plan = run(&settings, &all, &abort, 20);
    assert_eq!(plan.status.state, RolloutState::Aborted);
    assert!(plan.status.message.ends_with("run `chandler rollout resume`"), "{}", plan.status.message);
}

#[test]
fn many_targets_are_named_by_their_spec() {
    let named = |packages: usize| {
        let labels = BTreeMap::new();
        let all: Vec<_> = (0..packages)
            .map(|package| {
                let (spec, package) = ("s1".to_owned(), package.to_string());
                let target = RolloutTarget { spec, package, ..RolloutTarget::default() };
                (ClusterKey::new("fleet", target.package.clone()), target)
            })
            .collect();
        let member =
            |(cluster, target)| Member { cluster, labels: &labels, target: Some(target), state: OUTDATED };
        let members: Vec<_> = all.iter().map(|(cluster, target)| member((cluster, target))).collect();
        let named = plan(&tiers(&json!(1), 1), &members, &none(), at(0)).status.targets;
        let aborted = RolloutRequests { aborted: named.iter().cloned().collect(), ..none() };
        let state = plan(&tiers(&json!(1), 1), &members, &aborted, at(0)).status.state;
        assert_eq!(state, RolloutState::Aborted, "{named:?}");
        named
    };
    assert_eq!(named(MAX_TARGETS).len(), MAX_TARGETS);
    assert_eq!(named(MAX_TARGETS + 1), ["s1"]);
}

#[test]
fn releases_that_no_rollout_has_updated_take_no_slot() {
    let fleet = [("a", "", MemberState::Current), ("b", "", OUTDATED)];
    assert_eq!(next(&run(&tiers(&json!(1), 1), &fleet, &none(), 1)).0, ["b"]);
}

#[test]
fn users_pause_skip_and_abort() {
    let settings = tiers(&json!(1), 1);
    let fleet = [("a", "canary", OUTDATED), ("b", "staging", UPDATING), ("c", "prod", OUTDATED)];
    let paused = RolloutRequests { paused: true, ..none() };
    assert_eq!(next(&run(&settings, &fleet, &paused, 1)), (vec![], RolloutState::Paused));
    let done = [("a", "canary", updated(0))];
    assert_eq!(
        run(&settings, &done, &paused, 1).status.state,
        RolloutState::Done,
        "nothing is left to pause"
    );

    let skip = RolloutRequests { skip: ["a".to_owned()].into(), ..none() };
    let stuck = [("a", "canary", failed(1)), ("b", "staging", OUTDATED), ("c", "prod", OUTDATED)];
    let plan = run(&settings, &stuck, &skip, 2);
    assert_eq!(next(&plan), (vec!["b"], RolloutState::Progressing), "its failure does not count");
    assert_eq!((plan.status.skipped, plan.status.failed), (1, 0));
    let held = [("a", "canary", OUTDATED), ("b", "staging", OUTDATED)];
    let plan = run(&settings, &held, &skip, 2);
    assert_eq!(next(&plan).0, ["b"]);

    let target = run(&settings, &fleet, &none(), 1).status.targets;
    assert_eq!(target.len(), 1);
    let abort = RolloutRequests { aborted: target.into_iter().collect(), ..none() };
    let plan = run(&settings, &[("a", "canary", updated(0)), ("c", "prod", OUTDATED)], &abort, 60);
    assert_eq!(next(&plan), (vec![], RolloutState::Aborted));
    let other = RolloutRequests { aborted: ["another".to_owned()].into(), ..none() };
    assert_eq!(next(&run(&settings, &fleet, &other, 1)).0, [] as [&str; 0], "the only slot is taken");
    assert_eq!(run(&settings, &fleet, &other, 1).status.state, RolloutState::Progressing);
}

#[test]
fn a_plan_is_checked_again_when_a_release_has_to_be_ready() {
    let until = MemberState::Updating { until: Some(at(7)) };
    let fleet =
        [("a", "", until), ("b", "", MemberState::Updating { until: Some(at(9)) }), ("c", "", UPDATING)];
    assert_eq!(run(&tiers(&json!(3), 1), &fleet, &none(), 1).recheck_at, Some(at(7)));
}
