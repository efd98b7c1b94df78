//! The state of one object, as kstatus computes it from its metadata and status.

use serde_json::Value;

use super::{generic, kinds, workloads};

/// The state of an object. The texts are reasons for users, and contain nothing but the status of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    Healthy,
    /// Its controller has not reached the desired state yet.
    Progressing(String),
    /// Its controller has given up, or needs help.
    Failed(String),
    /// Nothing has been reported about it.
    Unknown,
}

impl ObjectState {
    pub(super) fn progressing(reason: impl Into<String>) -> Self {
        Self::Progressing(reason.into())
    }

    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

/// Returns the state of an object in the JSON form of the API server.
///
/// Of a kind whose controller has to report a status, an object without one is `Unknown`: nothing is concluded from missing
/// information. An object of another kind is healthy unless its status says otherwise.
pub fn object_state(object: &Value) -> ObjectState {
    if let Some(state) = being_deleted(object) {
        return state;
    }
    let [api_version, kind] = ["apiVersion", "kind"].map(|field| object[field].as_str().unwrap_or_default());
    match (kinds::group(api_version), kind) {
        ("apps", "Deployment") => workloads::deployment(object),
        ("apps", "StatefulSet") => workloads::stateful_set(object),
        ("apps", "DaemonSet") => workloads::daemon_set(object),
        ("apps", "ReplicaSet") => workloads::replica_set(object),
        ("", "Pod") => workloads::pod(object),
        ("batch", "Job") => workloads::job(object),
        ("", "PersistentVolumeClaim") => generic::persistent_volume_claim(object),
        ("", "Service") => generic::service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => generic::custom_resource_definition(object),
        ("apiregistration.k8s.io", "APIService") => generic::api_service(object),
        ("policy", "PodDisruptionBudget") => generic::pod_disruption_budget(object),
        _ if !kinds::has_status(api_version, kind) => ObjectState::Healthy,
        _ => generic::any(object),
    }
}

/// Returns the state of an object that is being deleted.
pub(super) fn being_deleted(object: &Value) -> Option<ObjectState> {
    let deleted = object.pointer("/metadata/deletionTimestamp")?;
    (!deleted.is_null()).then(|| ObjectState::progressing("it is being deleted"))
}

/// Returns a number of the status or spec.
pub(super) fn number(object: &Value, path: &str) -> Option<i64> {
    object.pointer(path)?.as_i64()
}

/// Returns the state that results from `observedGeneration`, or `None` if the controller has observed the current spec.
/// `required` means that the controller always reports it.
pub(super) fn observed(object: &Value, required: bool) -> Option<ObjectState> {
    let generation = number(object, "/metadata/generation");
    match (number(object, "/status/observedGeneration"), generation) {
        (None, _) if required => Some(ObjectState::Unknown),
        (Some(observed), Some(generation)) if observed < generation => {
            Some(ObjectState::progressing("its controller has not seen the last change yet"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
