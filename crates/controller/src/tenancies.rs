//! The AddonTenancies, which say what the objects of namespaces may use and install. They have no status, so nothing reconciles them.

mod labels;

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::AddonTenancy;
use chandler_core::{
    conditions,
    failure::{Category, Failure},
    release::Desired,
    tenancy::{
        Boundary, DefaultAccount, Refusal, ReleaseUse, Rules, SourceUse, Tenancies as Parsed, read_spec,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
    runtime::reflector::{Store, store::Writer},
};
use tokio::sync::watch as channel;

use self::labels::SelectingLabels;
use crate::{
    StartupError,
    locks::Mutex,
    routing::Router,
    watch::{FirstList, Scope, watch},
};

/// The AddonTenancies. Clones share the data.
#[derive(Clone)]
pub struct Tenancies {
    state: Arc<Mutex<State>>,
    labels: SelectingLabels,
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
            labels: SelectingLabels::new(client),
            default_account: default_account.map(Arc::new),
            changes: channel::Sender::default(),
        }
    }

    /// Replaces all AddonTenancies by the objects that exist now.
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
                ready.is_some_and(|ready| ready.reason == Category::NotAllowed.as_str())
            };
            for object in stores.iter().flat_map(|store| store.state_filter(was_refused)) {
                retry(&object);
            }
        }
    }

    /// Watches AddonTenancies. Their changes enqueue everything that they may apply to.
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

    /// Returns whether releases other than those of the platform may have rules or another account than the user of the kubeconfig.
    pub fn restrict_releases(&self) -> bool {
        self.default_account.is_some() || !self.state.lock().parsed.is_empty()
    }

    /// Returns whether a label of a namespace, whose changes are not watched, can allow what was not allowed.
    pub fn select_by_label(&self) -> bool {
        self.state.lock().parsed.select_by_label()
    }

    /// Returns the rules of a namespace. Sends no request unless an AddonTenancy selects namespaces by label.
    pub async fn of(&self, namespace: &str) -> Result<Rules, Failure> {
        let (parsed, labels) = self.with_labels(namespace).await?;
        parsed.of(namespace, &labels)
    }

    async fn with_labels(
        &self,
        namespace: &str,
    ) -> Result<(Arc<Parsed>, Arc<BTreeMap<String, String>>), Failure> {
        let parsed = self.state.lock().parsed.clone();
        let labels =
            if parsed.need_labels(namespace) { self.labels.get(namespace).await? } else { Arc::default() };
        Ok((parsed, labels))
    }

    /// Checks whether objects of a namespace may use a source.
    pub async fn check_source(&self, namespace: &str, source: SourceUse<'_>) -> Result<(), Failure> {
        self.of(namespace).await?.check_source(source)
    }

    /// Returns what a release may do on its cluster, or why it is not changed.
    pub async fn boundary(
        &self,
        desired: &Desired,
        release_use: ReleaseUse<'_>,
    ) -> Result<Boundary, Refusal> {
        let namespace = &desired.cluster.namespace;
        let (parsed, labels) = self.with_labels(namespace).await.map_err(Refusal::Unknown)?;
        let rules = match release_use {
            ReleaseUse::Removal { .. } => parsed.of_removals(namespace, &labels),
            ReleaseUse::Desired | ReleaseUse::Rollback => {
                parsed.of(namespace, &labels).map_err(Refusal::Unknown)?
            }
        };
        let boundary = rules.boundary(desired, release_use, self.default_account.as_deref());
        boundary.map_err(Refusal::NotAllowed)
    }
}

/// Returns the API resource of AddonTenancies.
pub fn resource() -> ApiResource {
    ApiResource::erase::<AddonTenancy>(&())
}

