mod api_server;
mod sessions;

use std::time::Duration;

use chandler_core::{
    addresses::AddressPolicy,
    health::ObjectState,
    target::{TargetProxy, TargetTls},
};
use chandler_sandbox::connect_proxy::ConnectProxy;
use chandler_telemetry::RequestCounter;
use serde_json::{Value, json};

use self::api_server::{ApiServer, LONG};
use super::*;
use crate::{
    WATCH_SILENCE,
    reach::{self, ClientOptions},
    response::ResponseBudgets,
    turn::TURN,
};

const H2: &[&str] = &["h2", "http/1.1"];
const HTTP1: &[&str] = &["http/1.1"];
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const WIDGETS: &str = "/apis/example.dev/v1/widgetry";
const SELECTOR: &str = "app.kubernetes.io/managed-by=Helm";

/// The watches of a server.
struct Watched {
    health: HealthWatches,
    target: Arc<Target>,
    requests: RequestCounter,
    changes: mpsc::UnboundedReceiver<InventoryChange>,
    /// Has one permit, as that of the lists.
    connects: Arc<Semaphore>,
    _run: AbortOnDropHandle<()>,
}

impl Watched {
    fn start(server: &ApiServer, proxy: Option<TargetProxy>) -> Self {
        let target = Arc::new(Target {
            cluster: ClusterKey::new("fleet", "blue"),
            server: server.url.clone(),
            tls: TargetTls { ca_pem: Some(server.ca.as_bytes().to_vec()), ..TargetTls::default() },
            auth: None,
            proxy,
            request_timeout: Duration::from_secs(10),
            boundary: chandler_core::tenancy::Boundary::default(),
        });
        let (sender, changes) = mpsc::unbounded_channel();
        let [connects, lists] = [Semaphore::new(1), Semaphore::new(1)].map(Arc::new);
        let health = HealthWatches::new(target.cluster.clone(), sender, connects.clone(), lists);
        let run = AbortOnDropHandle::new(tokio::spawn(health.clone().run()));
        let requests = RequestCounter::default();
        let watched = Self { health, target, requests, changes, connects, _run: run };
        watched.connect();
        watched
    }

    /// Tells the watches that the cluster is available.
    fn connect(&self) {
        let addresses =
            AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], ..AddressPolicy::default() };
        let options = ClientOptions {
            requests: self.requests.clone(),
            watch_silence: WATCH_SILENCE,
            addresses: Arc::new(addresses),
            budgets: ResponseBudgets::default(),
        };
        let client = reach::client(&self.target, &options).unwrap().shared;
        // As after a reconnect: an equal target, but not the same.
        let is_managed = Arc::new(|release: &ReleaseId| release.name == "managed");
        self.health.start(Arc::new(Target::clone(&self.target)), client, SELECTOR, is_managed);
    }

    /// Watches a healthy Deployment, which is known.
    async fn with_deployment() -> (ApiServer, Self) {
        let server = ApiServer::start(H2).await;
        server.list(DEPLOYMENTS, "5", &[deployment("4", 1)]);
        let mut watched = Self::start(&server, None);
        watched.use_kinds(&[("apps/v1", "Deployment")]);
        watched.notified().await;
        (server, watched)
    }

    fn use_kinds(&self, kinds: &[(&str, &str)]) {
        let kinds = kinds.iter().map(|(version, kind)| ((*version).to_owned(), (*kind).to_owned()));
        self.health.set_kinds(&release(), kinds.collect());
    }

    /// Waits for a notification.
    async fn notified(&mut self) {
        let change = tokio::time::timeout(LONG, self.changes.recv()).await.expect("a notification").unwrap();
        assert_eq!(change.release, Some(release()));
    }

    fn observation(&self, api_version: &str, kind: &str) -> Observation {
        self.health.observation(&record(api_version, kind))
    }

    /// Returns the state of the Deployment, or `None` if it is not known to exist.
    fn deployment(&self) -> Option<ObjectState> {
        match self.observation("apps/v1", "Deployment") {
            Observation::Seen { state, .. } => Some(state),
            Observation::NotListed | Observation::Missing { .. } => None,
        }
    }
}

