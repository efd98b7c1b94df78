//! Writes status and finalizers, and what all kinds have in common.

use std::fmt::Debug;

use chandler_api::{FIELD_MANAGER, capi::PAUSED_ANNOTATION};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{ManagementError, error::write_result};

/// A namespaced kind whose objects can be read and written.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug
{
}

/// Writes the status of an object. Returns the object as the API server has stored it, or `None` if it has been deleted.
pub async fn write<K: Kind, S: Serialize>(
    client: &Client,
    object: &K,
    status: &S,
) -> Result<Option<K>, ManagementError> {
    let name = object.name_any();
    let patch = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {"name": name, "uid": object.uid()}, "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let result = api(client, object).patch_status(&name, &parameters, &Patch::Apply(patch)).await;
    write_result(kind::<K>(), name, result)
}

/// Adds a finalizer if the object does not have it.
pub async fn add_finalizer<K: Kind>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<(), ManagementError> {
    if object.finalizers().iter().any(|held| held == finalizer) {
        return Ok(());
    }
    let finalizers: Vec<_> = object.finalizers().iter().map(String::as_str).chain([finalizer]).collect();
    finalize(client, object, &finalizers).await
}

/// Removes a finalizer, so that the object can be deleted.
pub async fn remove_finalizer<K: Kind>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<(), ManagementError> {
    if !object.finalizers().iter().any(|held| held == finalizer) {
        return Ok(());
    }
    let finalizers: Vec<_> =
        object.finalizers().iter().map(String::as_str).filter(|held| *held != finalizer).collect();
    finalize(client, object, &finalizers).await
}

async fn finalize<K: Kind>(client: &Client, object: &K, finalizers: &[&str]) -> Result<(), ManagementError> {
    let name = object.name_any();
    // With the resource version, the write fails if another client has changed the list.
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    let result = api(client, object).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    write_result(kind::<K>(), name, result).map(drop)
}

/// Returns whether a placement or a release object is paused. A Cluster is paused by its spec instead.
pub fn is_paused<K: Resource>(object: &K) -> bool {
    object.annotations().contains_key(PAUSED_ANNOTATION)
}

/// Returns the API of an object's kind in its namespace.
pub fn api<K>(client: &Client, object: &K) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), object.meta().namespace.as_deref().unwrap_or_default())
}

/// Returns the name of a kind.
pub fn kind<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "object",
    }
}
