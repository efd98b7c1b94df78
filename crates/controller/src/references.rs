//! Objects that Clusters refer to (control planes, infrastructure clusters), of kinds known only at run time. The watch
//! of a kind starts when one of its objects is requested for the first time.

mod listed;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_NAME_LABEL, ContractReference};
use chandler_core::{contract, fleet::ClassKey, identity::ClusterKey};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    discovery,
    runtime::reflector::{ObjectRef, Store, store::Writer},
};
use tokio::sync::OnceCell;

use self::listed::ListedObjects;
use crate::{
    clusters,
    locks::Mutex,
    routing::Router,
    single_flight::{MOMENT, SingleFlight},
    watch::{Scope, are_listed, watch},
};

/// Timeout of the first list of a kind.
const LIST_LIMIT: Duration = Duration::from_secs(20);
/// How long nothing waits again for a kind that could not be listed, so that a reconcile of many clusters waits once.
const NOT_AGAIN: Duration = Duration::from_secs(30);

type Kind = (String, String);

/// A watched kind.
#[derive(Debug)]
struct Watched {
    resource: ApiResource,
    store: Store<DynamicObject>,
    /// When it could not be listed last.
    failed: Mutex<Option<Instant>>,
}

impl Watched {
    /// Waits for the first list. Returns whether the kind is listed.
    async fn is_listed(&self) -> bool {
        let limit = wait_limit(*self.failed.lock(), Instant::now());
        // A list that is there already is found even with a limit of zero.
        let listed = tokio::time::timeout(limit, are_listed(std::slice::from_ref(&self.store))).await;
        let is_listed = listed == Ok(true);
        if !is_listed && !limit.is_zero() {
            *self.failed.lock() = Some(Instant::now());
        }
        is_listed
    }
}

/// Returns how long to wait for the first list of a kind, whose last list failed then.
fn wait_limit(failed: Option<Instant>, now: Instant) -> Duration {
    let is_recent = failed.is_some_and(|at| now.duration_since(at) < NOT_AGAIN);
    if is_recent { Duration::ZERO } else { LIST_LIMIT }
}

/// Why a referenced object is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("{kind}.{group} is not served by the management cluster: {reason}")]
    NotServed { group: String, kind: String, reason: String },
    #[error("the CRD of {kind}.{group} has no label for a version that implements the Cluster API contract")]
    NoContract { group: String, kind: String },
    #[error("{kind} {namespace}/{name} does not exist")]
    Missing { kind: String, namespace: String, name: String },
    #[error(
        "{kind}.{group} could not be listed within {LIST_LIMIT:?}; grant Chandler get, list and watch on it"
    )]
    NotListed { group: String, kind: String },
    #[error("{kind} {namespace}/{name} cannot be read: {reason}")]
    NotRead { kind: String, namespace: String, name: String, reason: String },
    /// The caller is a user, not the manager.
    #[error(
        "{kind}.{group} cannot be listed in namespace {namespace}: {reason}; you need the permissions to get and list these objects, \
         because Clusters refer to them"
    )]
    Forbidden { group: String, kind: String, namespace: String, reason: String },
}

impl ReferenceError {
    /// Returns whether a retry may succeed without an event.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NotServed { .. } | Self::NotListed { .. } | Self::NotRead { .. } | Self::Forbidden { .. }
        )
    }
}

/// The referenced objects. Clones share the watches.
#[derive(Clone)]
pub struct References {
    client: Client,
    scope: Scope,
    router: Router,
    kinds: Arc<Mutex<HashMap<Kind, Arc<OnceCell<Watched>>>>>,
    /// Classes of namespaces that are not watched.
    classes: Arc<SingleFlight<ClassKey, Arc<DynamicObject>>>,
    /// Set if nothing is watched.
    listed: Option<ListedObjects>,
}

impl References {
    pub fn new(client: Client, scope: Scope, router: Router) -> Self {
        let classes = Arc::new(SingleFlight::new(MOMENT));
        Self { client, scope, router, kinds: Arc::default(), classes, listed: None }
    }

    /// Lists kinds once instead of watching them.
    pub fn listing_once(self) -> Self {
        Self { listed: Some(ListedObjects::default()), ..self }
    }

    /// Returns the object that a Cluster in `namespace` refers to. Waits for the first list of its kind.
    pub async fn get(
        &self,
        namespace: &str,
        to: &ContractReference,
    ) -> Result<Arc<DynamicObject>, ReferenceError> {
        if let Some(listed) = &self.listed {
            let list = async {
                let resource = self.resource(to).await?;
                listed::list(self.client.clone(), resource, namespace).await
            };
            return listed.get(&kind_of(to), namespace, &to.name, list).await;
        }
        let cell = self.cell(to);
        let watched = cell.get_or_try_init(|| self.watch(to)).await?;
        if !watched.is_listed().await {
            return Err(ReferenceError::NotListed { group: to.api_group.clone(), kind: to.kind.clone() });
        }
        let key = ObjectRef::new_with(&to.name, watched.resource.clone()).within(namespace);
        watched.store.get(&key).ok_or_else(|| ReferenceError::Missing {
            kind: to.kind.clone(),
            namespace: namespace.to_owned(),
            name: to.name.clone(),
        })
    }

