//! The states of objects that are no workloads.

use serde_json::Value;

use super::{
    condition::{explain, find, shortened, with_status},
    object::{ObjectState, observed},
};

/// Returns the state of an object of any kind by the conventions of its status.
pub(super) fn any(object: &Value) -> ObjectState {
    if let Some(state) = observed(object, false) {
        return state;
    }
    if let Some(condition) = with_status(object, "Stalled", "True") {
        return ObjectState::failed(explain("it is stalled", condition));
    }
    if let Some(condition) = with_status(object, "Reconciling", "True") {
        return ObjectState::progressing(explain("it is being reconciled", condition));
    }
    for (type_, what) in [("Ready", "it is not ready"), ("Available", "it is not available")] {
        match find(object, type_) {
            Some(condition) if condition["status"] == "True" => return ObjectState::Healthy,
            Some(condition) => return ObjectState::progressing(explain(what, condition)),
            None => {}
        }
    }
    ObjectState::Healthy
}

pub(super) fn persistent_volume_claim(object: &Value) -> ObjectState {
    match object.pointer("/status/phase").and_then(Value::as_str) {
        Some("Bound") => ObjectState::Healthy,
        Some("Lost") => ObjectState::failed("its volume does not exist any more"),
        Some(phase) => {
            ObjectState::Progressing(shortened(&format!("it is not bound to a volume, its phase is {phase}")))
        }
        None => ObjectState::Unknown,
    }
}

/// Only a load balancer has a state. With external addresses of its own, it needs no other.
pub(super) fn service(object: &Value) -> ObjectState {
    let is_empty = |path| object.pointer(path).and_then(Value::as_array).is_none_or(Vec::is_empty);
    let is_load_balancer = object.pointer("/spec/type").is_some_and(|type_| type_ == "LoadBalancer");
    if is_load_balancer && is_empty("/spec/externalIPs") && is_empty("/status/loadBalancer/ingress") {
        return ObjectState::progressing("its load balancer has no address");
    }
    ObjectState::Healthy
}

pub(super) fn custom_resource_definition(object: &Value) -> ObjectState {
    if let Some(condition) = with_status(object, "NamesAccepted", "False") {
        return ObjectState::failed(explain("its names are not accepted", condition));
    }
    match find(object, "Established") {
        Some(condition) if condition["status"] == "True" => ObjectState::Healthy,
        Some(condition) => ObjectState::progressing(explain("it is not established", condition)),
        None => ObjectState::Unknown,
    }
}

pub(super) fn api_service(object: &Value) -> ObjectState {
    match find(object, "Available") {
        Some(condition) if condition["status"] == "True" => ObjectState::Healthy,
        // Its server may be starting.
        Some(condition) => ObjectState::progressing(explain("it is not available", condition)),
        None => ObjectState::Unknown,
    }
}

/// The pods belong to other objects, which have their own state: a budget without enough healthy pods does what it is for.
pub(super) fn pod_disruption_budget(object: &Value) -> ObjectState {
    observed(object, true).unwrap_or(ObjectState::Healthy)
}
