//! An API server that stores objects by the paths of their requests. Tests reconcile against it and inspect the requests; it can
//! stop, refuse users, or let another client write in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A request for an object.
#[derive(Clone, Debug)]
pub struct Logged {
    pub method: Method,
    pub path: String,
    /// The impersonated user.
    pub user: Option<String>,
    pub dry_run: bool,
    /// Whether a patch is a server-side apply.
    applies: bool,
    /// The labels `name=value` that listed objects have.
    labels: Vec<String>,
}

impl Logged {
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && !self.dry_run
    }
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// The last uid and resource version.
    version: u64,
    requests: Vec<Logged>,
    /// The fields of each status that were applied last. An apply without one of them removes it.
    applied: BTreeMap<String, BTreeSet<String>>,
    /// The object that another client writes after the next read of its path.
    overtaking: Option<(String, Value)>,
    /// The number of writes after which the client is killed.
    writes_left: Option<usize>,
    /// Whether impersonated users may do nothing.
    refuses_users: bool,
    /// Whether the answers to `SelfSubjectAccessReviews` are negative.
    denies_reviews: bool,
    /// Paths whose reads fail.
    unreadable: BTreeSet<String>,
    /// Whether paths without an object, and lists, are not served at all, as without their CRD.
    has_no_crds: bool,
}

#[derive(Clone, Default)]
pub struct FakeApiServer {
    state: Arc<Mutex<State>>,
    killed: Arc<Notify>,
}

