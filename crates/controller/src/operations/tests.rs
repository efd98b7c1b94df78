use tokio::sync::mpsc;

use super::*;

impl OperationOutcome for &'static str {
    fn is_unanswered(&self) -> bool {
        *self == "unreachable"
    }
}

fn operations() -> Operations<&'static str> {
    Operations::new(Limits { per_cluster: 1, overall: 1, ..Limits::default() }, Metrics::new())
}

fn outcome(operations: &Operations<&'static str>, id: &OperationId) -> Option<&'static str> {
    operations.deliver_outcome(id).map(|ended| ended.outcome)
}

fn blue() -> ClusterKey {
    ClusterKey::new("fleet", "blue")
}

#[tokio::test]
async fn a_cluster_that_answers_gets_all_its_slots_at_once() {
    let operations = Operations::new(Limits { per_cluster: 3, ..Limits::default() }, Metrics::new());
    let (started, mut starts) = mpsc::unbounded_channel();
    let answer = Arc::new(tokio::sync::Notify::new());
    for id in ["one", "two", "three"] {
        let (started, answer) = (started.clone(), answer.clone());
        let work = move |handle: Handle<&'static str>| {
            async move {
                started.send(id).unwrap();
                answer.notified().await;
                handle.step(StepReport { message: "applying".to_owned(), waiting: false });
                std::future::pending().await
            }
            .boxed()
        };
        operations.start(id.to_owned(), blue(), Operation::Remove, false, || {}, work);
    }
    assert_eq!(starts.recv().await, Some("one"));
    assert!(starts.try_recv().is_err(), "the cluster has not answered yet");
    answer.notify_one();
    assert_eq!((starts.recv().await, starts.recv().await), (Some("two"), Some("three")));
}

#[tokio::test]
async fn operations_run_one_at_a_time_and_outcomes_are_kept_until_they_are_acknowledged() {
    let operations = operations();
    let (notified, mut notifications) = mpsc::unbounded_channel();
    let at_work = Arc::new(Mutex::new(0));
    for (id, outcome) in [("a", "first"), ("b", "second")] {
        let (notified, at_work) = (notified.clone(), at_work.clone());
        let notify = move || notified.send(id).unwrap();
        let job = move |_| {
            async move {
                *at_work.lock() += 1;
                // Lets other tasks run.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(*at_work.lock(), 1, "both operations are running");
                *at_work.lock() -= 1;
                outcome
            }
            .boxed()
        };
        operations.start(id.to_owned(), blue(), Operation::Remove, false, notify, job);
    }
    drop(notified);
    assert_eq!((notifications.recv().await, notifications.recv().await), (Some("a"), Some("b")));
    let first = operations.deliver_outcome(&"a".to_owned()).unwrap();
    assert_eq!((first.outcome, first.is_repeated), ("first", false));
    assert!(operations.deliver_outcome(&"a".to_owned()).unwrap().is_repeated);
    operations.acknowledge(&"b".to_owned(), first.number);
    operations.acknowledge(&"a".to_owned(), first.number);
    assert_eq!(operations.deliver_outcome(&"a".to_owned()), None);
    assert!(
        operations.deliver_outcome(&"b".to_owned()).is_some(),
        "an outcome is kept until it is acknowledged"
    );
    assert_eq!(operations.running(&"b".to_owned()), None);
}

#[tokio::test]
async fn the_operation_of_a_deleted_object_is_canceled_and_its_outcome_dropped() {
    let operations = operations();
    let id = "gone".to_owned();
    operations.start(id.clone(), blue(), Operation::Remove, false, || {}, endless);
    operations.forget(&id);
    let (notified, mut notifications) = mpsc::unbounded_channel();
    let notify = move || notified.send(()).unwrap();
    let next = |_| async { "done" }.boxed();
    operations.start("next".to_owned(), blue(), Operation::Remove, false, notify, next);
    notifications.recv().await;
    assert_eq!((operations.running(&id), outcome(&operations, &id)), (None, None));
}

/// An operation that runs until it is canceled.
fn endless(handle: Handle<&'static str>) -> BoxFuture<'static, &'static str> {
    async move {
        handle.cancel.cancelled().await;
        "cancelled"
    }
    .boxed()
}

