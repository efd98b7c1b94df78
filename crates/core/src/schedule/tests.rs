use super::*;

const BLUE: &str = "blue";

fn cluster(name: &str) -> ClusterKey {
    ClusterKey::new("fleet", name)
}

fn limits(per_cluster: usize, overall: usize) -> Limits {
    Limits { per_cluster, overall, ..Limits::default() }
}

/// A schedule whose clusters have answered an operation.
fn schedule(limits: Limits) -> Schedule<u32> {
    let mut schedule = Schedule::new(limits);
    schedule.answering = ["blue", "green", "red"].map(cluster).into();
    schedule
}

fn started(schedule: &mut Schedule<u32>) -> Vec<u32> {
    std::iter::from_fn(|| schedule.start_next()).collect()
}

#[test]
fn clusters_take_turns() {
    let mut schedule = schedule(limits(4, 16));
    for (id, name) in [(1, BLUE), (2, BLUE), (3, BLUE), (4, "green"), (5, "red")] {
        schedule.submit(id, cluster(name), false);
    }
    assert_eq!(started(&mut schedule), [1, 4, 5, 2, 3]);
}

fn tenant(namespace: &str, number: u32) -> ClusterKey {
    ClusterKey::new(namespace, format!("c{number}"))
}

#[test]
fn the_namespace_that_occupies_the_fewest_slots_is_next() {
    let mut schedule = Schedule::new(limits(4, 4));
    for id in 0..10 {
        schedule.submit(id, tenant("many", id), false);
    }
    schedule.submit(100, tenant("few", 0), false);
    schedule.submit(101, tenant("few", 1), false);
    assert_eq!(started(&mut schedule), [0, 100, 1, 101], "both have two slots");
    schedule.release(&100);
    assert_eq!(started(&mut schedule), [2]);
}

#[test]
fn namespaces_take_turns_whatever_their_number_of_clusters() {
    let mut schedule = Schedule::new(limits(4, 1));
    for id in 0..100 {
        schedule.submit(id, tenant("many", id), false);
    }
    for id in 100..103 {
        schedule.submit(id, tenant("few", 0), false);
    }
    let order: Vec<_> = (0..6)
        .map(|_| {
            let id = schedule.start_next().unwrap();
            schedule.release(&id);
            id
        })
        .collect();
    assert_eq!(order, [0, 100, 1, 101, 2, 102]);
}

#[test]
fn slow_operations_of_one_namespace_do_not_occupy_the_reserve() {
    let mut schedule = Schedule::new(limits(4, 16));
    for id in 0..40 {
        schedule.submit(id, tenant("slow", id), false);
    }
    assert_eq!(started(&mut schedule).len(), 16, "it gets all slots while no other namespace needs them");
    for (namespace, first) in [("a", 100), ("b", 200), ("c", 300)] {
        for id in first..first + 5 {
            schedule.submit(id, tenant(namespace, id), false);
        }
    }
    assert_eq!(started(&mut schedule), [100, 200, 300, 101], "the reserve is shared");
    schedule.release(&0);
    assert_eq!(started(&mut schedule), [201], "the reserve is free again before the limit applies");
}

#[test]
fn a_namespace_can_be_limited() {
    let mut schedule = Schedule::new(Limits { per_namespace: Some(2), ..limits(4, 16) });
    for id in 0..4 {
        schedule.submit(id, tenant("one", id), false);
    }
    schedule.submit(100, tenant("two", 0), false);
    assert_eq!(started(&mut schedule), [0, 100, 1]);
    assert!(schedule.is_at_namespace_limit("one") && !schedule.is_at_namespace_limit("two"));
    schedule.release(&0);
    assert_eq!(started(&mut schedule), [2]);
}

#[test]
fn operations_of_one_namespace_that_wait_do_not_exclude_others() {
    for low in [BTreeSet::new(), BTreeSet::from(["slow".to_owned()])] {
        let mut schedule = Schedule::new(Limits { waiting_clusters: 2, ..limits(4, 16) });
        for id in 0..3 {
            schedule.submit(id, tenant("slow", id), true);
        }
        for id in [0, 1] {
            assert_eq!(schedule.start_next(), Some(id));
            schedule.wait(&id);
        }
        assert_eq!(schedule.start_next(), None);
        schedule.set_low_on_memory(low.clone());
        schedule.submit(100, tenant("other", 0), true);
        schedule.submit(101, tenant("other", 1), true);
        assert_eq!(schedule.start_next(), Some(100), "{low:?}");
        schedule.wait(&100);
        assert_eq!(schedule.start_next(), None, "{low:?}");
    }
}

/// A schedule with so many clusters that each gets several operations per turn: 0 to 19 on the first one, 100 to 119 on the
/// second one, and so on.
fn schedule_of_many_clusters() -> Schedule<u32> {
    let mut schedule = Schedule::new(limits(4, 16));
    for number in 0..=u32::try_from(MANY_CLUSTERS).unwrap() {
        let name = format!("cluster-{number}");
        schedule.answering.insert(cluster(&name));
        for operation in 0..20 {
            schedule.submit(number * 100 + operation, cluster(&name), false);
        }
    }
    schedule
}

#[test]
fn many_clusters_get_several_operations_per_turn() {
    let mut schedule = schedule_of_many_clusters();
    let mut next = || {
        let id = schedule.start_next().unwrap();
        schedule.release(&id);
        id
    };
    let first: Vec<_> = (0..17).map(|_| next()).collect();
    assert_eq!(first, (0..16).chain([100]).collect::<Vec<_>>());
}

