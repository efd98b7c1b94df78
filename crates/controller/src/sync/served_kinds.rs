//! The kinds that the API server serves.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chandler_api::extensions::SyncedObject;
use chandler_core::{
    failure::{Failure, root_cause},
    sync::{ObjectId, Scope},
};
use kube::{Client, api::ApiResource, core::GroupVersionKind, discovery};

use super::impersonated_client::Location;
use crate::{error::management_category, single_flight::SingleFlight};

/// How long the discovery of a kind is cached.
const KIND_KNOWN: Duration = Duration::from_mins(1);

/// A kind that the API server serves.
#[derive(Debug)]
pub struct ServedKind {
    pub resource: ApiResource,
    pub scope: Scope,
}

impl ServedKind {
    /// Returns where an object of the kind is.
    pub fn location<'a>(&'a self, id: &'a ObjectId) -> Location<'a> {
        let namespace = (self.scope == Scope::Namespaced).then_some(&*id.namespace);
        Location { resource: &self.resource, namespace, name: &id.name }
    }
}

/// The kinds that were asked for. Those that the API server does not serve are missing.
pub type FoundKinds = HashMap<GroupVersionKind, Arc<ServedKind>>;

/// Discovers kinds, with a short-lived cache. A kind that is not served is not cached.
pub struct ServedKinds {
    client: Client,
    known: SingleFlight<GroupVersionKind, Arc<ServedKind>>,
}

impl ServedKinds {
    pub fn new(client: Client) -> Self {
        Self { client, known: SingleFlight::new(KIND_KNOWN) }
    }

    /// Returns those of `kinds` that the API server serves.
    pub async fn find(
        &self,
        kinds: impl IntoIterator<Item = GroupVersionKind>,
    ) -> Result<FoundKinds, Failure> {
        let mut found = FoundKinds::new();
        for kind in kinds {
            if found.contains_key(&kind) {
                continue;
            }
            if let Some(served) = self.get(&kind).await? {
                found.insert(kind, served);
            }
        }
        Ok(found)
    }

    async fn get(&self, kind: &GroupVersionKind) -> Result<Option<Arc<ServedKind>>, Failure> {
        let fetch = async {
            let (resource, capabilities) =
                discovery::pinned_kind(&self.client, kind).await.map_err(|error| problem(kind, &error))?;
            let scope = match capabilities.scope {
                discovery::Scope::Cluster => Scope::Cluster,
                discovery::Scope::Namespaced => Scope::Namespaced,
            };
            Ok::<_, Option<Failure>>(Arc::new(ServedKind { resource, scope }))
        };
        match self.known.get(kind, fetch).await {
            Ok(served) => Ok(Some(served)),
            Err(None) => Ok(None),
            Err(Some(failure)) => Err(failure),
        }
    }
}

/// Returns `None` if the API server has answered that it does not serve the kind.
fn problem(kind: &GroupVersionKind, error: &kube::Error) -> Option<Failure> {
    match error {
        kube::Error::Discovery(_) => None,
        kube::Error::Api(status) if status.code == 404 => None,
        _ => {
            let message = format!(
                "{} of {} cannot be discovered: {}",
                kind.kind,
                kind.api_version(),
                root_cause(error)
            );
            Some(Failure::new(management_category(error), message))
        }
    }
}

/// Returns the kind of an object in an inventory.
pub fn kind_of(object: &SyncedObject) -> GroupVersionKind {
    let (group, version) = object.api_version.rsplit_once('/').unwrap_or(("", &object.api_version));
    GroupVersionKind::gvk(group, version, &object.kind)
}