/// Returns whether AddonTenancies are watched. Fails if the manager may not list them, unless they are ignored explicitly: it must
/// not do what they do not allow because it cannot see them.
pub async fn are_watched(client: &Client, are_ignored: bool) -> Result<bool, StartupError> {
    if are_ignored {
        tracing::warn!("AddonTenancies are ignored (--ignore-tenancies)");
        return Ok(false);
    }
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let listed = api.list_metadata(&ListParams::default().limit(1)).await;
    listed.map(|_| true).map_err(|source| {
        if matches!(&source, kube::Error::Api(status) if status.code == 403) {
            return StartupError::TenanciesForbidden { source };
        }
        let kind = format!("{} {}", resource().api_version, resource().kind);
        StartupError::NotServed { kind, source }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tenancy(name: &str, spec: Value) -> Arc<DynamicObject> {
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

    /// A client that may do nothing.
    fn forbidden_client() -> Client {
        let refuse = |_: http::Request<kube::client::Body>| async {
            let status = json!({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden"});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            http::Response::builder().status(403).body(body)
        };
        Client::new(tower::service_fn(refuse), "default")
    }

    #[tokio::test]
    async fn a_manager_that_may_not_list_tenancies_does_not_start() {
        let error = are_watched(&forbidden_client(), false).await.unwrap_err().to_string();
        assert!(error.contains("chandler-system-manager-cluster"), "{error}");
        assert!(error.contains("--ignore-tenancies"), "{error}");
        are_watched(&unreachable_client(), false).await.unwrap_err();
        assert!(!are_watched(&forbidden_client(), true).await.unwrap());
    }

    #[tokio::test]
    async fn what_is_not_known_is_no_refusal() {
        let tenancies = Tenancies::new(unreachable_client(), None);
        let release: chandler_api::extensions::AddonRelease = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "team"},
            "spec": {
                "cluster": "blue", "release": {"name": "web", "namespace": "web"},
                "source": {"repository": "https://charts.example", "chart": "web"},
            },
        }))
        .unwrap();
        let desired = chandler_core::release::ReleaseKind::desired(&release).unwrap();
        let removal = ReleaseUse::Removal { installed: None };
        let strict = json!({"namespaces": {"names": ["team"]}, "sources": {}});
        let cases = [
            (json!({"namespaces": {"selector": {}}}), "the labels of namespace team cannot be read", false),
            (json!({"namespaces": 3}), "cannot be read", true),
        ];
        for (spec, text, is_removable) in cases {
            tenancies.set(&[tenancy("odd", spec)]);
            let refusal = tenancies.boundary(&desired, ReleaseUse::Desired).await.unwrap_err();
            assert!(matches!(refusal, Refusal::Unknown(_)), "{refusal:?}");
            assert!(refusal.failure().message.contains(text), "{refusal:?}");
            assert_eq!(tenancies.boundary(&desired, removal).await.is_ok(), is_removable);
        }
        assert!(tenancies.restrict_releases());
        tenancies.set(&[tenancy("strict", strict)]);
        let refusal = tenancies.boundary(&desired, ReleaseUse::Desired).await.unwrap_err();
        assert!(matches!(refusal, Refusal::NotAllowed(_)), "{refusal:?}");
        assert!(tenancies.boundary(&desired, removal).await.is_ok());
    }

    #[tokio::test]
    async fn namespaces_are_read_only_if_a_tenancy_selects_them_by_label() {
        let tenancies = Tenancies::new(unreachable_client(), None);
        assert!(tenancies.of("team").await.unwrap().allow_everything());
        let before = tenancies.changed_at();
        tenancies.set(&[tenancy("a", json!({"namespaces": {"names": ["team"]}}))]);
        assert!(tenancies.changed_at() >= before);
        assert!(!tenancies.of("team").await.unwrap().allow_everything());
        assert!(tenancies.of("other").await.unwrap().allow_everything());
        tenancies.set(&[tenancy("a", json!({"namespaces": {"names": ["team"], "selector": {}}}))]);
        assert!(!tenancies.of("team").await.unwrap().allow_everything());
        tenancies.of("other").await.expect_err("nothing is concluded from labels that cannot be read");
        tenancies.set(&[tenancy("a", json!({"namespaces": 3}))]);
        tenancies.of("other").await.expect_err("nothing is concluded from a tenancy that cannot be read");
        tenancies.set(&[]);
        assert!(tenancies.of("team").await.unwrap().allow_everything());
    }
}
