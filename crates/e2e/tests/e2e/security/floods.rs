//! A namespace with many slow releases, slow repositories and slow templates delays only itself.

use std::time::{Duration, Instant};

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_e2e::{
    manager::Manager,
    self_hosted::{NAMESPACE as NOISY, SelfHosted},
    unresponsive_server::{Answers, UnresponsiveServer},
    wait::eventually,
    world::{condition, hello},
};
use chandler_sandbox::testing;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams, config::Kubeconfig};
use serde_json::json;

use super::tenants::Tenant;

const QUIET: &str = "quiet";
/// The namespace of the slow releases on their cluster. The API server answers there only after [`SLOW`].
const SLOW_NAMESPACE: &str = "slow";
const SLOW: Duration = Duration::from_secs(30);
/// A release of the other namespace becomes Ready at most so much later, even on a busy machine. It is much shorter than
/// [`SLOW`].
const MAX_DELAY: Duration = Duration::from_secs(15);
const SLOTS: usize = 4;
/// More than there are slots, also twice.
const CLUSTERS: usize = 3 * SLOTS;
/// Repositories that do not answer, while the namespace needs others, too.
const SILENT_REPOSITORIES: usize = 20;
const ENDLESS: &str = "{{ $all := until 1000 }}{{ range $all }}{{ range $all }}{{ range $all }}{{ $x := 1 }}{{ end }}{{ end }}{{ end }}";

#[tokio::test]
async fn a_namespace_with_slow_releases_templates_and_repositories_delays_only_itself() {
    let test = SelfHosted::new("floods").await;
    let dir = testing::fresh_dir("floods-silent").await.unwrap();
    let silent = UnresponsiveServer::start(&dir, test.management.client.clone(), Answers::Nothing).await;
    Tenant::new(&test, QUIET, &test.management.plane).await;
    make_slow(&test, &silent).await;
    let manager = Manager::from_process(test.management.start_manager_with(&[
        "--concurrency",
        &SLOTS.to_string(),
        "--template-seconds-per-minute",
        "3",
        "--max-timeout-seconds",
        "600",
    ]));
    manager.wait_ready().await;
    let undisturbed = install_quietly(&test, "before", "1.0.0").await;
    let limit = undisturbed + MAX_DELAY;

    use_up_template_time(&test).await;
    let during_templates = install_quietly(&test, "after-templates", "1.0.0").await;
    assert!(during_templates < limit, "Ready after {during_templates:?}, undisturbed {undisturbed:?}");

    flood(&test, &silent).await;
    eventually("all slots are occupied and operations wait", || async {
        let metrics = manager.metrics().await;
        let is_flooded =
            metrics["chandler_operations_active"] >= 4.0 && metrics["chandler_operations_queued"] >= 1.0;
        is_flooded.then_some(())
    })
    .await;
    // A version that has to be downloaded.
    test.repository.publish_version(&hello(), "1.1.0").unwrap();
    let flooded = install_quietly(&test, "after-flood", "1.1.0").await;
    assert!(flooded < limit, "Ready after {flooded:?}, undisturbed {undisturbed:?}");
    slow_releases_are_explained(&test).await;
    let metrics = manager.metrics().await;
    for quota in ["templates", "timeout"] {
        let reached = metrics[&format!("chandler_quota_reached_total{{quota=\"{quota}\"}}")];
        assert!(reached >= 1.0, "{quota}");
    }
    manager.kill().await;
}

/// Lets the API server wait for a webhook that does not answer before it creates ConfigMaps in a namespace.
async fn make_slow(test: &SelfHosted, silent: &UnresponsiveServer) {
    let kubeconfig = Kubeconfig::from_yaml(&silent.kubeconfig()).unwrap();
    let authority = kubeconfig.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone();
    test.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SLOW_NAMESPACE}})).await;
    test.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "slow"},
        "webhooks": [{
            "name": "slow.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": SLOW.as_secs(),
            "clientConfig": {
                "url": format!("https://127.0.0.1:{}/", silent.port()), "caBundle": authority.unwrap(),
            },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SLOW_NAMESPACE}},
        }],
    }))
    .await;
}

