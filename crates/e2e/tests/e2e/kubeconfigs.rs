//! The kubeconfig of a workload cluster alone decides how Chandler connects to it.

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    wait::eventually,
    world::{condition, hello},
};
use chandler_sandbox::{apply, connect_proxy::ConnectProxy, repository::ChartRepository, testing};
use kube::{
    Api,
    api::ListParams,
    config::{AuthInfo, Cluster, Kubeconfig},
};
use serde_json::json;

/// The address of the API server in the kubeconfig. Only the proxy of the kubeconfig can reach it.
const HIDDEN: &str = "workload.invalid:6443";
const ENVIRONMENT_PASSWORD: &str = "password-of-the-environment";

/// A management cluster that is its own workload cluster.
struct Fixture {
    management: ManagementCluster,
    repository: ChartRepository,
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let management = ManagementCluster::new(name).await;
        let dir = testing::fresh_dir(&format!("{name}-charts")).await.unwrap();
        let repository = ChartRepository::start_self_signed(&dir).await.unwrap();
        repository.publish(&hello()).unwrap();
        Self { management, repository }
    }

    /// Creates the Cluster `alpha` with a changed kubeconfig, and a placement.
    async fn deploy(&self, change: impl FnOnce(&mut Cluster, &mut AuthInfo)) {
        let mut kubeconfig = Kubeconfig::from_yaml(self.management.plane.kubeconfig()).unwrap();
        let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
        change(cluster, kubeconfig.auth_infos[0].auth_info.as_mut().unwrap());
        let secret = |name: &str, key: &str, value: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
                "stringData": {key: value},
            })
        };
        let objects = [
            secret("alpha-kubeconfig", "value", &serde_saphyr::to_string(&kubeconfig).unwrap()),
            secret("ca", "ca.crt", self.repository.ca_pem()),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {},
                "metadata": {"name": "alpha", "namespace": "default"},
            }),
            json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                "metadata": {"name": "hello", "namespace": "default"},
                "spec": {
                    "clusterSelector": {}, "chartName": "hello", "repoURL": self.repository.url(),
                    "version": "1.0.0", "releaseName": "hello", "tlsConfig": {"caSecret": {"name": "ca"}},
                },
            }),
        ];
        for object in &objects {
            apply::apply(&self.management.client, object).await.unwrap();
        }
        self.management.set_control_plane_initialized("alpha").await;
    }

    /// Waits until a condition of the release satisfies a predicate. Returns its message.
    async fn wait_condition(&self, type_: &str, status: &str, text: &str) -> String {
        let releases: Api<HelmReleaseProxy> = Api::namespaced(self.management.client.clone(), "default");
        eventually(&format!("{type_} is {status}: {text}"), || async {
            let release = releases.list(&ListParams::default()).await.unwrap().items.pop()?;
            let found = condition(release.status.as_ref()?, type_)?.clone();
            (found.status == status && found.message.contains(text)).then_some(found.message)
        })
        .await
    }
}

fn address(url: &str) -> &str {
    url.trim_start_matches("https://")
}

#[tokio::test]
async fn the_proxy_of_the_kubeconfig_is_used_and_not_that_of_the_environment() {
    let fixture = Fixture::new("proxied").await;
    let kubeconfig = Kubeconfig::from_yaml(fixture.management.plane.kubeconfig()).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let login = ("user", "canary-p@ss");
    let proxy = ConnectProxy::start(Some(login), Some(address(&server))).await.unwrap();
    let environment = ConnectProxy::start(Some(("user", ENVIRONMENT_PASSWORD)), None).await.unwrap();
    let proxy_url = format!("http://user:canary-p%40ss@{}", proxy.address());
    fixture
        .deploy(|cluster, _| {
            cluster.server = Some(format!("https://{HIDDEN}"));
            cluster.tls_server_name = Some("localhost".to_owned());
            cluster.proxy_url = Some(proxy_url);
        })
        .await;
    let url = format!("http://user:{ENVIRONMENT_PASSWORD}@{}", environment.address());
    let env = vec![("HTTPS_PROXY".to_owned(), url)];
    let manager = Manager::from_process(fixture.management.start_manager_with_environment(env));
    fixture.wait_condition("Ready", "True", "").await;

    assert!(proxy.targets().iter().all(|target| target == HIDDEN), "{:?}", proxy.targets());
    let requested = environment.targets();
    assert!(!requested.iter().any(|target| target == HIDDEN), "{requested:?}");
    let repository = address(fixture.repository.url());
    assert!(requested.iter().any(|target| target == repository), "sources use it: {requested:?}");
    assert!(!manager.logs().contains(ENVIRONMENT_PASSWORD));

    // The proxy stops: the failure names it, without its password.
    let stopped = proxy.address().to_string();
    drop(proxy);
    let message = fixture.wait_condition("ClusterAvailable", "Unknown", &stopped).await;
    assert!(!message.contains("canary") && !message.contains(ENVIRONMENT_PASSWORD), "{message}");
    manager.stop().await;
}

#[tokio::test]
async fn a_kubeconfig_that_impersonates_is_refused() {
    let fixture = Fixture::new("impersonating").await;
    fixture.deploy(|_, user| user.impersonate = Some("somebody".to_owned())).await;
    let manager = Manager::from_process(fixture.management.start_manager());
    let message = fixture.wait_condition("ClusterAvailable", "False", "impersonates another user").await;
    assert!(message.contains("remove `as`"), "{message}");
    manager.stop().await;
}
