//! Requests to the runtime hooks that Cluster API has not sent.

use std::time::Duration;

use chandler_e2e::{
    manager::{Manager, peak_memory},
    self_hosted::SelfHosted,
    wait::until,
};
use chandler_sandbox::{plane::free_port, provider::cluster_resource};
use futures::future::join_all;
use http::Request;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::tenants::{Tenant, apply_catalog, platform_source, publish_settings};

/// Cluster API does not wait longer for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Additional memory that the manager may take for all requests, in KiB.
const MAX_GROWTH: u64 = 100 << 10;
const REQUESTS: usize = 16;
const ENDLESS: &str = "v1.18446744073709551615.0";
const HOOKS: [&str; 3] = [
    "beforeclusterupgrade/before-cluster-upgrade",
    "beforecontrolplaneupgrade/before-control-plane-upgrade",
    "aftercontrolplaneupgrade/after-control-plane-upgrade",
];

/// A Pod that sends requests to the hooks of a manager.
struct Pod(Client);

impl Pod {
    fn new(address: &str) -> Self {
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.read_timeout = Some(ANSWERED_WITHIN);
        Self(Client::try_from(config).unwrap())
    }

    /// Announces an upgrade of Cluster `red/main`. Returns the message if the answer is not to proceed.
    async fn post(&self, hook: &str, to: &str) -> Option<String> {
        let body = json!({
            "cluster": {"metadata": {"namespace": "red", "name": "main"}},
            "fromKubernetesVersion": "v1.34.4", "toKubernetesVersion": to, "kubernetesVersion": to,
        });
        let request = Request::post(format!("/hooks.runtime.cluster.x-k8s.io/v1alpha1/{hook}"));
        let answer: Value = self.0.request(request.body(body.to_string().into()).unwrap()).await.unwrap();
        assert_eq!(answer["status"], "Success", "{answer}");
        (answer["retryAfterSeconds"] != 0).then(|| answer["message"].as_str().unwrap().to_owned())
    }
}

async fn set_topology(test: &SelfHosted, version: &str) {
    let client = test.management.client.clone();
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, "red", &cluster_resource());
    let patch = Patch::Merge(json!({"spec": {"topology": {"version": version}}}));
    clusters.patch("main", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn upgrades_that_no_cluster_wants_are_not_planned() {
    let test = SelfHosted::new("hook-requests").await;
    publish_settings(&test.repository, "settings", &["1.0.0"]).await;
    apply_catalog(&test, "charts", &test.repository, json!({})).await;
    let red = Tenant::new(&test, "red", &test.management.plane).await;
    let version = json!({
        "version": "1.0.0", "kubernetes": "*", "source": platform_source("charts", "settings", None),
    });
    red.apply("Extension", "web", json!({"versions": [version]})).await;
    red.apply_instance("web", json!({"extension": {"name": "web"}})).await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let arguments = ["--hooks-pod-ip", "127.0.0.1", "--hooks-address", &address];
    let manager = Manager::from_process(test.management.start_manager_with(&arguments));
    red.wait_ready("web").await;
    manager.wait_idle().await;
    let (pod, before) = (Pod::new(&address), peak_memory(manager.pid()).unwrap());

    for hook in HOOKS {
        // The cache may also be older than the request: then Cluster API has to ask again.
        for (to, expected) in [
            (ENDLESS, "is not a version of Kubernetes"),
            ("v1.4294967295.0", "waiting until Chandler sees version 1.4294967295.0 in the topology"),
            ("v1.35.4", "waiting until Chandler sees version 1.35.4 in the topology"),
        ] {
            let answers = join_all((0..REQUESTS).map(|_| pod.post(hook, to))).await;
            let is_expected =
                |answer: &Option<String>| answer.as_ref().is_some_and(|text| text.contains(expected));
            assert!(answers.iter().all(is_expected), "{hook} {to}: {answers:?}");
        }
    }
    // A Cluster that its owner upgrades without end is refused, and not planned.
    set_topology(&test, "v1.4294967295.0").await;
    let too_many = "spans more than 10 minor versions; upgrade to 1.44 first";
    until(too_many, async || {
        pod.post(HOOKS[0], "v1.4294967295.0").await.is_some_and(|message| message.contains(too_many))
    })
    .await;
    let after = peak_memory(manager.pid()).expect("the manager runs");
    assert!(after < before + MAX_GROWTH, "the manager has grown from {before} to {after} KiB");

    set_topology(&test, "v1.35.4").await;
    until("the upgrade proceeds", async || pod.post(HOOKS[0], "v1.35.4").await.is_none()).await;
    manager.stop().await;
}
