use serde_json::json;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Healthy,
    Progressing(&'static str),
    Failed(&'static str),
    Unknown,
}

/// Checks the states of objects of one kind. Each row has the spec and the status.
fn check(api_version: &str, kind: &str, rows: &[(&str, Value, Value, Is)]) {
    for (name, spec, status, expected) in rows {
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 2},
            "spec": spec, "status": status,
        });
        let expected = match expected {
            Is::Healthy => ObjectState::Healthy,
            Is::Progressing(reason) => ObjectState::progressing(*reason),
            Is::Failed(reason) => ObjectState::failed(*reason),
            Is::Unknown => ObjectState::Unknown,
        };
        assert_eq!(object_state(&object), expected, "{kind}: {name}");
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": type_, "status": status, "reason": reason, "message": message}])
}

const OUTDATED: Is = Is::Progressing("its controller has not seen the last change yet");

#[test]
fn deployments() {
    let two = || json!({"replicas": 2});
    let status = |all, updated, available| {
        let mut status = json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated});
        status["availableReplicas"] = json!(available);
        status
    };
    let mut exceeded = status(2, 2, 1);
    exceeded["conditions"] = condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out");
    let mut quota = status(0, 0, 0);
    quota["conditions"] = condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota");
    let rows = [
        ("all available", two(), status(2, 2, 2), Is::Healthy),
        ("one by default", json!({}), status(1, 1, 1), Is::Healthy),
        ("scaled to 0", json!({"replicas": 0}), json!({"observedGeneration": 2}), Is::Healthy),
        ("none available", two(), status(2, 2, 0), Is::Progressing("0 of 2 replicas are available")),
        (
            "no pods",
            two(),
            json!({"observedGeneration": 2}),
            Is::Progressing("0 of 2 replicas are available"),
        ),
        ("not updated", two(), status(2, 1, 2), Is::Progressing("1 of 2 replicas are updated")),
        ("old ones", two(), status(3, 2, 3), Is::Progressing("1 old replicas are being terminated")),
        ("outdated", two(), json!({"observedGeneration": 1, "availableReplicas": 2}), OUTDATED),
        (
            "deadline exceeded",
            two(),
            exceeded,
            Is::Failed("its rollout has stopped: ProgressDeadlineExceeded: timed out"),
        ),
        ("quota", two(), quota, Is::Failed("pods cannot be created: FailedCreate: exceeded quota")),
        ("no status", two(), json!({}), Is::Unknown),
    ];
    check("apps/v1", "Deployment", &rows);
}

#[test]
fn replica_sets() {
    let two = || json!({"replicas": 2});
    let status =
        |all, available| json!({"observedGeneration": 2, "replicas": all, "availableReplicas": available});
    let mut quota = status(0, 0);
    quota["conditions"] = condition("ReplicaFailure", "True", "FailedCreate", "");
    let rows = [
        ("all available", two(), status(2, 2), Is::Healthy),
        ("one available", two(), status(2, 1), Is::Progressing("1 of 2 replicas are available")),
        ("too many", two(), status(3, 3), Is::Progressing("1 replicas are being terminated")),
        ("outdated", two(), json!({"observedGeneration": 1}), OUTDATED),
        ("quota", two(), quota, Is::Failed("pods cannot be created: FailedCreate")),
        ("no status", two(), json!({}), Is::Unknown),
    ];
    check("apps/v1", "ReplicaSet", &rows);
}

#[test]
fn stateful_sets() {
    let three = || json!({"replicas": 3});
    let partition = || json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    let on_delete = || json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
    let status = |all: i64, ready: i64, updated: i64, revision: &str| {
        json!({"observedGeneration": 2, "replicas": all, "readyReplicas": ready, "updatedReplicas": updated,
            "currentRevision": "old", "updateRevision": revision})
    };
    let updating = Is::Progressing("1 of 3 replicas are updated");
    let rows = [
        ("all ready", three(), status(3, 3, 3, "old"), Is::Healthy),
        ("updated replicas are not counted", three(), status(3, 3, 0, "old"), Is::Healthy),
        ("one is not ready", three(), status(3, 2, 3, "old"), Is::Progressing("2 of 3 replicas are ready")),
        ("too many", three(), status(4, 4, 3, "old"), Is::Progressing("1 replicas are being terminated")),
        ("updating", three(), status(3, 3, 1, "new"), updating),
        ("updated up to the partition", partition(), status(3, 3, 1, "new"), Is::Healthy),
        ("updated by hand", on_delete(), status(3, 3, 0, "new"), Is::Healthy),
        (
            "updated by hand, not ready",
            on_delete(),
            status(3, 1, 0, "new"),
            Is::Progressing("1 of 3 replicas are ready"),
        ),
        ("outdated", three(), json!({"observedGeneration": 1}), OUTDATED),
        ("no status", three(), json!({}), Is::Unknown),
    ];
    check("apps/v1", "StatefulSet", &rows);
}

