//! The AddonTenancies, which say what the objects of namespaces may use and install. They have no status, so nothing reconciles them.

mod labels;
mod served;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

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
    Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{Store, store::Writer},
};
use serde_json::Value;
use tokio::sync::watch as channel;

use self::labels::SelectingLabels;
pub use self::served::are_watched;
use crate::{
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
    /// What `parsed` was made of.
    objects: Vec<Arc<DynamicObject>>,
    parsed: Arc<Parsed>,
    changed_at: Timestamp,
}

/// Returns whether two lists have the same names and specs.
fn are_same(known: &[Arc<DynamicObject>], listed: &[Arc<DynamicObject>]) -> bool {
    let are_identical = || known.iter().zip(listed).all(|(known, listed)| Arc::ptr_eq(known, listed));
    known.len() == listed.len() && (are_identical() || specs(known) == specs(listed))
}

fn specs(objects: &[Arc<DynamicObject>]) -> HashMap<Option<&str>, &Value> {
    objects.iter().map(|object| (object.metadata.name.as_deref(), &object.data["spec"])).collect()
}

impl Tenancies {
    /// Creates a set that is empty until it is watched or filled.
    pub fn new(client: Client, default_account: Option<DefaultAccount>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                objects: Vec::new(),
                parsed: Arc::default(),
                changed_at: Timestamp::now(),
            })),
            labels: SelectingLabels::new(client),
            default_account: default_account.map(Arc::new),
            changes: channel::Sender::default(),
        }
    }

    /// Replaces all AddonTenancies by the objects that exist now. Returns whether a name or a spec has changed: a watch calls this
    /// for each object of each list, and for each change of metadata.
    pub fn set(&self, objects: &[Arc<DynamicObject>]) -> bool {
        let mut state = self.state.lock();
        let is_changed = !are_same(&state.objects, objects);
        state.objects = objects.to_vec();
        if is_changed {
            let specs = objects.iter().map(|object| (object.name_any(), read_spec(&object.data["spec"])));
            state.parsed = Arc::new(Parsed::new(specs));
            state.changed_at = Timestamp::now();
        }
        drop(state);
        if is_changed {
            self.changes.send_modify(|count| *count += 1);
        }
        is_changed
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
            if own.set(&store.state()) {
                router.on_tenancies();
            }
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

    /// Returns whether a release that is applied with `boundary` is exempt: see [`Rules::exempts`].
    pub async fn exempt(&self, desired: &Desired, boundary: &Boundary) -> Result<bool, Failure> {
        let rules = self.of(&desired.cluster.namespace).await?;
        Ok(rules.exempts(desired, boundary, self.default_account.as_deref()))
    }
}

/// Returns the API resource of AddonTenancies.
pub fn resource() -> ApiResource {
    ApiResource::erase::<AddonTenancy>(&())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sources::testing::offline;

    fn tenancy(name: &str, spec: &Value) -> Arc<DynamicObject> {
        let mut object = DynamicObject::new(name, &resource());
        object.data = json!({"spec": spec});
        Arc::new(object)
    }

    #[tokio::test]
    async fn what_is_not_known_is_no_refusal() {
        let tenancies = Tenancies::new(offline(), None);
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
            tenancies.set(&[tenancy("odd", &spec)]);
            let refusal = tenancies.boundary(&desired, ReleaseUse::Desired).await.unwrap_err();
            assert!(matches!(refusal, Refusal::Unknown(_)), "{refusal:?}");
            assert!(refusal.failure().message.contains(text), "{refusal:?}");
            assert_eq!(tenancies.boundary(&desired, removal).await.is_ok(), is_removable);
        }
        assert!(tenancies.restrict_releases());
        tenancies.set(&[tenancy("strict", &strict)]);
        let refusal = tenancies.boundary(&desired, ReleaseUse::Desired).await.unwrap_err();
        assert!(matches!(refusal, Refusal::NotAllowed(_)), "{refusal:?}");
        assert!(tenancies.boundary(&desired, removal).await.is_ok());
    }

    #[tokio::test]
    async fn namespaces_are_read_only_if_a_tenancy_selects_them_by_label() {
        let tenancies = Tenancies::new(offline(), None);
        assert!(tenancies.of("team").await.unwrap().allow_everything());
        tenancies.set(&[tenancy("a", &json!({"namespaces": {"names": ["team"]}}))]);
        assert!(!tenancies.of("team").await.unwrap().allow_everything());
        assert!(tenancies.of("other").await.unwrap().allow_everything());
        tenancies.set(&[tenancy("a", &json!({"namespaces": {"names": ["team"], "selector": {}}}))]);
        assert!(!tenancies.of("team").await.unwrap().allow_everything());
        tenancies.of("other").await.expect_err("nothing is concluded from labels that cannot be read");
        tenancies.set(&[tenancy("a", &json!({"namespaces": 3}))]);
        tenancies.of("other").await.expect_err("nothing is concluded from a tenancy that cannot be read");
        tenancies.set(&[]);
        assert!(tenancies.of("team").await.unwrap().allow_everything());
    }

    #[tokio::test]
    async fn only_other_specs_are_a_change() {
        let tenancies = Tenancies::new(offline(), None);
        let changes = tenancies.changes.subscribe();
        let named = |name: &str| json!({"namespaces": {"names": [name]}});
        let (a, b) = (tenancy("a", &named("red")), tenancy("b", &named("blue")));
        let mut labeled = (*a).clone();
        labeled.labels_mut().insert("tier".to_owned(), "gold".to_owned());
        let rows = [
            (vec![], false),
            (vec![a.clone(), b.clone()], true),
            (vec![a.clone(), b.clone()], false),
            (vec![b.clone(), Arc::new(labeled)], false),
            (vec![tenancy("a", &named("red")), tenancy("b", &named("blue"))], false),
            (vec![a.clone(), tenancy("b", &named("green"))], true),
            (vec![a.clone(), tenancy("c", &named("green"))], true),
            (vec![a], true),
            (vec![], true),
            (vec![], false),
        ];
        let mut expected = 0;
        for (number, (objects, is_changed)) in rows.into_iter().enumerate() {
            let before = tenancies.changed_at();
            assert_eq!(tenancies.set(&objects), is_changed, "row {number}");
            expected += u64::from(is_changed);
            assert_eq!(*changes.borrow(), expected, "row {number}");
            assert!(is_changed || tenancies.changed_at() == before, "row {number}");
        }
    }
}
