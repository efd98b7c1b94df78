//! Objects that Clusters refer to (control planes, infrastructure clusters), of kinds known only at run time. The watch
//! of a kind starts when one of its objects is requested for the first time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chandler_api::capi::{CLUSTER_NAME_LABEL, ContractReference};
use chandler_core::{contract, identity::ClusterKey};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    discovery,
    runtime::reflector::{ObjectRef, Store, store::Writer},
};
use tokio::sync::OnceCell;

use crate::{
    locks::Mutex,
    routing::Router,
    watch::{Scope, are_listed, watch},
};

/// Timeout of the first list of a kind.
const LIST_LIMIT: Duration = Duration::from_secs(20);

type Kind = (String, String);

/// A watched kind.
#[derive(Debug)]
struct Watched {
    resource: ApiResource,
    store: Store<DynamicObject>,
}

/// Why a referenced object is unavailable.
#[derive(Debug, thiserror::Error)]
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
}

impl ReferenceError {
    /// Returns whether a retry may succeed without an event.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotServed { .. } | Self::NotListed { .. })
    }
}

/// The referenced objects. Clones share the watches.
#[derive(Clone)]
pub struct References {
    client: Client,
    scope: Scope,
    router: Router,
    kinds: Arc<Mutex<HashMap<Kind, Arc<OnceCell<Watched>>>>>,
}

impl References {
    pub fn new(client: Client, scope: Scope, router: Router) -> Self {
        Self { client, scope, router, kinds: Arc::default() }
    }

    /// Returns the object that a Cluster in `namespace` refers to. Waits for the first list of its kind.
    pub async fn get(
        &self,
        namespace: &str,
        to: &ContractReference,
    ) -> Result<Arc<DynamicObject>, ReferenceError> {
        let cell = self.cell(to);
        let watched = cell.get_or_try_init(|| self.watch(to)).await?;
        let listed = tokio::time::timeout(LIST_LIMIT, are_listed(std::slice::from_ref(&watched.store))).await;
        if listed != Ok(true) {
            return Err(ReferenceError::NotListed { group: to.api_group.clone(), kind: to.kind.clone() });
        }
        let key = ObjectRef::new_with(&to.name, watched.resource.clone()).within(namespace);
        watched.store.get(&key).ok_or_else(|| ReferenceError::Missing {
            kind: to.kind.clone(),
            namespace: namespace.to_owned(),
            name: to.name.clone(),
        })
    }

    /// Returns the object like [`References::get`], but does not wait: returns `None` if its kind is not listed yet.
    pub fn known(&self, namespace: &str, to: &ContractReference) -> Option<Arc<DynamicObject>> {
        let cell = self.cell(to);
        let watched = cell.get()?;
        watched.store.get(&ObjectRef::new_with(&to.name, watched.resource.clone()).within(namespace))
    }

    fn cell(&self, to: &ContractReference) -> Arc<OnceCell<Watched>> {
        let mut kinds = self.kinds.lock();
        kinds.entry((to.api_group.clone(), to.kind.clone())).or_default().clone()
    }

    async fn watch(&self, to: &ContractReference) -> Result<Watched, ReferenceError> {
        let resource = self.resource(to).await?;
        let router = self.router.clone();
        let writer = Writer::new(resource.clone());
        let store = writer.as_reader();
        watch(self.client.clone(), &self.scope, &resource, writer, move |change| {
            if let Some(cluster) = cluster_of(change.object()) {
                router.on_reference(&cluster);
            }
        });
        tracing::info!(
            kind = resource.kind,
            version = resource.version,
            "watching a kind that Clusters refer to"
        );
        Ok(Watched { resource, store })
    }

    async fn resource(&self, to: &ContractReference) -> Result<ApiResource, ReferenceError> {
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

/// Returns the Cluster of an object, from its label or its owner reference.
fn cluster_of(object: &DynamicObject) -> Option<ClusterKey> {
    let owner = || {
        object.owner_references().iter().find(|owner| owner.kind == "Cluster").map(|owner| owner.name.clone())
    };
    let name = object.labels().get(CLUSTER_NAME_LABEL).cloned().or_else(owner)?;
    Some(ClusterKey::new(object.namespace()?, name))
}
