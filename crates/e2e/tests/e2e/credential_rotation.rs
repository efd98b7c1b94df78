//! Short-lived credentials of workload clusters are replaced without an effect on releases.
//!
//! The API server issues no token for less than ten minutes. The tokens here are bound to a Secret: without it, the API server
//! refuses them as if they had expired.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chandler_api::{addons::HelmReleaseProxy, status::ReleaseStatus};
use chandler_e2e::{
    clock_shift::ShiftedClock,
    manager::Manager,
    self_hosted::{NAMESPACE, SelfHosted},
    wait::{eventually, until},
    world::{chart, condition},
};
use chandler_sandbox::{
    fault_proxy::{FaultProxy, Mode},
    requests::AuditLog,
    testing,
};
use futures::TryStreamExt as _;
use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;

/// The shortest lifetime that the API server allows.
const TOKEN_SECONDS: i64 = 600;
/// Refused credentials are not reported before this. The rest of the time is for a busy machine.
const HELD: Duration = Duration::from_secs(20);

/// A token of a ServiceAccount of its own, with all permissions.
struct Credentials {
    name: &'static str,
    token: String,
    kubeconfig: Kubeconfig,
}

impl Credentials {
    /// Issues a token that is bound to a Secret of the same name. The kubeconfig connects to `port`.
    async fn issue(test: &SelfHosted, name: &'static str, port: u16) -> Self {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let (group, admin) = ("rbac.authorization.k8s.io", "cluster-admin");
        let objects = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": admin},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            }),
        ];
        for object in &objects {
            test.apply(object).await;
        }
        let secret = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(name.to_owned()),
            uid: None,
        };
        let spec = TokenRequestSpec {
            bound_object_ref: Some(secret),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(test.management.client.clone(), NAMESPACE);
        let issued = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
        let token = issued.status.unwrap().token;
        let mut kubeconfig = test.kubeconfig();
        kubeconfig.clusters[0].cluster.as_mut().unwrap().server = Some(format!("https://127.0.0.1:{port}"));
        kubeconfig.auth_infos[0].auth_info =
            Some(AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() });
        Self { name, token, kubeconfig }
    }

    /// Deletes the Secret, and waits until the API server refuses the token: for 10 s, it does not verify it again.
    async fn revoke(&self, test: &SelfHosted) {
        let secrets: Api<Secret> = Api::namespaced(test.management.client.clone(), NAMESPACE);
        secrets.delete(self.name, &DeleteParams::default()).await.unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(self.kubeconfig.clone(), &options).await.unwrap();
        let client = Client::try_from(config).unwrap();
        until("the token is refused", async || {
            let version = client.apiserver_version().await;
            matches!(version, Err(kube::Error::Api(status)) if status.code == 401)
        })
        .await;
    }

    /// Waits until Chandler watches the releases of the cluster with this token.
    async fn wait_used(&self, audit: &mut AuditLog) {
        let user = format!("system:serviceaccount:{NAMESPACE}:{}", self.name);
        eventually(&format!("the token {} is used", self.name), || {
            let is_used =
                audit.read().unwrap().iter().any(|entry| entry.user == user && entry.verb == "watch");
            std::future::ready(is_used.then_some(()))
        })
        .await;
    }
}

/// Names of releases and the statuses that they had, one after the other.
type Statuses = Arc<Mutex<Vec<(String, ReleaseStatus)>>>;

/// Records every status of the releases from now on. It is a watch, so that no change between two reads is missed.
fn record_statuses(test: &SelfHosted) -> Statuses {
    let statuses = Statuses::default();
    let (releases, recorded) = (test.releases(), statuses.clone());
    tokio::spawn(async move {
        let changes = watcher(releases, watcher::Config::default()).applied_objects();
        let record = changes.try_for_each(|release| {
            let HelmReleaseProxy { spec, status, .. } = release;
            recorded.lock().unwrap().extend(status.map(|status| (spec.release_name, status)));
            futures::future::ready(Ok(()))
        });
        record.await.unwrap();
    });
    statuses
}

/// Returns every state of a condition of a release that was not `True` after it had been `True`.
fn interruptions(statuses: &Statuses, release: &str, type_: &str) -> Vec<Condition> {
    let statuses = statuses.lock().unwrap();
    let of_release = statuses.iter().filter(|(name, _)| name == release);
    let states = of_release.filter_map(|(_, status)| condition(status, type_));
    states
        .skip_while(|state| state.status != "True")
        .filter(|state| state.status != "True")
        .cloned()
        .collect()
}