fn release() -> ReleaseId {
    ReleaseId::new("shop", "web")
}

fn record(api_version: &str, kind: &str) -> ObjectRecord {
    ObjectRecord {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    }
}

/// The object `web`, as a list contains it.
fn object(version: &str, status: &Value) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "resourceVersion": version, "generation": 1,
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
            "managedFields": [{"manager": "helm"}],
        },
        "spec": {"replicas": 1},
        "status": status,
    })
}

fn deployment(version: &str, available: u32) -> Value {
    let status = json!({
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": available,
        "availableReplicas": available,
        "conditions": [{"type": "Available", "status": if available > 0 { "True" } else { "False" }}],
    });
    object(version, &status)
}

#[tokio::test]
async fn objects_are_listed_and_watched() {
    let server = ApiServer::start(H2).await;
    server.list(DEPLOYMENTS, "5", &[deployment("4", 1)]);
    let mut watched = Watched::start(&server, None);
    assert_eq!(watched.observation("apps/v1", "Deployment"), Observation::NotListed);
    watched.use_kinds(&[("apps/v1", "Deployment")]);
    watched.notified().await;
    assert_eq!(watched.deployment(), Some(ObjectState::Healthy));

    server.send(DEPLOYMENTS, "MODIFIED", &deployment("6", 0)).await;
    watched.notified().await;
    assert!(matches!(watched.deployment(), Some(ObjectState::Progressing(_))), "{:?}", watched.deployment());

    let requests = server.requests(DEPLOYMENTS, 2).await;
    let selector = "labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm";
    assert!(requests.iter().all(|request| request.query.contains(selector)), "{requests:?}");
    assert!(requests[0].query.contains("limit=500") && !requests[0].is_watch(), "{requests:?}");
    assert!(requests[1].query.contains("resourceVersion=5") && requests[1].is_watch(), "{requests:?}");
    assert!(requests[1].query.contains("allowWatchBookmarks=true"), "{requests:?}");
    let counted = watched.requests.counts();
    assert!(counted.iter().any(|one| one.verb == "watch" && one.count == 1), "{counted:?}");

    watched.health.forget(&release());
    server.until_watched(DEPLOYMENTS, false).await;
}

#[tokio::test]
async fn a_deleted_object_is_missing_once_a_request_confirms_it() {
    let (server, mut watched) = Watched::with_deployment().await;
    server.send(DEPLOYMENTS, "DELETED", &deployment("6", 1)).await;
    watched.notified().await;
    assert_eq!(watched.observation("apps/v1", "Deployment"), Observation::NotListed);
    watched.notified().await;
    let observation = watched.observation("apps/v1", "Deployment");
    assert!(matches!(observation, Observation::Missing { .. }), "{observation:?}");
    let path = "/apis/apps/v1/namespaces/shop/deployments/web";
    assert!(server.requests(path, 1).await[0].accept.contains("as=PartialObjectMetadata;"));

    // An object whose label was removed still exists.
    server.send(DEPLOYMENTS, "ADDED", &deployment("7", 1)).await;
    watched.notified().await;
    server.answer(path, deployment("8", 1));
    server.send(DEPLOYMENTS, "DELETED", &deployment("8", 1)).await;
    watched.notified().await;
    assert_eq!(watched.observation("apps/v1", "Deployment"), Observation::NotListed);
    watched.notified().await;
    assert_eq!(watched.observation("apps/v1", "Deployment"), Observation::NotListed);
    assert_eq!(server.requests(path, 2).await.len(), 2, "it is not read again and again");
}