impl FakeApiServer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let answer = move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Stores an object as another client.
    pub fn put(&self, path: &str, object: Value) {
        self.state().store(path, object);
    }

    pub fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    /// Lets another client write an object after the next read of it.
    pub fn overtake(&self, path: &str, object: Value) {
        self.state().overtaking = Some((path.to_owned(), object));
    }

    /// Returns method and path of each write since the last call, and forgets all requests.
    pub fn take_writes(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.state().requests);
        let writes = requests.iter().filter(|request| request.is_write());
        writes.map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    /// Returns the requests for objects.
    pub fn requests(&self) -> Vec<Logged> {
        self.state().requests.clone()
    }

    pub fn deletions(&self) -> usize {
        self.state().requests.iter().filter(|request| request.method == Method::DELETE).count()
    }

    /// Stores the `count`-th write from now on, and answers neither it nor what follows.
    pub fn kill_at(&self, count: usize) {
        self.state().writes_left = Some(count);
    }

    /// Removes all permissions of impersonated users.
    pub fn refuse_users(&self) {
        self.state().refuses_users = true;
    }

    /// Answers all `SelfSubjectAccessReviews` with no.
    pub fn deny_access_reviews(&self) {
        self.state().denies_reviews = true;
    }

    /// Lets reads of a path fail.
    pub fn fail_reads(&self, path: &str) {
        self.state().unreadable.insert(path.to_owned());
    }

    /// Answers lists, and reads of paths without an object, as if their CRDs were deleted.
    pub fn delete_crds(&self) {
        self.state().has_no_crds = true;
    }

    /// Returns when a client was killed.
    pub async fn killed(&self) {
        self.killed.notified().await;
    }

    /// Answers all requests again.
    pub fn live(&self) {
        self.state().writes_left = None;
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let sent = body.collect_bytes().await.unwrap();
        let sent = serde_json::from_slice(&sent).unwrap_or(Value::Null);
        let path = parts.uri.path().to_owned();
        // Events are published in the background, and kinds are discovered by Chandler itself.
        if path.contains("/events") {
            return response(201, &sent);
        }
        if let Some(list) = resources(&path) {
            return response(200, &list);
        }
        let dry_run = parts.uri.query().is_some_and(|query| query.contains("dryRun=All"));
        let user = parts.headers.get("impersonate-user").map(|user| user.to_str().unwrap().to_owned());
        let content_type = parts.headers.get("content-type");
        let applies = content_type.is_some_and(|content| content == "application/apply-patch+yaml");
        let labels = parts.uri.query().map(label_selector).unwrap_or_default();
        let logged = Logged { method: parts.method, path, user, dry_run, applies, labels };
        let (code, body, dies) = self.state().handle(&logged, sent);
        if dies {
            self.killed.notify_one();
            return std::future::pending().await;
        }
        response(code, &body)
    }
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let version = self.version.to_string();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = version.clone().into();
        }
        object["metadata"]["resourceVersion"] = version.into();
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    /// Returns the code, the answer, and whether the client is killed.
    fn handle(&mut self, logged: &Logged, sent: Value) -> (u16, Value, bool) {
        self.requests.push(logged.clone());
        if logged.is_write()
            && let Some(left) = &mut self.writes_left
        {
            if *left == 0 {
                return (500, Value::Null, true);
            }
            *left -= 1;
        }
        let (code, body) = match logged.method {
            _ if self.refuses_users && logged.user.is_some() => failure(403),
            Method::GET => self.read(&logged.path, &logged.labels),
            Method::POST => self.create(&logged.path, sent),
            Method::PATCH => self.patch(logged, sent),
            Method::DELETE => self.delete(&logged.path, &sent),
            _ => failure(405),
        };
        (code, body, logged.is_write() && self.writes_left == Some(0))
    }

    fn read(&mut self, path: &str, labels: &[String]) -> (u16, Value) {
        if self.unreadable.contains(path) {
            return failure(500);
        }
        let found = self.objects.get(path).cloned().or_else(|| self.list(path, labels));
        if found.is_none() && self.has_no_crds {
            return (404, "404 page not found".into());
        }
        if let Some((path, object)) = self.overtaking.take_if(|(overtaken, _)| overtaken == path) {
            self.store(&path, object);
        }
        found.map_or_else(|| failure(404), |found| (200, found))
    }

    /// Returns the objects of a kind in a namespace, or of Syncs in all namespaces.
    fn list(&self, path: &str, labels: &[String]) -> Option<Value> {
        if path == "/apis/chandler.dev/v1alpha1/syncs" {
            let is_sync = |path: &&String| path.contains("/syncs/");
            let items: Vec<_> =
                self.objects.iter().filter(|(path, _)| is_sync(path)).map(|(_, object)| object).collect();
            return Some(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}));
        }
        let (_, kind) = path.split_once("/namespaces/")?.1.split_once('/')?;
        if kind.contains('/') || self.has_no_crds {
            return None;
        }
        let has_labels = |object: &Value| {
            labels.iter().all(|label| {
                label.split_once('=').is_some_and(|(name, value)| object["metadata"]["labels"][name] == value)
            })
        };
        let prefix = format!("{path}/");
        let objects = self.objects.iter().filter(|(path, _)| path.starts_with(&prefix));
        let items: Vec<_> = objects.map(|(_, object)| object).filter(|object| has_labels(object)).collect();
        Some(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    fn create(&mut self, path: &str, sent: Value) -> (u16, Value) {
        if path.ends_with("/selfsubjectaccessreviews") {
            return (201, json!({"status": {"allowed": !self.denies_reviews}}));
        }
        let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
        if self.objects.contains_key(&path) { failure(409) } else { (201, self.store(&path, sent)) }
    }

    fn patch(&mut self, logged: &Logged, mut sent: Value) -> (u16, Value) {
        let (path, is_status) = match logged.path.strip_suffix("/status") {
            Some(path) => (path, true),
            None => (&*logged.path, false),
        };
        let mut merged = match self.objects.get(path) {
            Some(existing) => existing.clone(),
            None if logged.applies && !is_status => json!({}),
            None => return failure(404),
        };
        for field in ["uid", "resourceVersion"] {
            let expected = &sent["metadata"][field];
            if !expected.is_null() && *expected != merged["metadata"][field] {
                return conflict(field);
            }
        }
        if is_status && logged.applies {
            self.apply_status(path, &mut merged["status"], sent["status"].take());
        } else if is_status {
            merge(&mut merged["status"], sent["status"].take());
        } else {
            merge(&mut merged, sent);
        }
        if logged.dry_run {
            return (200, merged);
        }
        let stored = self.store(path, merged);
        if !stored["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&stored) {
            self.objects.remove(path);
        }
        (200, stored)
    }

    /// Replaces the fields that were applied before, and keeps those of other writers.
    fn apply_status(&mut self, path: &str, status: &mut Value, sent: Value) {
        let fields = sent.as_object().map(|sent| sent.keys().cloned().collect()).unwrap_or_default();
        let before = self.applied.insert(path.to_owned(), fields).unwrap_or_default();
        for field in before {
            status[&field] = Value::Null;
        }
        merge(status, sent);
        if let Value::Object(status) = status {
            status.retain(|_, value| !value.is_null());
        }
    }

    fn delete(&mut self, path: &str, options: &Value) -> (u16, Value) {
        let Some(existing) = self.objects.get(path).cloned() else { return failure(404) };
        // Chandler deletes only what it has seen, so every deletion has the uid, and most have the version, too.
        let preconditions = &options["preconditions"];
        let version = &preconditions["resourceVersion"];
        if preconditions["uid"] != existing["metadata"]["uid"] {
            return conflict("uid");
        }
        if !version.is_null() && *version != existing["metadata"]["resourceVersion"] {
            return conflict("resourceVersion");
        }
        if has_finalizers(&existing) {
            let mut deleting = existing;
            deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            return (200, self.store(path, deleting));
        }
        self.objects.remove(path);
        (200, json!({"kind": "Status", "status": "Success"}))
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// Merges like a JSON merge patch.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// Returns the labels of a query.
fn label_selector(query: &str) -> Vec<String> {
    let selector = query.split('&').find_map(|parameter| parameter.strip_prefix("labelSelector="));
    let decoded = selector.map(|text| text.replace("%2F", "/").replace("%3D", "=").replace("%2C", ","));
    decoded.map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

/// Returns a response with an object, or with text.
fn response(code: u16, body: &Value) -> Response<Body> {
    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap()
}

/// Returns the kinds of an API version.
fn resources(path: &str) -> Option<Value> {
    let (version, name, kind) = match path {
        "/api/v1" => ("v1", "configmaps", "ConfigMap"),
        "/apis/cluster.x-k8s.io/v1beta2" => ("cluster.x-k8s.io/v1beta2", "clusters", "Cluster"),
        "/apis/chandler.dev/v1alpha1" => ("chandler.dev/v1alpha1", "syncs", "Sync"),
        _ => return None,
    };
    Some(json!({
        "kind": "APIResourceList", "groupVersion": version,
        "resources": [{"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"]}],
    }))
}

/// Returns the answer to a request for an object with another value of a field.
fn conflict(field: &str) -> (u16, Value) {
    let (code, mut status) = failure(409);
    status["message"] = format!("{field} mismatch").into();
    (code, status)
}

fn failure(code: u16) -> (u16, Value) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        500 => "InternalError",
        _ => "MethodNotAllowed",
    };
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": reason}))
}
