use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;

/// Notes what it is asked.
#[derive(Default)]
struct Noted(Mutex<Vec<String>>);

impl Noted {
    fn note(&self, words: &[&str]) -> Answer {
        self.0.lock().unwrap().push(words.join(" "));
        Answer::Go
    }
}

impl Answers for Noted {
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer {
        self.note(&["before upgrade", &cluster.to_string(), from, to])
    }

    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> Answer {
        self.note(&["before step", &cluster.to_string(), from, to])
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer {
        self.note(&["after step", &cluster.to_string(), version])
    }

    fn after_cluster_upgrade(&self, cluster: &ClusterKey, version: &str) -> Answer {
        self.note(&["after upgrade", &cluster.to_string(), version])
    }

    fn before_cluster_delete(&self, cluster: &ClusterKey) -> Answer {
        self.note(&["before delete", &cluster.to_string()])
    }
}

/// As Cluster API sends it, with fields that are none of our business.
fn request(extra: &Value) -> Vec<u8> {
    let mut request = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
        "settings": {"key": "value"},
        "cluster": {
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "metadata": {"namespace": "fleet", "name": "blue", "creationTimestamp": null},
            "spec": {"topology": {"class": "any", "version": "v1.35.4"}},
        },
        "controlPlaneUpgrades": [{"version": "v1.35.4"}],
    });
    for (key, value) in extra.as_object().unwrap() {
        request[key] = value.clone();
    }
    serde_json::to_vec(&request).unwrap()
}

#[test]
fn each_hook_asks_its_own_question() {
    let range = json!({"fromKubernetesVersion": "v1.34.4", "toKubernetesVersion": "v1.35.4"});
    let reached = json!({"kubernetesVersion": "v1.35.4"});
    let rows = [
        (Hook::BeforeClusterUpgrade, &range, "before upgrade fleet/blue v1.34.4 v1.35.4"),
        (Hook::BeforeControlPlaneUpgrade, &range, "before step fleet/blue v1.34.4 v1.35.4"),
        (Hook::AfterControlPlaneUpgrade, &reached, "after step fleet/blue v1.35.4"),
        (Hook::AfterClusterUpgrade, &reached, "after upgrade fleet/blue v1.35.4"),
        (Hook::BeforeClusterDelete, &json!({}), "before delete fleet/blue"),
    ];
    for (hook, extra, question) in rows {
        let noted = Noted::default();
        let (cluster, _) = ask(hook, &request(extra), &noted).unwrap();
        assert_eq!(cluster, ClusterKey::new("fleet", "blue"));
        assert_eq!(*noted.0.lock().unwrap(), [question], "{hook:?}");
    }
}

#[test]
fn what_is_no_request_asks_nobody() {
    let nameless = json!({"cluster": {"metadata": {"name": "blue"}}}).to_string().into_bytes();
    for (hook, body) in [
        (Hook::BeforeClusterDelete, b"".to_vec()),
        (Hook::BeforeClusterDelete, nameless),
        (Hook::BeforeClusterUpgrade, request(&json!({}))),
        (Hook::AfterClusterUpgrade, request(&json!({}))),
    ] {
        let noted = Noted::default();
        assert!(ask(hook, &body, &noted).is_err(), "{hook:?}");
        assert!(noted.0.lock().unwrap().is_empty());
    }
}

#[test]
fn answers_hold_by_seconds_and_never_by_failure() {
    let wait = |seconds| Answer::Wait { seconds, message: "moving".to_owned() };
    let rows = [
        (Answer::Go, 0, ""),
        (wait(20), 20, "moving"),
        // Nought would let go.
        (wait(0), 1, "moving"),
        (wait(u32::MAX), 600, "moving"),
        (Answer::Refuse { message: "cni blocks".to_owned() }, 15, "cni blocks"),
    ];
    for (answer, seconds, message) in rows {
        let expected = json!({
            "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1",
            "kind": "BeforeClusterUpgradeResponse",
            "status": "Success",
            "message": message,
            "retryAfterSeconds": seconds,
        });
        let response = response(Hook::BeforeClusterUpgrade, &answer);
        assert_eq!(serde_json::to_value(response).unwrap(), expected, "{answer:?}");
    }
}

#[test]
fn a_message_fits_its_condition() {
    let long = "ü".repeat(LONGEST_MESSAGE + 1);
    let short = response(Hook::BeforeClusterDelete, &Answer::Refuse { message: long }).message;
    assert_eq!(short, format!("{}…", "ü".repeat(LONGEST_MESSAGE)));
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