#[tokio::test]
async fn objects_are_listed_again_if_events_are_lost() {
    let (server, mut watched) = Watched::with_deployment().await;
    server.until_watched(DEPLOYMENTS, true).await;

    // Once as an event, and once as the answer to the request.
    server.list(DEPLOYMENTS, "20", &[deployment("19", 0)]);
    let expired = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
    server.send(DEPLOYMENTS, "ERROR", &expired).await;
    watched.notified().await;
    assert!(matches!(watched.deployment(), Some(ObjectState::Progressing(_))));
    server.requests(DEPLOYMENTS, 4).await;

    server.list(DEPLOYMENTS, "40", &[deployment("39", 1)]);
    server.refuse_watch(DEPLOYMENTS, 410);
    server.end_watch(DEPLOYMENTS).await;
    watched.notified().await;
    assert_eq!(watched.deployment(), Some(ObjectState::Healthy));
    let requests = server.requests(DEPLOYMENTS, 7).await;
    let versions: Vec<_> =
        requests.iter().map(|request| (request.is_watch(), request.query.contains("=40"))).collect();
    assert_eq!(versions[4..], [(true, false), (false, false), (true, true)], "{requests:?}");
}

#[tokio::test]
async fn a_watch_that_ends_is_continued_and_changes_nothing() {
    let (server, mut watched) = Watched::with_deployment().await;
    let bookmark = json!({"kind": "Deployment", "metadata": {"resourceVersion": "17"}});
    server.send(DEPLOYMENTS, "BOOKMARK", &bookmark).await;
    server.refuse_watch(DEPLOYMENTS, 503);
    server.end_watch(DEPLOYMENTS).await;
    server.until_watched(DEPLOYMENTS, true).await;
    let requests = server.requests(DEPLOYMENTS, 4).await;
    assert!(
        requests[2..].iter().all(|one| one.is_watch() && one.query.contains("resourceVersion=17")),
        "{requests:?}"
    );
    assert_eq!(watched.deployment(), Some(ObjectState::Healthy));
    assert!(watched.changes.try_recv().is_err(), "a broken watch is no change");
}

#[tokio::test]
async fn only_the_metadata_of_kinds_without_status_is_read() {
    let server = ApiServer::start(H2).await;
    let kinds = [("v1", "Secret"), ("v1", "ConfigMap"), ("apps/v1", "Deployment")];
    for path in [SECRETS, CONFIG_MAPS] {
        server.list(path, "5", &[object("4", &Value::Null)]);
    }
    server.list(DEPLOYMENTS, "5", &[]);
    let mut watched = Watched::start(&server, None);
    watched.use_kinds(&kinds);
    watched.notified().await;
    assert!(watched.changes.try_recv().is_err(), "one notification when all kinds are listed");
    for kind in ["Secret", "ConfigMap"] {
        let observation = watched.observation("v1", kind);
        assert!(
            matches!(observation, Observation::Seen { state: ObjectState::Healthy, .. }),
            "{observation:?}"
        );
    }
    for (path, is_metadata) in [(SECRETS, true), (CONFIG_MAPS, true), (DEPLOYMENTS, false)] {
        let accepts: Vec<_> = server.requests(path, 2).await.into_iter().map(|one| one.accept).collect();
        assert_eq!(accepts[0].contains("as=PartialObjectMetadataList;"), is_metadata, "{path}: {accepts:?}");
        assert_eq!(accepts[1].contains("as=PartialObjectMetadata;"), is_metadata, "{path}: {accepts:?}");
    }
}

#[tokio::test]
async fn all_watches_share_one_connection_if_the_server_supports_it() {
    let proxy = ConnectProxy::start(Some(("user", "secret")), None).await.unwrap();
    let through_proxy = TargetProxy {
        url: format!("http://{}", proxy.address()),
        credentials: Some(("user".to_owned(), "secret".to_owned())),
    };
    for (protocols, proxy, is_shared) in
        [(H2, None, true), (H2, Some(through_proxy), true), (HTTP1, None, false)]
    {
        let server = ApiServer::start(protocols).await;
        let paths = [SECRETS, CONFIG_MAPS, DEPLOYMENTS];
        for path in paths {
            server.list(path, "5", &[]);
        }
        let mut watched = Watched::start(&server, proxy);
        watched.use_kinds(&[("v1", "Secret"), ("v1", "ConfigMap"), ("apps/v1", "Deployment")]);
        watched.notified().await;
        for path in paths {
            server.until_watched(path, true).await;
        }
        let connections = server.connections();
        assert!(if is_shared { connections == 1 } else { connections >= 3 }, "{protocols:?}: {connections}");
    }
    assert_eq!(proxy.targets().len(), 1);
}