#[test]
fn daemon_sets() {
    let status = |wanted, updated, available| {
        json!({"observedGeneration": 2, "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated,
            "numberAvailable": available})
    };
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let rows = [
        ("all available", json!({}), status(3, 3, 3), Is::Healthy),
        ("no node", json!({}), status(0, 0, 0), Is::Healthy),
        ("one is not available", json!({}), status(3, 3, 2), Is::Progressing("2 of 3 pods are available")),
        ("updating", json!({}), status(3, 1, 3), Is::Progressing("1 of 3 pods are updated")),
        ("updated by hand", on_delete, status(3, 1, 3), Is::Healthy),
        ("outdated", json!({}), json!({"observedGeneration": 1}), OUTDATED),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("apps/v1", "DaemonSet", &rows);
}

#[test]
fn pods() {
    let status = |phase: &str, conditions: Value| json!({"phase": phase, "conditions": conditions});
    let mut crashing = status("Running", condition("Ready", "False", "ContainersNotReady", ""));
    crashing["containerStatuses"] = json!([
        {"name": "ok", "state": {"running": {}}},
        {"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}},
    ]);
    let mut starting = status("Pending", json!([]));
    starting["containerStatuses"] =
        json!([{"name": "web", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
    let unschedulable = status("Pending", condition("PodScheduled", "False", "Unschedulable", "0/1 nodes"));
    let rows = [
        ("ready", json!({}), status("Running", condition("Ready", "True", "", "")), Is::Healthy),
        ("done", json!({}), status("Succeeded", json!([])), Is::Healthy),
        (
            "not ready",
            json!({}),
            status("Running", condition("Ready", "False", "ContainersNotReady", "")),
            Is::Progressing("it is not ready: ContainersNotReady"),
        ),
        ("starting", json!({}), starting, Is::Progressing("it is not ready")),
        ("crashing", json!({}), crashing, Is::Failed("container web: CrashLoopBackOff")),
        (
            "unschedulable",
            json!({}),
            unschedulable,
            Is::Failed("it is not scheduled: Unschedulable: 0/1 nodes"),
        ),
        (
            "failed",
            json!({}),
            json!({"phase": "Failed", "reason": "Evicted"}),
            Is::Failed("it has failed: Evicted"),
        ),
        ("node lost", json!({}), json!({"phase": "Unknown"}), Is::Unknown),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("v1", "Pod", &rows);
}

#[test]
fn jobs() {
    let done = |type_: &str| json!({"startTime": "t", "conditions": condition(type_, "True", "", "")});
    let failed = json!({"conditions": condition("Failed", "True", "BackoffLimitExceeded", "too many")});
    let rows = [
        ("complete", json!({}), done("Complete"), Is::Healthy),
        ("suspended", json!({}), json!({"conditions": condition("Suspended", "True", "", "")}), Is::Healthy),
        ("running", json!({}), json!({"startTime": "t", "active": 1}), Is::Healthy),
        ("failed", json!({}), failed, Is::Failed("it has failed: BackoffLimitExceeded: too many")),
        ("failing", json!({}), done("FailureTarget"), Is::Failed("it has failed")),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("batch/v1", "Job", &rows);
}

#[test]
fn claims_and_services() {
    let rows = [
        ("bound", json!({}), json!({"phase": "Bound"}), Is::Healthy),
        (
            "pending",
            json!({}),
            json!({"phase": "Pending"}),
            Is::Progressing("it is not bound to a volume, its phase is Pending"),
        ),
        ("lost", json!({}), json!({"phase": "Lost"}), Is::Failed("its volume does not exist any more")),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("v1", "PersistentVolumeClaim", &rows);
    let balancer = || json!({"type": "LoadBalancer"});
    let rows = [
        ("internal", json!({"type": "ClusterIP"}), json!({"loadBalancer": {}}), Is::Healthy),
        ("address", balancer(), json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}), Is::Healthy),
        (
            "own address",
            json!({"type": "LoadBalancer", "externalIPs": ["192.0.2.1"]}),
            json!({}),
            Is::Healthy,
        ),
        (
            "no address",
            balancer(),
            json!({"loadBalancer": {}}),
            Is::Progressing("its load balancer has no address"),
        ),
    ];
    check("v1", "Service", &rows);
}

#[test]
fn kinds_that_extend_the_api() {
    let names = condition("NamesAccepted", "False", "ListKindConflict", "in use");
    let rows = [
        (
            "established",
            json!({}),
            json!({"conditions": condition("Established", "True", "", "")}),
            Is::Healthy,
        ),
        (
            "installing",
            json!({}),
            json!({"conditions": condition("Established", "False", "Installing", "")}),
            Is::Progressing("it is not established: Installing"),
        ),
        (
            "names in use",
            json!({}),
            json!({"conditions": names}),
            Is::Failed("its names are not accepted: ListKindConflict: in use"),
        ),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("apiextensions.k8s.io/v1", "CustomResourceDefinition", &rows);
    let rows = [
        (
            "available",
            json!({}),
            json!({"conditions": condition("Available", "True", "Passed", "")}),
            Is::Healthy,
        ),
        (
            "unavailable",
            json!({}),
            json!({"conditions": condition("Available", "False", "MissingEndpoints", "none")}),
            Is::Progressing("it is not available: MissingEndpoints: none"),
        ),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("apiregistration.k8s.io/v1", "APIService", &rows);
}

#[test]
fn pod_disruption_budgets() {
    let status = |healthy, wanted| json!({"observedGeneration": 2, "currentHealthy": healthy, "desiredHealthy": wanted});
    let rows = [
        ("enough", json!({}), status(2, 2), Is::Healthy),
        ("none wanted", json!({}), status(0, 0), Is::Healthy),
        ("too few, which is the state of other objects", json!({}), status(1, 2), Is::Healthy),
        ("outdated", json!({}), json!({"observedGeneration": 1}), OUTDATED),
        ("no status", json!({}), json!({}), Is::Unknown),
    ];
    check("policy/v1", "PodDisruptionBudget", &rows);
}

#[test]
fn other_kinds_follow_the_conventions_of_conditions() {
    let with = |type_: &str, status: &str| json!({"conditions": condition(type_, status, "Why", "because")});
    let rows = [
        ("ready", json!({}), with("Ready", "True"), Is::Healthy),
        ("not ready", json!({}), with("Ready", "False"), Is::Progressing("it is not ready: Why: because")),
        ("unknown", json!({}), with("Ready", "Unknown"), Is::Progressing("it is not ready: Why: because")),
        ("available", json!({}), with("Available", "True"), Is::Healthy),
        (
            "unavailable",
            json!({}),
            with("Available", "False"),
            Is::Progressing("it is not available: Why: because"),
        ),
        ("stalled", json!({}), with("Stalled", "True"), Is::Failed("it is stalled: Why: because")),
        ("not stalled", json!({}), with("Stalled", "False"), Is::Healthy),
        (
            "reconciling",
            json!({}),
            with("Reconciling", "True"),
            Is::Progressing("it is being reconciled: Why: because"),
        ),
        ("another condition", json!({}), with("Synced", "False"), Is::Healthy),
        ("outdated", json!({}), json!({"observedGeneration": 1}), OUTDATED),
        // It is not known whether the kind has a controller that reports a status.
        ("no status", json!({}), json!({}), Is::Healthy),
    ];
    check("cert-manager.io/v1", "Certificate", &rows);
    let existing =
        [("existing", json!({}), json!({"conditions": condition("Ready", "False", "", "")}), Is::Healthy)];
    check("v1", "ConfigMap", &existing);
}

#[test]
fn an_object_that_is_being_deleted_is_not_healthy() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    });
    assert_eq!(object_state(&object), ObjectState::progressing("it is being deleted"));
}

#[test]
fn long_messages_are_shortened() {
    let status = json!({"conditions": condition("Ready", "False", "", &"ä".repeat(1_000))});
    let object = json!({"apiVersion": "x.example/v1", "kind": "X", "metadata": {}, "status": status});
    let ObjectState::Progressing(reason) = object_state(&object) else {
        panic!("{:?}", object_state(&object))
    };
    assert_eq!(reason, format!("it is not ready: {}…", "ä".repeat(256)));
}