#[tokio::test]
async fn a_withdrawn_operation_never_runs_and_a_running_one_is_not_withdrawn() {
    let operations = operations();
    let [first, second] = ["first", "second"].map(str::to_owned);
    operations.start(first.clone(), blue(), Operation::Remove, false, || {}, endless);
    operations.start(second.clone(), blue(), Operation::Remove, false, || {}, |_| panic!("it was withdrawn"));
    assert_eq!(operations.running(&second).unwrap().phase, OperationPhase::Queued);
    operations.withdraw(&first);
    operations.withdraw(&second);
    assert_eq!(operations.running(&first).unwrap().phase, OperationPhase::Running);
    assert_eq!(operations.running(&second), None);
    operations.cancel(&first);
    operations.wait_idle().await;
    assert_eq!(outcome(&operations, &first), Some("cancelled"));
}

#[tokio::test]
async fn closed_operations_let_the_running_ones_end_and_start_no_more() {
    let operations = operations();
    let [running, queued, late] = ["running", "queued", "late"].map(str::to_owned);
    operations.start(running.clone(), blue(), Operation::Remove, false, || {}, endless);
    operations.start(queued.clone(), blue(), Operation::Remove, false, || {}, |_| panic!("it was queued"));
    operations.close();
    operations.start(late.clone(), blue(), Operation::Remove, false, || {}, |_| panic!("it came too late"));
    assert!(operations.wait_idle().now_or_never().is_none(), "an operation is running");
    assert_eq!((operations.running(&queued), operations.running(&late)), (None, None));
    operations.cancel_all();
    operations.wait_idle().await;
    assert_eq!(outcome(&operations, &running), Some("cancelled"));
}

#[tokio::test]
async fn an_operation_that_is_going_to_wait_starts_when_memory_is_no_longer_low() {
    let operations = operations();
    operations.set_low_on_memory(&[blue().namespace].into());
    let (notified, mut notifications) = mpsc::unbounded_channel();
    for (id, waits) in [("waits", true), ("does not", false)] {
        let notified = notified.clone();
        let notify = move || notified.send(id).unwrap();
        let job = |_| async { "done" }.boxed();
        operations.start(id.to_owned(), blue(), Operation::Remove, waits, notify, job);
    }
    assert_eq!(notifications.recv().await, Some("does not"));
    assert_eq!(operations.running(&"waits".to_owned()).unwrap().phase, OperationPhase::Queued);
    operations.set_low_on_memory(&BTreeSet::new());
    assert_eq!(notifications.recv().await, Some("waits"));
}

#[tokio::test]
async fn an_operation_that_waits_for_a_process_frees_its_slot() {
    let operations = operations();
    let (process, free) = tokio::sync::oneshot::channel::<()>();
    let blocked = |handle: Handle<_>| {
        async move {
            let _ = handle.without_slot(free).await;
            "done"
        }
        .boxed()
    };
    operations.start("blocked".to_owned(), blue(), Operation::Remove, false, || {}, blocked);
    let (notified, mut notifications) = mpsc::unbounded_channel();
    let others = [("same", blue()), ("other", ClusterKey::new("other", "blue"))];
    for (id, cluster) in others {
        let notified = notified.clone();
        let notify = move || notified.send(id).unwrap();
        operations
            .start(id.to_owned(), cluster, Operation::Remove, false, notify, |_| async { "done" }.boxed());
    }
    assert_eq!(notifications.recv().await, Some("other"));
    assert!(notifications.try_recv().is_err(), "its namespace has no process");
    process.send(()).unwrap();
    assert_eq!(notifications.recv().await, Some("same"));
    assert_eq!(outcome(&operations, &"blocked".to_owned()), Some("done"));
}

#[tokio::test]
async fn a_waiting_operation_frees_its_slot() {
    let operations = operations();
    let (notified, mut notifications) = mpsc::unbounded_channel();
    let waiting = |handle: Handle<_>| {
        async move {
            handle.step(StepReport { message: "waiting".to_owned(), waiting: true });
            handle.cancel.cancelled().await;
            "cancelled"
        }
        .boxed()
    };
    operations.start("slow".to_owned(), blue(), Operation::Remove, false, || {}, waiting);
    let quick = |_| async { "done" }.boxed();
    operations.start(
        "quick".to_owned(),
        blue(),
        Operation::Remove,
        false,
        move || notified.send(()).unwrap(),
        quick,
    );
    notifications.recv().await;
    assert_eq!(outcome(&operations, &"quick".to_owned()), Some("done"));
    assert_eq!(operations.running(&"slow".to_owned()).unwrap().progress.step, "waiting");
}
