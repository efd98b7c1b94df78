//! Access to objects whose kind is only known at run time.

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;

/// Returns the API resource of a kind. `api_version` is for example `v1` or `cluster.x-k8s.io/v1beta2`.
pub fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Returns the objects of a kind in a namespace.
pub fn namespaced(
    client: &kube::Client,
    namespace: &str,
    api_version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(api_version, kind))
}

/// Returns `None` if the object does not exist.
pub fn ignore_not_found<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
