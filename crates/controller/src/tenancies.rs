//! The AddonTenancies, which say what the objects of namespaces may use and install. They have no status, so nothing reconciles them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use chandler_api::extensions::AddonTenancy;
use chandler_core::{
    conditions,
    failure::{Category, Failure},
    tenancy::{
        Boundary, DefaultAccount, Purpose, ReleaseRequest, Rules, SourceUse, Tenancies as Parsed, read_spec,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{Store, store::Writer},
};
use tokio::sync::watch as channel;

use crate::{
    locks::Mutex,
    namespace_labels::NamespaceLabels,
    routing::Router,
    single_flight::SingleFlight,
    watch::{FirstList, Scope, watch},
};

/// How long labels of namespaces are used that select AddonTenancies.
const LABELS_CACHED: Duration = Duration::from_secs(10);

type Labels = Arc<BTreeMap<String, String>>;

/// The AddonTenancies. Clones share the data.
#[derive(Clone)]
pub struct Tenancies {
    state: Arc<Mutex<State>>,
    labels: NamespaceLabels,
    cached: Arc<SingleFlight<String, Labels>>,
    /// The last labels of namespaces, for AddonTenancies that select by them.
    last_labels: Arc<Mutex<HashMap<String, Labels>>>,
    default_account: Option<Arc<DefaultAccount>>,
    changes: channel::Sender<u64>,
}

struct State {
    parsed: Arc<Parsed>,
    changed_at: Timestamp,
}

impl Tenancies {
    /// Creates a set that is empty until it is watched or filled.
    pub fn new(client: Client, default_account: Option<DefaultAccount>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State { parsed: Arc::default(), changed_at: Timestamp::now() })),
            labels: NamespaceLabels::new(client),
            cached: Arc::new(SingleFlight::new(LABELS_CACHED)),
            last_labels: Arc::default(),
            default_account: default_account.map(Arc::new),
            changes: channel::Sender::default(),
        }
    }

    /// Takes the objects that exist now.
    pub fn set(&self, objects: &[Arc<DynamicObject>]) {
        let specs = objects.iter().map(|object| (object.name_any(), read_spec(&object.data["spec"])));
        let parsed = Arc::new(Parsed::new(specs));
        *self.state.lock() = State { parsed, changed_at: Timestamp::now() };
        self.changes.send_modify(|count| *count += 1);
    }

    /// Calls `retry` after every change with the objects of a kind whose condition `Ready` says that they were not allowed.
    pub async fn retry_refused<K>(
        self,
        stores: Vec<Store<K>>,
        conditions: fn(&K) -> &[Condition],
        retry: impl Fn(&K) + Send,
    ) where
        K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    {
        let mut changes = self.changes.subscribe();
        while changes.changed().await.is_ok() {
            let was_refused = |object: &K| {
                let ready = conditions::find(conditions(object), "Ready");
                let refused = [Category::NotAllowed, Category::NotReady].map(Category::as_str);
                ready.is_some_and(|ready| refused.contains(&&*ready.reason))
            };
            for object in stores.iter().flat_map(|store| store.state_filter(was_refused)) {
                retry(&object);
            }
        }
    }

    /// Watches AddonTenancies. Their changes enqueue everything that they may be about.
    pub fn watch(&self, client: Client, router: Router) -> FirstList {
        let writer = Writer::new(resource());
        let (store, own): (Store<DynamicObject>, _) = (writer.as_reader(), self.clone());
        watch(client, &Scope { namespace: None, labels: None }, &resource(), writer, move |_| {
            own.set(&store.state());
            router.on_tenancies();
        })
    }

    /// Returns when this process has last seen a change. What was not allowed before may be allowed since.
    pub fn changed_at(&self) -> Timestamp {
        self.state.lock().changed_at
    }

    /// Returns the rules of a namespace. Sends no request unless an AddonTenancy selects namespaces by label.
    pub async fn of(&self, namespace: &str) -> Result<Rules, Failure> {
        let parsed = self.state.lock().parsed.clone();
        if parsed.is_empty() {
            return Ok(Rules::default());
        }
        if !parsed.need_labels(namespace) {
            return parsed.of(namespace, &BTreeMap::new());
        }
        let labels = self.labels(namespace).await?;
        parsed.of(namespace, &labels)
    }

    /// Returns the labels of a namespace. If they cannot be read now, the last ones count.
    async fn labels(&self, namespace: &str) -> Result<Labels, Failure> {
        let read = self.cached.get(&namespace.to_owned(), self.labels.get(namespace)).await;
        let mut last = self.last_labels.lock();
        match read {
            Ok(labels) => {
                last.insert(namespace.to_owned(), labels.clone());
                Ok(labels)
            }
            Err(failure) => last.get(namespace).cloned().ok_or(failure),
        }
    }

    /// Checks whether objects of a namespace may use a source.
    pub async fn check_source(&self, namespace: &str, source: SourceUse<'_>) -> Result<(), Failure> {
        self.of(namespace).await?.check_source(source)
    }

    /// Returns what a release may do on its cluster, or why it is not allowed, or why that is not known. A removal waits for nothing.
    pub async fn boundary(&self, request: ReleaseRequest<'_>) -> Result<Boundary, Failure> {
        match self.of(&request.desired.cluster.namespace).await {
            Ok(rules) => rules.boundary(request, self.default_account.as_deref()),
            Err(_) if request.purpose == Purpose::Remove => Ok(Boundary::of_unknown_removal()),
            Err(failure) => Err(failure),
        }
    }
}

/// Returns the kind.
pub fn resource() -> ApiResource {
    ApiResource::erase::<AddonTenancy>(&())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tenancy(name: &str, spec: &Value) -> Arc<DynamicObject> {
        let mut object = DynamicObject::new(name, &resource());
        object.data = json!({"spec": spec});
        Arc::new(object)
    }

    /// A client whose requests fail.
    fn unreachable_client() -> Client {
        let refuse = |_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("unavailable"))
        };
        Client::new(tower::service_fn(refuse), "default")
    }

    #[tokio::test]
    async fn namespaces_are_read_only_if_a_tenancy_selects_them_by_label() {
        let tenancies = Tenancies::new(unreachable_client(), None);
        assert!(tenancies.of("team").await.unwrap().allow_everything());
        let before = tenancies.changed_at();
        tenancies.set(&[tenancy("a", &json!({"namespaces": {"names": ["team"]}}))]);
        assert!(tenancies.changed_at() >= before);
        assert!(!tenancies.of("team").await.unwrap().allow_everything());
        assert!(tenancies.of("other").await.unwrap().allow_everything());
        tenancies.set(&[tenancy("a", &json!({"namespaces": {"names": ["team"], "selector": {}}}))]);
        assert!(!tenancies.of("team").await.unwrap().allow_everything());
        tenancies.of("other").await.expect_err("nothing is concluded from labels that cannot be read");
        tenancies.set(&[tenancy("a", &json!({"namespaces": 3}))]);
        tenancies.of("other").await.expect_err("nothing is concluded from a tenancy that cannot be read");
        tenancies.set(&[tenancy("a", &json!({"namespaces": {"names": ["team"]}, "kinds": 3}))]);
        tenancies.of("team").await.expect_err("it is about this namespace");
        assert!(tenancies.of("other").await.unwrap().allow_everything(), "it is about no other namespace");
        tenancies.set(&[]);
        assert!(tenancies.of("team").await.unwrap().allow_everything());
    }
}