#[tokio::test]
async fn names_of_custom_resources_are_read_once_for_each_version() {
    let server = ApiServer::start(H2).await;
    let verbs = ["list", "watch"];
    let resource = |kind: &str, name: &str| json!({"kind": kind, "name": name, "singularName": "", "namespaced": true, "verbs": verbs});
    let discovery = json!({
        "groupVersion": "example.dev/v1",
        "resources": [resource("Widget", "widgetry"), resource("Gadget", "gadgets"), resource("Widget", "widgetry/status")],
    });
    let group = "/apis/example.dev/v1";
    server.answer(group, discovery);
    server.list(WIDGETS, "5", &[]);
    server.list("/apis/example.dev/v1/gadgets", "5", &[]);
    let mut watched = Watched::start(&server, None);
    watched.use_kinds(&[
        ("example.dev/v1", "Widget"),
        ("example.dev/v1", "Gadget"),
        ("other.dev/v1", "Widget"),
    ]);
    watched.notified().await;
    server.until_watched(WIDGETS, true).await;
    assert_eq!(server.requests(group, 1).await.len(), 1);
    assert_eq!(watched.observation("other.dev/v1", "Widget"), Observation::NotListed, "it is not served");
}

#[tokio::test]
async fn only_objects_of_known_releases_are_kept() {
    let server = ApiServer::start(H2).await;
    let of = |release: &str| {
        let mut object = deployment("4", 1);
        object["metadata"]["name"] = json!(release);
        object["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!(release);
        object
    };
    server.list(DEPLOYMENTS, "5", &[deployment("4", 1), of("managed"), of("foreign")]);
    let mut watched = Watched::start(&server, None);
    watched.use_kinds(&[("apps/v1", "Deployment")]);
    watched.notified().await;
    server.until_watched(DEPLOYMENTS, true).await;
    let kinds =
        |kinds: &[&str]| kinds.iter().map(|kind| ("apps/v1".to_owned(), (*kind).to_owned())).collect();

    // Its objects are known already.
    watched.health.set_kinds(&ReleaseId::new("shop", "managed"), kinds(&["Deployment"]));
    // Its objects were left out.
    watched.health.set_kinds(&ReleaseId::new("shop", "foreign"), kinds(&["Deployment"]));
    for release in ["managed", "foreign"] {
        let object = ObjectRecord { name: release.to_owned(), ..record("apps/v1", "Deployment") };
        let is_seen = matches!(watched.health.observation(&object), Observation::Seen { .. });
        assert_eq!(is_seen, release == "managed", "{release}");
    }
    let requests = server.requests(DEPLOYMENTS, 4).await;
    assert!(!requests[2].is_watch() && requests[3].is_watch(), "it is listed again: {requests:?}");
    let object = ObjectRecord { name: "foreign".to_owned(), ..record("apps/v1", "Deployment") };
    let observation = watched.health.observation(&object);
    assert!(matches!(observation, Observation::Seen { .. }), "{observation:?}");
    assert_eq!(server.requests(DEPLOYMENTS, 4).await.len(), 4, "{requests:?}");
}

#[tokio::test]
async fn a_list_that_takes_long_does_not_keep_others_waiting() {
    let server = ApiServer::start(H2).await;
    for path in [DEPLOYMENTS, CONFIG_MAPS] {
        server.list(path, "5", &[]);
    }
    let stuck = server.delay(DEPLOYMENTS);
    let watched = Watched::start(&server, None);
    watched.use_kinds(&[("apps/v1", "Deployment"), ("v1", "ConfigMap")]);
    server.requests(DEPLOYMENTS, 1).await;
    tokio::time::sleep(TURN / 2).await;
    assert_eq!(server.requests(CONFIG_MAPS, 0).await.len(), 0, "there is only one permit to list");
    server.until_watched(CONFIG_MAPS, true).await;
    drop(stuck);
    server.until_watched(DEPLOYMENTS, true).await;
}

#[tokio::test]
async fn a_page_that_is_too_large_is_read_with_fewer_objects() {
    let server = ApiServer::start(H2).await;
    server.list(CONFIG_MAPS, "5", &[object("4", &json!({}))]);
    server.set_largest_page(CONFIG_MAPS, 100);
    let mut watched = Watched::start(&server, None);
    watched.use_kinds(&[("v1", "ConfigMap")]);
    watched.notified().await;
    let observation = watched.observation("v1", "ConfigMap");
    assert!(matches!(observation, Observation::Seen { .. }), "{observation:?}");
    let requests = server.requests(CONFIG_MAPS, 4).await;
    let limits: Vec<_> = requests.iter().map(api_server::Received::limit).collect();
    assert_eq!(limits, [Some(1_000), Some(125), Some(15), None], "{requests:?}");
}

#[tokio::test]
async fn connections_for_health_wait_for_their_turn() {
    let server = ApiServer::start(H2).await;
    server.list(DEPLOYMENTS, "5", &[deployment("4", 1)]);
    let watched = Watched::start(&server, None);
    let others = watched.connects.acquire().await.unwrap();
    watched.use_kinds(&[("apps/v1", "Deployment")]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.connections(), 0, "others connect");
    drop(others);
    server.until_watched(DEPLOYMENTS, true).await;

    // A watch that is continued without a list may need a connection, too.
    let others = watched.connects.acquire().await.unwrap();
    watched.health.pause();
    server.until_watched(DEPLOYMENTS, false).await;
    watched.connect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.connections(), 1, "others connect");
    drop(others);
    server.until_watched(DEPLOYMENTS, true).await;
    let requests = server.requests(DEPLOYMENTS, 3).await;
    assert!(requests[1].is_watch() && requests[2].is_watch(), "{requests:?}");
    assert_eq!((requests.len(), server.connections()), (3, 2));
}