#[test]
fn with_many_clusters_a_cluster_does_not_occupy_more_than_two_slots() {
    let mut schedule = schedule_of_many_clusters();
    assert_eq!(started(&mut schedule)[..4], [0, 1, 100, 101]);
}

#[test]
fn the_turn_of_a_cluster_ends_when_it_does_not_answer() {
    let mut schedule = schedule_of_many_clusters();
    let id = schedule.start_next().unwrap();
    schedule.answered(&id, false);
    schedule.release(&id);
    assert_eq!(schedule.start_next(), Some(100));
}

#[test]
fn limits_apply_and_a_busy_cluster_does_not_block_another() {
    let mut schedule = schedule(limits(2, 3));
    for id in 1..=4 {
        schedule.submit(id, cluster(BLUE), false);
    }
    schedule.submit(5, cluster("green"), false);
    schedule.submit(6, cluster("green"), false);
    assert_eq!(started(&mut schedule), [1, 5, 2]);
    schedule.release(&5);
    assert_eq!(started(&mut schedule), [6]);
}

#[test]
fn a_waiting_operation_frees_its_slot() {
    let mut schedule = schedule(limits(1, 1));
    schedule.submit(1, cluster(BLUE), true);
    schedule.submit(2, cluster(BLUE), true);
    assert_eq!(started(&mut schedule), [1]);
    schedule.wait(&1);
    assert_eq!(started(&mut schedule), [2]);
    schedule.release(&1);
    assert_eq!(schedule.active(), 1, "its slot is not freed twice");
}

#[test]
fn beyond_the_limit_of_clusters_that_wait_operations_start_that_do_not_wait_or_are_on_such_a_cluster() {
    let mut schedule = schedule(Limits { waiting_clusters: 1, ..limits(4, 16) });
    schedule.submit(1, cluster(BLUE), true);
    assert_eq!(schedule.start_next(), Some(1));
    schedule.wait(&1);
    for (id, name, waits) in [(2, "green", true), (3, "green", false), (4, BLUE, true)] {
        schedule.submit(id, cluster(name), waits);
    }
    assert_eq!(started(&mut schedule), [3, 4]);
    schedule.release(&1);
    schedule.release(&4);
    assert_eq!(started(&mut schedule), [2]);
}

#[test]
fn while_memory_is_low_operations_start_that_do_not_wait_or_are_on_a_cluster_that_waits() {
    let mut schedule = schedule(limits(4, 16));
    schedule.submit(1, cluster(BLUE), true);
    assert_eq!(schedule.start_next(), Some(1));
    schedule.wait(&1);
    assert!(schedule.set_low_on_memory(["fleet".to_owned()].into()));
    assert!(!schedule.set_low_on_memory(["fleet".to_owned()].into()));
    schedule.submit(5, ClusterKey::new("other", "red"), true);
    for (id, name, waits) in [(2, "green", true), (3, "green", false), (4, BLUE, true)] {
        schedule.submit(id, cluster(name), waits);
    }
    assert_eq!(started(&mut schedule), [5, 3, 4], "another namespace has its own memory");
    assert!(schedule.set_low_on_memory(BTreeSet::new()));
    assert_eq!(started(&mut schedule), [2]);
}

#[test]
fn a_cluster_that_does_not_answer_gets_one_slot() {
    let mut schedule = Schedule::new(limits(4, 16));
    for id in 1..=4 {
        schedule.submit(id, cluster(BLUE), false);
    }
    assert_eq!(started(&mut schedule), [1], "it has not answered yet");
    assert!(schedule.answered(&1, true));
    assert!(!schedule.answered(&1, true));
    assert_eq!(started(&mut schedule), [2, 3, 4]);
    schedule.submit(5, cluster(BLUE), false);
    schedule.answered(&2, false);
    for id in 1..=3 {
        schedule.release(&id);
    }
    assert_eq!(started(&mut schedule), [] as [u32; 0], "one operation is still running");
    schedule.release(&4);
    assert_eq!(started(&mut schedule), [5]);
}

#[test]
fn an_operation_that_waits_for_a_process_keeps_no_other_namespace_waiting() {
    let mut schedule = schedule(limits(4, 2));
    let green = ClusterKey::new("other", "green");
    for id in 1..=3 {
        schedule.submit(id, cluster(BLUE), false);
    }
    schedule.submit(4, green.clone(), false);
    assert_eq!(started(&mut schedule), [1, 4]);
    schedule.suspend(&1);
    schedule.submit(5, green, false);
    assert_eq!(started(&mut schedule), [] as [u32; 0], "the other cluster has not answered");
    schedule.answered(&4, true);
    assert_eq!(started(&mut schedule), [5], "the namespace that waits starts nothing");
    schedule.resume(&1);
    assert_eq!((schedule.active(), started(&mut schedule)), (3, vec![]));
    for id in [1, 4, 5] {
        schedule.release(&id);
    }
    assert_eq!(started(&mut schedule), [2, 3]);
    schedule.suspend(&2);
    schedule.release(&2);
    schedule.resume(&2);
    assert_eq!(schedule.active(), 1, "it has ended");
}

#[test]
fn a_queued_operation_can_be_removed() {
    let mut schedule = schedule(Limits::default());
    schedule.submit(1, cluster(BLUE), false);
    schedule.release(&1);
    assert_eq!((schedule.queued(), started(&mut schedule)), (0, vec![]));
}
