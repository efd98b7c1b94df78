use chandler_sandbox::progress::Silent;
use chandler_sandbox::provider::ClusterKey;
use chandler_sandbox::sandbox::{Options, Sandbox};
use chandler_sandbox::testing;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};

#[tokio::test]
async fn a_sandbox_keeps_its_clusters_after_a_restart() {
    let options = Options { dir: testing::fresh_dir("whole").await.unwrap(), clusters: 1, nodes: 0 };
    let assets = testing::assets().await.unwrap();
    let key = ClusterKey::new("default", "alpha");
    let endpoints = |sandbox: &Sandbox, plane: &chandler_sandbox::plane::Plane| {
        (sandbox.management().endpoint(), plane.endpoint())
    };

    let sandbox = Sandbox::up(assets, &options, &Silent).await.unwrap();
    sandbox.wait_ready(1, &Silent).await.unwrap();
    let plane = sandbox.plane(&key).await.unwrap();
    let before = endpoints(&sandbox, &plane);
    let config_maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    let mut kept = ConfigMap::default();
    kept.metadata.name = Some("kept".to_owned());
    config_maps.create(&PostParams::default(), &kept).await.unwrap();
    assert!(Sandbox::up(assets, &options, &Silent).await.is_err(), "only one process may run the sandbox");
    sandbox.down().await;

    let sandbox = Sandbox::up(assets, &options, &Silent).await.unwrap();
    sandbox.wait_ready(1, &Silent).await.unwrap();
    let plane = sandbox.plane(&key).await.unwrap();
    assert_eq!(endpoints(&sandbox, &plane), before);
    let config_maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    config_maps.get("kept").await.unwrap();
    sandbox.down().await;
}
