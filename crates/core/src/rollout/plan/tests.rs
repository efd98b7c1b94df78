use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::rollout::{Interruption, RolloutTarget, settle};

/// A cluster: its name, the value of its label `tier`, and its state.
type Row<'a> = (&'a str, &'a str, MemberState);

const OUTDATED: MemberState = MemberState::Outdated;
const UPDATING: MemberState = MemberState::Updating { until: None };

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

fn updated(minute: i64) -> MemberState {
    MemberState::Updated { ready_since: at(minute), checked: Checked::Health }
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
    let mut members: Vec<_> = all
        .iter()
        .map(|(cluster, labels, state)| Member {
            cluster,
            labels,
            target: Some(&target),
            state: *state,
            active_at: Some(at(20)),
        })
        .collect();
    settle(settings, &mut members, requests, at(minute));
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
    let rows: [(_, i64, &[&str], _, &str); 10] = [
        (fleet(OUTDATED, OUTDATED, OUTDATED, OUTDATED, OUTDATED), 0, &["a", "b"], Progressing, "canary"),
        (fleet(UPDATING, UPDATING, OUTDATED, OUTDATED, OUTDATED), 1, &[], Progressing, "canary"),
        (fleet(updated(2), UPDATING, OUTDATED, OUTDATED, OUTDATED), 50, &[], Progressing, "canary"),
        (fleet(updated(2), updated(4), OUTDATED, OUTDATED, OUTDATED), 13, &[], Soaking, "canary"),
        // What has happened at the end of the time is not known yet.
        (fleet(updated(2), updated(4), OUTDATED, OUTDATED, OUTDATED), 14, &[], Soaking, "canary"),
        (fleet(updated(2), updated(4), OUTDATED, OUTDATED, OUTDATED), 15, &["c"], Progressing, "staging"),
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
    assert_eq!(soaking.recheck_at, at(14).checked_add(KNOWN_AFTER).ok());
    assert_eq!(
        soaking.status.message,
        "wave canary (1 of 3): 2 of 5 clusters are updated; the next wave waits until 1970-01-01T00:14:40Z"
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
        stopped.status.message.contains("because 2 releases have failed, on a, b (`stopAfterFailures: 2`)"),
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
fn a_cluster_that_was_paused_before_it_was_ready_holds_the_rollout() {
    let settings = tiers(&json!(1), 1);
    let fleet = [("a", "canary", MemberState::Held), ("b", "staging", OUTDATED)];
    let plan = run(&settings, &fleet, &none(), 999);
    assert_eq!(next(&plan), (vec![], RolloutState::Progressing));
    assert!(
        plan.status.message.contains("1 paused or suspended before it was ready"),
        "{}",
        plan.status.message
    );
    let skip = RolloutRequests { skip: ["a".to_owned()].into(), ..none() };
    assert_eq!(next(&run(&settings, &fleet, &skip, 999)).0, ["b"]);
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
fn a_release_that_a_user_has_rolled_back_stops_the_rollout_of_others() {
    use RolloutState::{Progressing, Stopped};
    let settings = tiers(&json!(1), 1);
    let rolled_back = |in_time| MemberState::RolledBack { at: at(10), in_time };
    let fleet = |in_time, staging| {
        [("a", "canary", rolled_back(in_time)), ("b", "staging", staging), ("c", "prod", OUTDATED)]
    };
    let rows: [(&str, _, &[&str], _); 4] = [
        ("before it was ready", fleet(true, OUTDATED), &[], Stopped),
        ("before it was ready, later", fleet(true, updated(9)), &[], Stopped),
        ("in its wave", fleet(false, OUTDATED), &[], Stopped),
        ("later", fleet(false, updated(9)), &["c"], Progressing),
    ];
    for (what, fleet, expected, state) in rows {
        assert_eq!(next(&run(&settings, &fleet, &none(), 20)), (expected.to_vec(), state), "{what}");
    }
    let resumed = RolloutRequests { resumed_at: Some(at(11)), ..none() };
    assert_eq!(next(&run(&settings, &fleet(true, OUTDATED), &resumed, 20)), (vec!["b"], Progressing));
    let rest = [("a", "canary", rolled_back(true)), ("b", "canary", updated(0))];
    assert_eq!(
        run(&settings, &rest, &none(), 20).status.message,
        "1 of 2 clusters are updated; 1 rolled back"
    );
    let abort = RolloutRequests { aborted: ["s1".to_owned()].into(), ..none() };
    let all = [("a", "canary", rolled_back(true)), ("b", "canary", OUTDATED)];
    let plan = run(&settings, &all, &abort, 20);
    assert_eq!((plan.status.failed, plan.status.state), (0, RolloutState::Aborted));
    let all = [("a", "canary", rolled_back(true))];
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
        let member = |(cluster, target)| Member {
            cluster,
            labels: &labels,
            target: Some(target),
            state: OUTDATED,
            active_at: None,
        };
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

#[test]
fn what_happens_after_a_release_was_ready_counts_until_its_wave_has_ended() {
    use RolloutState::{Done, Progressing, Stopped};
    let settings = tiers(&json!(1), 1);
    let unhealthy = |in_time| MemberState::Unhealthy { at: at(30), in_time };
    let interrupted = |lost: Option<i64>, in_time| {
        MemberState::Interrupted(Interruption { since: at(30), lost: lost.map(at), until: at(45), in_time })
    };
    let (lost, changed) = (|in_time| interrupted(Some(30), in_time), interrupted(None, false));
    let rows: [(&str, _, _, i64, &[&str], _); 15] = [
        ("soaking", unhealthy(false), OUTDATED, 31, &[], Stopped),
        ("in time", unhealthy(true), updated(29), 31, &[], Stopped),
        ("the next wave has begun", unhealthy(false), UPDATING, 31, &[], Progressing),
        ("the next wave has begun, in time", unhealthy(true), UPDATING, 31, &[], Stopped),
        ("the next wave has ended", unhealthy(false), updated(29), 31, &["c"], Progressing),
        ("soaking", lost(false), OUTDATED, 31, &[], Progressing),
        ("soaking for too long", lost(false), OUTDATED, 45, &[], Stopped),
        ("the next wave has begun", lost(false), UPDATING, 31, &[], Progressing),
        ("the next wave has ended", lost(false), updated(29), 31, &["c"], Progressing),
        ("the next wave has ended, in time", lost(true), updated(29), 31, &[], Progressing),
        ("for too long, in time", lost(true), updated(29), 45, &[], Stopped),
        ("changed while soaking", changed, OUTDATED, 31, &[], Progressing),
        ("changed later", changed, updated(29), 31, &["c"], Progressing),
        ("back", updated(31), OUTDATED, 41, &[], RolloutState::Soaking),
        ("back for the whole time", updated(31), OUTDATED, 42, &["b"], Progressing),
    ];
    for (what, first, second, minute, expected, state) in rows {
        let fleet = [("a", "canary", first), ("b", "staging", second), ("c", "prod", OUTDATED)];
        let plan = run(&settings, &fleet, &none(), minute);
        assert_eq!(next(&plan), (expected.to_vec(), state), "{what}: {first:?}");
    }
    for first in [unhealthy(false), lost(false)] {
        let fleet = [("a", "canary", first), ("b", "staging", updated(2))];
        assert_eq!(run(&settings, &fleet, &none(), 60).status.state, Done, "{first:?}");
    }
    // A rollout that has ended does not begin again because a cluster is back that waits.
    let late = |state| match state {
        MemberState::Unhealthy { .. } => MemberState::Unhealthy { at: at(900), in_time: false },
        _ => MemberState::Interrupted(Interruption {
            since: at(900),
            lost: Some(at(900)),
            until: at(915),
            in_time: false,
        }),
    };
    for first in [late(unhealthy(false)), late(lost(false))] {
        let fleet = [("a", "canary", first), ("b", "canary", OUTDATED)];
        assert_eq!(next(&run(&settings, &fleet, &none(), 999)), (vec!["b"], Progressing), "{first:?}");
        let paused = RolloutRequests { paused: true, ..none() };
        assert_eq!(run(&settings, &fleet, &paused, 999).status.state, Stopped, "{first:?}");
        let skip = RolloutRequests { skip: ["b".to_owned()].into(), paused: true, ..none() };
        assert_eq!(run(&settings, &fleet, &skip, 999).status.state, Done, "{first:?}");
    }
    let resumed = RolloutRequests { resumed_at: Some(at(31)), ..none() };
    let fleet = [("a", "canary", unhealthy(false)), ("b", "staging", OUTDATED)];
    assert_eq!(next(&run(&settings, &fleet, &resumed, 32)), (vec!["b"], Progressing));
}

#[test]
fn the_message_says_what_was_not_checked() {
    let unchecked = MemberState::Updated { ready_since: at(1), checked: Checked::ResultOnly };
    let fleet = [("a", "", unchecked), ("b", "", updated(1))];
    assert_eq!(
        run(&tiers(&json!(1), 1), &fleet, &none(), 2).status.message,
        "2 of 2 clusters are updated; only the result of the update was checked for 1, whose health is turned off or unknown"
    );
}