#[tokio::test]
async fn a_changed_check_changes_the_states_of_the_objects_of_its_release() {
    let server = ApiServer::start(H2).await;
    let resource = json!({
        "kind": "Widget", "name": "widgetry", "singularName": "", "namespaced": true, "verbs": ["list", "watch"],
    });
    server.answer("/apis/example.dev/v1", json!({"groupVersion": "example.dev/v1", "resources": [resource]}));
    server.list(WIDGETS, "5", &[object("4", &json!({"phase": "Broken"}))]);
    let checks = |failed: &str| {
        let check = json!({
            "apiVersion": "example.dev/v1", "kind": "Widget", "failed": failed, "current": "spec.replicas == 1",
        });
        HealthChecks::compile(&[serde_json::from_value(check).unwrap()])
    };
    let mut watched = Watched::start(&server, None);
    watched.health.set_checks(&release(), &checks("status.phase == 'Broken'"));
    watched.use_kinds(&[("example.dev/v1", "Widget")]);
    watched.notified().await;
    let widget = |watched: &Watched| match watched.observation("example.dev/v1", "Widget") {
        Observation::Seen { state, .. } => state,
        other => panic!("{other:?}"),
    };
    assert_eq!(widget(&watched), ObjectState::Failed("its health check `failed` is true".to_owned()));
    server.until_watched(WIDGETS, true).await;

    watched.health.set_checks(&release(), &checks("status.phase == 'Lost'"));
    watched.notified().await;
    assert_eq!(widget(&watched), ObjectState::Healthy);
    server.requests(WIDGETS, 4).await;
    server.send(WIDGETS, "MODIFIED", &object("6", &json!({"phase": "Lost"}))).await;
    watched.notified().await;
    assert_eq!(widget(&watched), ObjectState::Failed("its health check `failed` is true".to_owned()));

    watched.health.set_checks(&release(), &HealthChecks::default());
    watched.notified().await;
    assert_eq!(widget(&watched), ObjectState::Healthy, "the object has no conditions");
    assert_eq!(server.requests(WIDGETS, 5).await.iter().filter(|one| !one.is_watch()).count(), 3);
}
