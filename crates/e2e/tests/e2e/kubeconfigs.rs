//! The kubeconfig of a workload cluster alone decides how Chandler connects to it.

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted};
use chandler_sandbox::connect_proxy::ConnectProxy;
use kube::config::{AuthInfo, Cluster};
use serde_json::json;

/// The address of the API server in the kubeconfig. Only the proxy of the kubeconfig can reach it.
const HIDDEN: &str = "workload.invalid:6443";
const ENVIRONMENT_PASSWORD: &str = "password-of-the-environment";

/// Creates the Cluster `alpha` with a changed kubeconfig, and a placement.
async fn deploy(test: &SelfHosted, change: impl FnOnce(&mut Cluster, &mut AuthInfo)) {
    let mut kubeconfig = test.kubeconfig();
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    change(cluster, kubeconfig.auth_infos[0].auth_info.as_mut().unwrap());
    test.create_cluster("alpha", &kubeconfig, &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
}

fn address(url: &str) -> &str {
    url.trim_start_matches("https://")
}

#[tokio::test]
async fn the_proxy_of_the_kubeconfig_is_used_and_not_that_of_the_environment() {
    let test = SelfHosted::new("proxied").await;
    let server = test.management.plane.endpoint();
    let login = ("user", "canary-p@ss");
    let proxy = ConnectProxy::start(Some(login), Some(address(&server))).await.unwrap();
    let environment = ConnectProxy::start(Some(("user", ENVIRONMENT_PASSWORD)), None).await.unwrap();
    let proxy_url = format!("http://user:canary-p%40ss@{}", proxy.address());
    deploy(&test, |cluster, _| {
        cluster.server = Some(format!("https://{HIDDEN}"));
        cluster.tls_server_name = Some("localhost".to_owned());
        cluster.proxy_url = Some(proxy_url);
    })
    .await;
    let url = format!("http://user:{ENVIRONMENT_PASSWORD}@{}", environment.address());
    let env = vec![("HTTPS_PROXY".to_owned(), url)];
    let arguments = ["--allow-proxy-url", "http://127.0.0.1"];
    let manager = Manager::from_process(test.management.start_manager_with_environment(&arguments, env));
    test.wait_condition("hello", "Ready", "True", "").await;

    assert!(proxy.targets().iter().all(|target| target == HIDDEN), "{:?}", proxy.targets());
    let requested = environment.targets();
    assert!(!requested.iter().any(|target| target == HIDDEN), "{requested:?}");
    let repository = address(test.repository.url());
    assert!(requested.iter().any(|target| target == repository), "sources use it: {requested:?}");
    assert!(!manager.logs().contains(ENVIRONMENT_PASSWORD));

    // The proxy stops: the failure names it, without its password.
    let stopped = proxy.address().to_string();
    drop(proxy);
    let message = test.wait_condition("hello", "ClusterAvailable", "Unknown", &stopped).await;
    assert!(!message.contains("canary") && !message.contains(ENVIRONMENT_PASSWORD), "{message}");
    manager.stop().await;
}

#[tokio::test]
async fn a_kubeconfig_that_impersonates_is_refused() {
    let test = SelfHosted::new("impersonating").await;
    deploy(&test, |_, user| user.impersonate = Some("somebody".to_owned())).await;
    let manager = Manager::from_process(test.management.start_manager());
    let message =
        test.wait_condition("hello", "ClusterAvailable", "False", "impersonates another user").await;
    assert!(message.contains("remove `as`"), "{message}");
    manager.stop().await;
}
