use chandler_core::inventory::ReleaseStatus;
use chandler_telemetry::RequestCounter;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::{
    answers::Answers,
    api_server::{ApiServer, LONG, client_options},
    reach::{self, TargetClient},
};

const SECRETS: &str = "/api/v1/secrets";

fn records() -> Arc<ReleaseRecords> {
    let text = str::to_owned;
    Arc::new(ReleaseRecords {
        api_version: text("v1"),
        kind: text("Secret"),
        plural: text("secrets"),
        label_selector: text("owner=helm"),
        object_name: text("sh.helm.release.v1.{release}.v{revision}"),
        release_label: text("name"),
        revision_label: text("version"),
        status_label: text("status"),
        time_labels: Vec::new(),
        object_selector: String::new(),
    })
}

fn record(name: &str, revision: u32, status: &str) -> Value {
    let labels = json!({"owner": "helm", "name": name, "version": revision.to_string(), "status": status});
    json!({"metadata": {
        "name": format!("sh.helm.release.v1.{name}.v{revision}"), "namespace": "shop", "resourceVersion": "4",
        "labels": labels, "managedFields": [{"manager": "helm"}],
    }})
}

async fn open(server: &ApiServer) -> Result<InventoryWatch, Failure> {
    let options = client_options(&RequestCounter::default());
    let TargetClient { client, probe, .. } = reach::client(&server.target(), &options).unwrap();
    InventoryWatch::open(client, probe, records(), PendingRecords::default(), Answers::default()).await
}