    /// Returns a ClusterClass. Waits for the first list of classes, or reads a class of a namespace that is not watched.
    pub async fn class(&self, class: &ClassKey) -> Result<Arc<DynamicObject>, ReferenceError> {
        if self.scope.namespace.as_ref().is_some_and(|watched| *watched != class.namespace) {
            return self.classes.get(class, self.read_class(class)).await;
        }
        let (api_group, kind) = (CLUSTER_GROUP.to_owned(), clusters::CLASS.to_owned());
        self.get(&class.namespace, &ContractReference { api_group, kind, name: class.name.clone() }).await
    }

    async fn read_class(&self, class: &ClassKey) -> Result<Arc<DynamicObject>, ReferenceError> {
        let ClassKey { namespace, name } = class.clone();
        let kind = clusters::CLASS.to_owned();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &namespace, &clusters::class_resource());
        match api.get_opt(&name).await {
            Ok(Some(class)) => Ok(Arc::new(class)),
            Ok(None) => Err(ReferenceError::Missing { kind, namespace, name }),
            Err(error) => Err(ReferenceError::NotRead { kind, namespace, name, reason: error.to_string() }),
        }
    }

    /// Returns the object like [`References::get`], but does not wait: returns `None` if its kind is not listed yet.
    pub fn known(&self, namespace: &str, to: &ContractReference) -> Option<Arc<DynamicObject>> {
        if let Some(listed) = &self.listed {
            return listed.known(&kind_of(to), namespace, &to.name);
        }
        let cell = self.cell(to);
        let watched = cell.get()?;
        watched.store.get(&ObjectRef::new_with(&to.name, watched.resource.clone()).within(namespace))
    }

    fn cell(&self, to: &ContractReference) -> Arc<OnceCell<Watched>> {
        let mut kinds = self.kinds.lock();
        kinds.entry(kind_of(to)).or_default().clone()
    }

    async fn watch(&self, to: &ContractReference) -> Result<Watched, ReferenceError> {
        let resource = self.resource(to).await?;
        let router = self.router.clone();
        let writer = Writer::new(resource.clone());
        let store = writer.as_reader();
        let is_class = is_class(to);
        watch(self.client.clone(), &self.scope, &resource, writer, move |change| {
            let object: &DynamicObject = change.object();
            if is_class {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                router.on_class(&ClassKey { namespace, name });
            } else if let Some(cluster) = cluster_of(object) {
                router.on_reference(&cluster);
            }
        });
        tracing::info!(
            kind = resource.kind,
            version = resource.version,
            "watching a kind that Clusters refer to"
        );
        Ok(Watched { resource, store, failed: Mutex::default() })
    }

    async fn resource(&self, to: &ContractReference) -> Result<ApiResource, ReferenceError> {
        if is_class(to) {
            return Ok(clusters::class_resource());
        }
        let (group, kind) = (to.api_group.clone(), to.kind.clone());
        let not_served =
            |reason: String| ReferenceError::NotServed { group: group.clone(), kind: kind.clone(), reason };
        let served =
            discovery::group(&self.client, &group).await.map_err(|error| not_served(error.to_string()))?;
        let all = served.resources_by_stability();
        let (found, _) = all
            .into_iter()
            .find(|(resource, _)| resource.kind == kind)
            .ok_or_else(|| not_served("the group does not have this kind".to_owned()))?;
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let definition = definitions
            .get_metadata(&format!("{}.{group}", found.plural))
            .await
            .map_err(|error| not_served(error.to_string()))?;
        let version =
            contract::version(definition.labels()).ok_or(ReferenceError::NoContract { group, kind })?;
        let api_version = format!("{}/{version}", found.group);
        Ok(ApiResource { version, api_version, ..found })
    }
}

fn kind_of(to: &ContractReference) -> Kind {
    (to.api_group.clone(), to.kind.clone())
}

fn is_class(to: &ContractReference) -> bool {
    to.api_group == CLUSTER_GROUP && to.kind == clusters::CLASS
}

/// Returns the Cluster of an object, from its label or its owner reference.
fn cluster_of(object: &DynamicObject) -> Option<ClusterKey> {
    let owner = || {
        object.owner_references().iter().find(|owner| owner.kind == "Cluster").map(|owner| owner.name.clone())
    };
    let name = object.labels().get(CLUSTER_NAME_LABEL).cloned().or_else(owner)?;
    Some(ClusterKey::new(object.namespace()?, name))
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_cannot_be_listed_is_waited_for_once() {
        let resource = clusters::class_resource();
        let mut writer = Writer::new(resource.clone());
        let watched = Watched { resource, store: writer.as_reader(), failed: Mutex::default() };
        let start = tokio::time::Instant::now();
        for _ in 0..100 {
            assert!(!watched.is_listed().await);
        }
        assert_eq!(start.elapsed().as_secs(), LIST_LIMIT.as_secs());
        for event in [Event::Init, Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        assert!(watched.is_listed().await, "a list that is there counts at once");
    }

    #[test]
    fn waits_are_repeated_after_a_while() {
        let failed = Instant::now();
        assert_eq!(wait_limit(None, failed), LIST_LIMIT);
        assert_eq!(wait_limit(Some(failed), failed), Duration::ZERO);
        assert_eq!(wait_limit(Some(failed), failed + NOT_AGAIN), LIST_LIMIT);
    }
}
