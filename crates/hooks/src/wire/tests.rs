use serde_json::json;

use super::*;

#[test]
fn responses_block_by_retry_seconds_and_never_fail() {
    let wait = |seconds| HookResponse::RetryAfter { seconds, message: "moving".to_owned() };
    let rows = [
        (HookResponse::Proceed, 0, ""),
        (wait(20), 20, "moving"),
        // Zero would not block.
        (wait(0), 1, "moving"),
        (wait(u32::MAX), 60, "moving"),
        (
            HookResponse::Block { message: "cni blocks".to_owned() },
            15,
            "cni blocks (to proceed anyway, set annotation chandler.dev/proceed: BeforeClusterUpgrade on the Cluster)",
        ),
    ];
    for (response, seconds, message) in rows {
        let expected = json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
            "kind": "BeforeClusterUpgradeResponse",
            "status": "Success",
            "message": message,
            "retryAfterSeconds": seconds,
        });
        let written = super::response(Hook::BeforeClusterUpgrade, &response, false);
        assert_eq!(serde_json::to_value(written).unwrap(), expected, "{response:?}");
    }
}

#[test]
fn proceed_annotation_overrides_blocking_responses_only() {
    let message = || "cni is being upgraded".to_owned();
    let overridden = "annotation chandler.dev/proceed overrides AfterClusterUpgrade: cni is being upgraded";
    let rows = [
        (HookResponse::Proceed, ""),
        (HookResponse::RetryAfter { seconds: 5, message: message() }, overridden),
        (HookResponse::Block { message: message() }, overridden),
    ];
    for (response, message) in rows {
        let written = super::response(Hook::AfterClusterUpgrade, &response, true);
        assert_eq!((written.retry_after_seconds, written.message.as_str()), (0, message), "{response:?}");
    }
}

#[test]
fn long_messages_are_truncated_and_keep_the_hint() {
    let message = "ü".repeat(MAX_MESSAGE_CHARS + 1);
    let short = format!("{}…", "ü".repeat(MAX_MESSAGE_CHARS));
    let waiting = HookResponse::RetryAfter { seconds: 5, message: message.clone() };
    assert_eq!(response(Hook::BeforeClusterDelete, &waiting, false).message, short);
    let blocked = response(Hook::BeforeClusterDelete, &HookResponse::Block { message }, false).message;
    assert!(blocked.starts_with(&short) && blocked.contains("chandler.dev/proceed: BeforeClusterDelete"));
}

#[test]
fn discovery_lists_only_hooks_that_cluster_api_supports() {
    let handlers = |steps, policy| {
        let response = serde_json::to_value(discovery(steps, policy)).unwrap();
        assert_eq!(
            (&response["kind"], &response["status"]),
            (&json!("DiscoveryResponse"), &json!("Success"))
        );
        response["handlers"].as_array().unwrap().clone()
    };
    let first = json!({
        "name": "before-cluster-upgrade",
        "requestHook": {
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": "BeforeClusterUpgrade",
        },
        "timeoutSeconds": 5,
        "failurePolicy": "Fail",
    });
    let all = handlers(true, FailurePolicy::Fail);
    assert_eq!(all[0], first);
    let policies: Vec<_> = all.iter().map(|handler| handler["failurePolicy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["Fail", "Fail", "Ignore", "Ignore", "Fail"]);
    let older = handlers(false, FailurePolicy::Ignore);
    let names: Vec<_> =
        older.iter().map(|handler| handler["requestHook"]["hook"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["BeforeClusterUpgrade", "AfterControlPlaneUpgrade", "AfterClusterUpgrade", "BeforeClusterDelete"]
    );
    assert!(older.iter().all(|handler| handler["failurePolicy"] == "Ignore"));
}

#[test]
fn path_matches_the_path_that_cluster_api_calls() {
    assert_eq!(
        Hook::BeforeControlPlaneUpgrade.path(),
        "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforecontrolplaneupgrade/before-control-plane-upgrade"
    );
}
