//! The states of workloads.

use serde_json::Value;

use super::{
    condition::{explain, find, shortened, with_status},
    object::{ObjectState, number, observed},
};

pub(super) fn deployment(object: &Value) -> ObjectState {
    if let Some(state) = observed(object, true) {
        return state;
    }
    let exceeded = with_status(object, "Progressing", "False")
        .filter(|condition| condition["reason"] == "ProgressDeadlineExceeded");
    if let Some(condition) = exceeded {
        return ObjectState::failed(explain("its rollout has stopped", condition));
    }
    if let Some(failure) = replica_failure(object) {
        return failure;
    }
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let [all, updated, available] =
        ["/status/replicas", "/status/updatedReplicas", "/status/availableReplicas"]
            .map(|path| count(object, path));
    if available < wanted {
        ObjectState::Progressing(format!("{available} of {wanted} replicas are available"))
    } else if updated < wanted {
        ObjectState::Progressing(format!("{updated} of {wanted} replicas are updated"))
    } else if all > updated {
        ObjectState::Progressing(format!("{} old replicas are being terminated", all - updated))
    } else {
        ObjectState::Healthy
    }
}

pub(super) fn replica_set(object: &Value) -> ObjectState {
    if let Some(state) = observed(object, true).or_else(|| replica_failure(object)) {
        return state;
    }
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let [all, available] = ["/status/replicas", "/status/availableReplicas"].map(|path| count(object, path));
    if available < wanted {
        ObjectState::Progressing(format!("{available} of {wanted} replicas are available"))
    } else if all > wanted {
        ObjectState::Progressing(format!("{} replicas are being terminated", all - wanted))
    } else {
        ObjectState::Healthy
    }
}

pub(super) fn stateful_set(object: &Value) -> ObjectState {
    if let Some(state) = observed(object, true) {
        return state;
    }
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let [all, ready, updated] = ["/status/replicas", "/status/readyReplicas", "/status/updatedReplicas"]
        .map(|path| count(object, path));
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    let to_update = (wanted - partition).max(0);
    if ready < wanted {
        ObjectState::Progressing(format!("{ready} of {wanted} replicas are ready"))
    } else if all > wanted {
        ObjectState::Progressing(format!("{} replicas are being terminated", all - wanted))
    } else if !updates_on_delete(object) && updated < to_update && is_updating(object) {
        ObjectState::Progressing(format!("{updated} of {to_update} replicas are updated"))
    } else {
        ObjectState::Healthy
    }
}

/// Returns whether a StatefulSet has replicas of two revisions. `updatedReplicas` is unset if it has not.
fn is_updating(object: &Value) -> bool {
    let revision = |path| object.pointer(path).and_then(Value::as_str);
    let updated = revision("/status/updateRevision");
    updated.is_some() && updated != revision("/status/currentRevision")
}

pub(super) fn daemon_set(object: &Value) -> ObjectState {
    if let Some(state) = observed(object, true) {
        return state;
    }
    let wanted = count(object, "/status/desiredNumberScheduled");
    let [updated, available] =
        ["/status/updatedNumberScheduled", "/status/numberAvailable"].map(|path| count(object, path));
    if available < wanted {
        ObjectState::Progressing(format!("{available} of {wanted} pods are available"))
    } else if !updates_on_delete(object) && updated < wanted {
        ObjectState::Progressing(format!("{updated} of {wanted} pods are updated"))
    } else {
        ObjectState::Healthy
    }
}

fn updates_on_delete(object: &Value) -> bool {
    object.pointer("/spec/updateStrategy/type").is_some_and(|strategy| strategy == "OnDelete")
}

/// Returns the failure of a controller that cannot create pods, for example because of a quota.
fn replica_failure(object: &Value) -> Option<ObjectState> {
    let condition = with_status(object, "ReplicaFailure", "True")?;
    Some(ObjectState::failed(explain("pods cannot be created", condition)))
}

fn count(object: &Value, path: &str) -> i64 {
    number(object, path).unwrap_or(0)
}

pub(super) fn pod(object: &Value) -> ObjectState {
    let phase = object.pointer("/status/phase").and_then(Value::as_str);
    match phase {
        Some("Succeeded") => ObjectState::Healthy,
        Some("Failed") => {
            let status = &object["status"];
            ObjectState::failed(explain("it has failed", status))
        }
        Some("Running" | "Pending") => {
            if with_status(object, "Ready", "True").is_some() {
                return ObjectState::Healthy;
            }
            if let Some(reason) = waiting_container(object) {
                return ObjectState::Failed(reason);
            }
            let unscheduled = with_status(object, "PodScheduled", "False")
                .filter(|condition| condition["reason"] == "Unschedulable");
            match (unscheduled, find(object, "Ready")) {
                (Some(condition), _) => ObjectState::failed(explain("it is not scheduled", condition)),
                (None, Some(condition)) => ObjectState::progressing(explain("it is not ready", condition)),
                (None, None) => ObjectState::progressing("it is not ready"),
            }
        }
        _ => ObjectState::Unknown,
    }
}

/// Returns the first container that cannot start, or that crashes again and again.
fn waiting_container(pod: &Value) -> Option<String> {
    const FAILURES: [&str; 8] = [
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    ];
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .into_iter()
        .filter_map(|path| pod.pointer(path)?.as_array())
        .flatten();
    containers.into_iter().find_map(|container| {
        let reason = container.pointer("/state/waiting/reason")?.as_str()?;
        let name = container["name"].as_str().unwrap_or_default();
        FAILURES.contains(&reason).then(|| shortened(&format!("container {name}: {reason}")))
    })
}

pub(super) fn job(object: &Value) -> ObjectState {
    for type_ in ["Failed", "FailureTarget"] {
        if let Some(condition) = with_status(object, type_, "True") {
            return ObjectState::failed(explain("it has failed", condition));
        }
    }
    let is_over = ["Complete", "SuccessCriteriaMet", "Suspended"]
        .into_iter()
        .any(|type_| with_status(object, type_, "True").is_some());
    let has_started = object.pointer("/status/startTime").is_some_and(|time| !time.is_null());
    // A Job may run for long: that is no reason to call its release unhealthy.
    if is_over || has_started { ObjectState::Healthy } else { ObjectState::Unknown }
}