/// Installs a release in the other namespace, and returns how long it took until it was Ready.
async fn install_quietly(test: &SelfHosted, name: &str, version: &str) -> Duration {
    let began = Instant::now();
    test.apply(&json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": name, "namespace": QUIET},
        "spec": {
            "clusterSelector": {}, "repoURL": test.repository.url(),
            "chartName": "hello", "version": version, "releaseName": name, "namespace": QUIET,
            "tlsConfig": {"caSecret": {"name": "ca"}},
            "valuesTemplate": "greeting: {{ .Cluster.metadata.name }}",
        },
    }))
    .await;
    let releases: Api<HelmReleaseProxy> = Api::namespaced(test.management.client.clone(), QUIET);
    let owned = format!("helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name={name}");
    eventually(&format!("{name} is Ready"), || async {
        let release = releases.list(&ListParams::default().labels(&owned)).await.unwrap().items.pop()?;
        (condition(release.status.as_ref()?, "Ready")?.status == "True").then_some(())
    })
    .await;
    began.elapsed()
}

/// Waits until the message of the placement's condition Ready contains `text`.
async fn wait_placement(test: &SelfHosted, name: &str, message: &str) {
    let placements: Api<HelmChartProxy> = Api::namespaced(test.management.client.clone(), NOISY);
    eventually(&format!("{name} reports: {message}"), || async {
        let status = placements.get(name).await.unwrap().status?;
        let ready =
            status.conditions.into_iter().find(|one| one.type_ == "Ready" && one.status == "False")?;
        ready.message.contains(message).then_some(())
    })
    .await;
}

/// Uses up the time for templates of a namespace. Its next template is not evaluated, and the condition explains why.
async fn use_up_template_time(test: &SelfHosted) {
    test.create_cluster("c-0", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("endless", "c-0", "hello", &json!({"valuesTemplate": ENDLESS})).await;
    wait_placement(test, "endless", "took longer than").await;
    let template = json!({"valuesTemplate": "greeting: {{ .Cluster.metadata.name }}"});
    test.apply_placement("refused", "c-0", "hello", &template).await;
    wait_placement(test, "refused", &format!("namespace {NOISY} has used the 3 s per minute")).await;
}

/// Creates many releases that are slow to install, or whose repository does not answer.
async fn flood(test: &SelfHosted, silent: &UnresponsiveServer) {
    for number in 0..SILENT_REPOSITORIES {
        let repository = json!({
            "repoURL": format!("https://127.0.0.1:{}/{number}", silent.port()),
            "tlsConfig": {"insecureSkipTLSVerify": true},
        });
        test.apply_placement(&format!("silent-{number}"), "c-0", "hello", &repository).await;
    }
    let slow = json!({"namespace": SLOW_NAMESPACE, "options": {"timeout": "3h"}});
    for number in 1..=CLUSTERS {
        let cluster = format!("c-{number}");
        test.create_cluster(&cluster, &test.kubeconfig(), &json!({})).await;
        test.apply_placement(&format!("slow-{number}"), &cluster, "hello", &slow).await;
    }
}

/// The conditions of releases explain that they wait for a slot, and a timeout that is too long is reported.
async fn slow_releases_are_explained(test: &SelfHosted) {
    let client = &test.management.client;
    let releases: Api<HelmReleaseProxy> = Api::namespaced(client.clone(), NOISY);
    eventually("a release waits for a slot", || async {
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        let ready = |release: &HelmReleaseProxy| {
            condition(release.status.as_ref()?, "Ready").map(|ready| ready.message.clone())
        };
        all.iter()
            .filter_map(ready)
            .any(|message| message.contains("waiting until fewer operations"))
            .then_some(())
    })
    .await;
    let events: Api<Event> = Api::namespaced(client.clone(), NOISY);
    let reduced = eventually("the reduced timeout is reported", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("TimeoutReduced"))
    })
    .await;
    let note = reduced.note.unwrap_or_default();
    assert!(note.contains("600 s instead of 10800 s"), "{note}");
}
