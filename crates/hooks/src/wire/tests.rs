use serde_json::json;

use super::*;

#[test]
fn answers_hold_by_seconds_and_never_by_failure() {
    let wait = |seconds| Answer::Wait { seconds, message: "moving".to_owned() };
    let rows = [
        (Answer::Go, 0, ""),
        (wait(20), 20, "moving"),
        // Nought would let go.
        (wait(0), 1, "moving"),
        (wait(u32::MAX), 60, "moving"),
        (
            Answer::Refuse { message: "cni blocks".to_owned() },
            15,
            "cni blocks (annotation chandler.dev/proceed: BeforeClusterUpgrade on the Cluster lets it go on)",
        ),
    ];
    for (answer, seconds, message) in rows {
        let expected = json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
            "kind": "BeforeClusterUpgradeResponse",
            "status": "Success",
            "message": message,
            "retryAfterSeconds": seconds,
        });
        let response = response(Hook::BeforeClusterUpgrade, &answer, false);
        assert_eq!(serde_json::to_value(response).unwrap(), expected, "{answer:?}");
    }
}

#[test]
fn a_person_overrules_what_holds_and_nothing_else() {
    let message = || "cni moves".to_owned();
    let although = "Annotation chandler.dev/proceed lets AfterClusterUpgrade go on although: cni moves";
    let rows = [
        (Answer::Go, ""),
        (Answer::Wait { seconds: 5, message: message() }, although),
        (Answer::Refuse { message: message() }, although),
    ];
    for (answer, message) in rows {
        let response = response(Hook::AfterClusterUpgrade, &answer, true);
        assert_eq!((response.retry_after_seconds, response.message.as_str()), (0, message), "{answer:?}");
    }
}

#[test]
fn a_message_fits_its_condition_and_keeps_its_way_out() {
    let message = "ü".repeat(LONGEST_MESSAGE + 1);
    let short = format!("{}…", "ü".repeat(LONGEST_MESSAGE));
    let waiting = Answer::Wait { seconds: 5, message: message.clone() };
    assert_eq!(response(Hook::BeforeClusterDelete, &waiting, false).message, short);
    let refused = response(Hook::BeforeClusterDelete, &Answer::Refuse { message }, false).message;
    assert!(refused.starts_with(&short) && refused.contains("chandler.dev/proceed: BeforeClusterDelete"));
}

#[test]
fn discovery_offers_what_the_cluster_api_knows() {
    let offered = |steps, policy| {
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
    let all = offered(true, FailurePolicy::Fail);
    assert_eq!(all[0], first);
    let policies: Vec<_> = all.iter().map(|handler| handler["failurePolicy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["Fail", "Fail", "Ignore", "Ignore", "Ignore"]);
    let older = offered(false, FailurePolicy::Ignore);
    let names: Vec<_> =
        older.iter().map(|handler| handler["requestHook"]["hook"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["BeforeClusterUpgrade", "AfterControlPlaneUpgrade", "AfterClusterUpgrade", "BeforeClusterDelete"]
    );
    assert!(older.iter().all(|handler| handler["failurePolicy"] == "Ignore"));
}

#[test]
fn hooks_are_where_cluster_api_calls_them() {
    assert_eq!(
        Hook::BeforeControlPlaneUpgrade.path(),
        "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforecontrolplaneupgrade/before-control-plane-upgrade"
    );
}
