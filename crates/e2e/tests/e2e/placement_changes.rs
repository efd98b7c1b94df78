//! Changes of a HelmChartProxy that cannot be upgrades: the release is uninstalled, and installed again.
//!
//! A change of the name of the release is covered by `lifecycle`.

use chandler_e2e::{
    wait::eventually,
    world::{World, condition, config_value},
};
use chandler_sandbox::{chart, repository::ChartRepository};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// Publishes another chart with the name `hello` in a repository of its own.
async fn other_repository(world: &World) -> ChartRepository {
    let template =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {greeting: Other}\n";
    let files =
        [("Chart.yaml", "apiVersion: v2\nname: hello\nversion: 1.0.0\n"), ("templates/map.yaml", template)];
    let folder = chart::write(&world.dir.join("other"), &files).unwrap();
    let home = world.dir.join("other-charts");
    let repository = ChartRepository::start(world.sandbox.authority(), &home).await.unwrap();
    repository.publish(&folder).unwrap();
    repository
}

/// Waits until a placement has another release object than before, which is Ready.
async fn wait_replaced(world: &World, placement: &str, before: &str) {
    eventually(&format!("the release of {placement} is installed again"), || async {
        let release = world.release(placement, "alpha").await?;
        let ready = condition(release.status.as_ref()?, "Ready")?.status == "True";
        (ready && release.uid()? != before && release.status?.revision == Some(1)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_changed_namespace_chart_or_repository_reinstalls_the_release() {
    let world = World::new("changes").await;
    let alpha = world.create_cluster("alpha").await;
    let other = other_repository(&world).await;
    let manager = world.start_manager();
    let changes: [(&str, Value); 3] = [
        ("namespace", json!({"namespace": "elsewhere"})),
        ("chart", json!({"chartName": "stubborn", "valuesTemplate": "stuck: false\ngreeting: Changed"})),
        ("repository", json!({"repoURL": other.url()})),
    ];
    for (name, _) in &changes {
        world.apply_placement(name, "hello", json!({})).await;
    }
    let mut before = Vec::new();
    for (name, _) in &changes {
        world.wait_ready(name, "alpha", 1).await;
        before.push(world.release(name, "alpha").await.unwrap().uid().unwrap());
    }
    for (name, change) in &changes {
        world.patch_placement(name, change.clone()).await;
    }
    for ((name, _), before) in changes.iter().zip(&before) {
        wait_replaced(&world, name, before).await;
    }

    let list = world.helm(&alpha, &["list", "--all-namespaces"]);
    let text = |release: &Value, field: &str| release[field].as_str().unwrap().to_owned();
    let mut releases: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|one| ["namespace", "name", "chart", "revision"].map(|field| text(one, field)))
        .collect();
    releases.sort();
    assert_eq!(
        releases,
        [
            ["default", "chart", "stubborn-1.0.0", "1"],
            ["default", "repository", "hello-1.0.0", "1"],
            ["elsewhere", "namespace", "hello-1.0.0", "1"],
        ]
    );
    assert_eq!(config_value(&alpha, "namespace", "greeting").await, None, "nothing is left behind");
    let elsewhere: Api<ConfigMap> = Api::namespaced(alpha.client().await.unwrap(), "elsewhere");
    assert!(elsewhere.get_opt("namespace").await.unwrap().is_some());
    assert_eq!(config_value(&alpha, "chart", "greeting").await.as_deref(), Some("Changed"));
    assert_eq!(config_value(&alpha, "repository", "greeting").await.as_deref(), Some("Other"));
    for (name, _) in &changes {
        assert_eq!(world.releases_of(name).await.len(), 1, "{name}");
    }
    manager.stop().await;
}