/// Follows a watch, and returns how it has ended after this event.
async fn ended_by(change: &str, object: &Value) -> Failure {
    let server = ApiServer::start(&["http/1.1"]).await;
    server.list(SECRETS, "5", &[]);
    let watch = open(&server).await.unwrap();
    server.send(SECRETS, change, object).await;
    match tokio::time::timeout(LONG, watch.run(&Notify::new(), &Semaphore::new(1), |_, _| {})).await.unwrap()
    {
        WatchEnd::Broken { failure, .. } => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn records_are_listed_and_watched() {
    let server = ApiServer::start(&["http/1.1"]).await;
    server.list(SECRETS, "5", &[record("web", 1, "deployed"), json!({"metadata": {"name": "other"}})]);
    let watch = open(&server).await.unwrap();
    let web = ReleaseId::new("shop", "web");
    assert_eq!((watch.version(), watch.inventory().count()), ("5", 1));
    let (sender, mut published) = mpsc::unbounded_channel();
    let list_again = Arc::new(Notify::new());
    let ending = list_again.clone();
    let run = tokio::spawn(async move {
        let publish = |inventory, release| sender.send((inventory, release)).unwrap();
        watch.run(&ending, &Semaphore::new(1), publish).await
    });
    for (change, object, newest) in [
        ("MODIFIED", record("web", 1, "superseded"), Some((1, ReleaseStatus::Superseded))),
        ("ADDED", record("web", 2, "deployed"), Some((2, ReleaseStatus::Deployed))),
        ("DELETED", record("web", 2, "deployed"), Some((1, ReleaseStatus::Superseded))),
        ("DELETED", record("web", 1, "superseded"), None),
    ] {
        server.send(SECRETS, "BOOKMARK", &json!({"metadata": {"resourceVersion": "9"}})).await;
        server.send(SECRETS, change, &object).await;
        let (inventory, release) = tokio::time::timeout(LONG, published.recv()).await.unwrap().unwrap();
        assert_eq!(release, web);
        assert_eq!(inventory.newest(&web).map(|seen| (seen.revision, seen.status)), newest, "{change}");
    }
    // A watch that ends is continued.
    server.end_watch(SECRETS).await;
    let requests = server.requests(SECRETS, 3).await;
    assert!(requests[2].is_watch() && requests[2].query.contains("resourceVersion=4"), "{requests:?}");
    assert!(requests.iter().all(|one| one.accept.contains("PartialObjectMetadata")), "{requests:?}");
    list_again.notify_one();
    assert!(matches!(run.await.unwrap(), WatchEnd::ListAgain));
}

#[tokio::test]
async fn a_watch_that_ends_waits_for_its_turn_to_connect_but_not_for_long() {
    let server = ApiServer::start(&["http/1.1"]).await;
    server.list(SECRETS, "5", &[]);
    let watch = open(&server).await.unwrap();
    let connects = Arc::new(Semaphore::new(1));
    let others = connects.clone().acquire_owned().await.unwrap();
    let turns = connects.clone();
    tokio::spawn(async move { watch.run(&Notify::new(), &turns, |_, _| {}).await });

    server.end_watch(SECRETS).await;
    tokio::time::sleep(2 * CONTINUE_PAUSE).await;
    assert_eq!(server.requests(SECRETS, 2).await.len(), 2, "others connect");
    drop(others);
    server.requests(SECRETS, 3).await;

    let _others = connects.acquire().await.unwrap();
    server.end_watch(SECRETS).await;
    server.requests(SECRETS, 4).await;
}

#[tokio::test]
async fn lists_that_take_too_much_memory_or_are_no_lists_are_refused_without_their_content() {
    let long = "canary".repeat(10_000);
    let rows = [
        ("many objects", json!({"metadata": {}, "items": vec![json!({}); 100_000]})),
        ("many numbers", json!({"metadata": {}, "items": vec![0; 1_000_000]})),
        ("a long version", json!({"metadata": {"resourceVersion": long}, "items": []})),
        ("a long token", json!({"metadata": {"continue": long}, "items": []})),
        (
            "a long version of a record",
            json!({"metadata": {}, "items": [{"metadata": {"resourceVersion": long}}]}),
        ),
        ("a text", json!("canary")),
        ("another object", json!({"metadata": {}, "items": "canary"})),
        ("texts", json!({"metadata": {}, "items": ["canary"]})),
    ];
    for (name, answer) in rows {
        let server = ApiServer::start(&["http/1.1"]).await;
        server.answer(SECRETS, answer);
        let failure = open(&server).await.err().unwrap();
        assert_eq!(failure, WatchError::Unreadable.failure(), "{name}");
        assert!(!failure.message.contains("canary"), "{failure}");
    }
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let server = ApiServer::start(&["http/1.1"]).await;
    server.answer(SECRETS, json!({"metadata": {"continue": "next"}, "items": []}));
    let failure = open(&server).await.err().unwrap();
    assert_eq!(failure, WatchError::Unreadable.failure());
    assert_eq!(server.requests(SECRETS, 0).await.len(), MAX_PAGES);
}

#[tokio::test]
async fn of_an_error_event_only_the_message_of_a_status_is_reported() {
    let status =
        |message: &str| json!({"kind": "Status", "status": "Failure", "code": 500, "message": message});
    let failure = ended_by("ERROR", &status(&"x".repeat(100_000))).await;
    assert!(failure.message.starts_with("the workload cluster answered 500: xxx"), "{failure}");
    assert!(failure.message.len() < 2_000, "{} bytes", failure.message.len());
    for other in
        [json!({"message": "canary"}), json!({"status": "Success", "message": "canary"}), json!("canary")]
    {
        assert_eq!(ended_by("ERROR", &other).await, WatchError::Unreadable.failure());
    }
    let many = json!({"metadata": {"labels": "canary", "managedFields": vec![json!({}); 10]}});
    assert_eq!(ended_by("ADDED", &many).await, WatchError::Unreadable.failure());
}

#[test]
fn names_are_limited_and_objects_with_many_values_are_no_records() {
    let read = |object: &Value| {
        let object = serde_json::value::to_raw_value(object).unwrap();
        Record::parse(&object).unwrap().revision(&records()).is_some()
    };
    assert!(read(&record(&"n".repeat(63), 1, "deployed")));
    assert!(!read(&record(&"n".repeat(64), 1, "deployed")));
    let mut large = record("web", 1, "deployed");
    large["metadata"]["managedFields"] = json!(vec![json!({}); 100_000]);
    assert!(!read(&large));
}

#[tokio::test]
async fn a_cluster_with_too_many_records_is_refused() {
    let server = ApiServer::start(&["http/1.1"]).await;
    server.list(SECRETS, "5", &[]);
    let mut watch = open(&server).await.unwrap();
    assert!(watch.keep(MAX_RECORDS).is_ok());
    let failure = watch.keep(MAX_RECORDS + 1).unwrap_err().failure();
    assert_eq!(failure.category, Category::Rejected);
    assert!(failure.message.contains("more than 50000 records"), "{failure}");
}

#[test]
fn events_for_many_records_are_taken_in_slowly() {
    assert_eq!(pause_after_event(MANY_RECORDS - 1), Duration::ZERO);
    assert_eq!(pause_after_event(MANY_RECORDS), Duration::from_millis(10));
    assert_eq!(pause_after_event(MAX_RECORDS), Duration::from_millis(500));
}