#[tokio::test]
async fn credentials_that_are_replaced_before_they_expire_interrupt_no_release_and_no_queued_operation() {
    let test = SelfHosted::new("rotated").await;
    test.repository.publish(&chart("slow")).unwrap();
    let port = test.management.plane.port();
    let old = Credentials::issue(&test, "old", port).await;
    let new = Credentials::issue(&test, "new", port).await;
    test.create_cluster("alpha", &old.kubeconfig, &json!({})).await;
    test.create_cluster("bravo", &test.kubeconfig(), &json!({})).await;
    // By the manager's clock, the tokens expire in ten seconds.
    let clock = ShiftedClock::new(&testing::fresh_dir("rotated-clock").await.unwrap());
    clock.set(TOKEN_SECONDS - 10);
    let arguments = ["--concurrency-waiting-clusters", "1"];
    let manager = test.management.start_manager_with_environment(&arguments, clock.environment());
    let manager = Manager::from_process(manager);
    let waiting = |again: bool| {
        let values = format!("hold: false\nagain: {again}");
        json!({"options": {"wait": true, "timeout": "10m"}, "valuesTemplate": values})
    };
    test.apply_placement("unchanged", "alpha", "hello", &json!({})).await;
    test.apply_placement("upgraded", "alpha", "slow", &waiting(false)).await;
    test.wait_ready("unchanged", 1).await;
    test.wait_ready("upgraded", 1).await;
    let statuses = record_statuses(&test);

    // An operation waits on one cluster, so that the upgrade on the other one is queued.
    test.apply_placement("holding", "bravo", "slow", &json!({"valuesTemplate": "hold: true"})).await;
    test.wait_condition("holding", "Ready", "False", "waiting for hook").await;
    test.apply_placement("upgraded", "alpha", "slow", &waiting(true)).await;
    until("the upgrade is queued", async || manager.metrics().await["chandler_operations_queued"] > 0.5)
        .await;
    let mut audit = test.management.plane.audit_log();
    test.write_kubeconfig("alpha", &new.kubeconfig).await;
    new.wait_used(&mut audit).await;
    old.revoke(&test).await;
    assert_eq!(test.revisions("upgraded").await, [(1, "deployed".to_owned())], "it is still queued");
    test.delete_placement("holding").await;
    test.wait_ready("upgraded", 2).await;

    let revisions = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
    assert_eq!(test.revisions("upgraded").await, revisions);
    assert_eq!(interruptions(&statuses, "unchanged", "Ready"), []);
    for release in ["unchanged", "upgraded"] {
        assert_eq!(interruptions(&statuses, release, "ClusterAvailable"), [], "{release}");
    }
    let recorded = statuses.lock().unwrap().clone();
    let on_alpha = recorded.iter().filter(|(name, _)| name != "holding");
    let failures: Vec<_> = on_alpha.filter_map(|(_, status)| status.last_failure.as_ref()).collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert!([&old, &new].iter().all(|credentials| !manager.logs().contains(&credentials.token)));
    manager.stop().await;
}

/// Returns how often the manager has found that the cluster refuses its credentials.
fn refusals(manager: &Manager) -> usize {
    let is_refusal = |line: &&str| {
        line.contains("workload cluster not available") && line.contains("\"category\":\"Unauthorized\"")
    };
    manager.logs().lines().filter(is_refusal).count()
}

/// Closes all connections, so that the watches have to be opened again. An API server goes on with a watch whose token has
/// expired.
async fn reset_connections(proxy: &FaultProxy) {
    proxy.set_mode(Mode::Reset);
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.set_mode(Mode::Forward);
}

#[tokio::test]
async fn credentials_that_are_replaced_soon_after_they_expired_interrupt_no_release_and_others_are_reported()
{
    let test = SelfHosted::new("expired").await;
    let proxy = FaultProxy::start(test.management.plane.port()).await.unwrap();
    let old = Credentials::issue(&test, "old", proxy.port()).await;
    let new = Credentials::issue(&test, "new", proxy.port()).await;
    test.create_cluster("alpha", &old.kubeconfig, &json!({})).await;
    let manager = Manager::from_process(test.management.start_manager());
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    test.wait_ready("hello", 1).await;
    manager.wait_idle().await;
    let statuses = record_statuses(&test);

    old.revoke(&test).await;
    let mut audit = test.management.plane.audit_log();
    reset_connections(&proxy).await;
    until("the cluster has refused the old token twice", async || refusals(&manager) >= 2).await;
    test.write_kubeconfig("alpha", &new.kubeconfig).await;
    new.wait_used(&mut audit).await;
    assert_eq!(interruptions(&statuses, "hello", "Ready"), []);
    test.apply_placement("hello", "alpha", "hello", &json!({"valuesTemplate": "greeting: Hi"})).await;
    test.wait_ready("hello", 2).await;
    assert_eq!(interruptions(&statuses, "hello", "ClusterAvailable"), []);
    let revisions = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
    assert_eq!(test.revisions("hello").await, revisions);

    // The new token is not replaced.
    new.revoke(&test).await;
    let reset = Instant::now();
    reset_connections(&proxy).await;
    let message = test.wait_condition("hello", "ClusterAvailable", "False", "").await;
    assert!(reset.elapsed() >= HELD, "reported after {:?}", reset.elapsed());
    assert!(message.contains("renew the kubeconfig Secret"), "{message}");
    let reported = interruptions(&statuses, "hello", "ClusterAvailable");
    assert!(reported.iter().all(|state| state.reason == "ClusterUnauthorized"), "{reported:?}");
    assert!([&old, &new].iter().all(|credentials| !manager.logs().contains(&credentials.token)));
    manager.stop().await;
}
