//! Eight clusters and ten placements: a failing placement and an unreachable cluster do not affect the others.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    wait::eventually_within,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use futures::future::join_all;
use kube::api::ListParams;
use serde_json::json;

const CLUSTERS: [&str; 8] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "lost"];
const PLACEMENTS: [&str; 10] = ["p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "bad"];
const LIMIT: Duration = Duration::from_mins(3);

/// Selects releases by placement and cluster.
type Filter = fn(&str, &str) -> bool;

fn healthy(placement: &str, cluster: &str) -> bool {
    placement != "bad" && cluster != "lost"
}

struct Fleet {
    world: World,
    planes: Vec<Arc<Plane>>,
}

impl Fleet {
    /// Upgrades every placement, the bad one to the values `bad`. Returns how long the releases of `filter` took to become
    /// Ready.
    async fn upgrade(&self, values: &str, bad: &str, revision: u32, filter: Filter) -> Duration {
        let started = Instant::now();
        let values_of = |placement| if placement == "bad" { bad } else { values };
        let change = |placement| {
            self.world.patch_placement(placement, json!({"valuesTemplate": values_of(placement)}))
        };
        join_all(PLACEMENTS.map(change)).await;
        self.wait_ready(revision, filter).await;
        started.elapsed()
    }

    async fn wait_ready(&self, revision: u32, filter: Filter) {
        let ready = |release: &HelmReleaseProxy| {
            let status =
                release.status.as_ref().filter(|s| s.observed_generation == release.metadata.generation);
            status.is_some_and(|status| {
                status.revision == Some(revision)
                    && condition(status, "Ready").is_some_and(|c| c.status == "True")
            })
        };
        let expected =
            PLACEMENTS.iter().flat_map(|p| CLUSTERS.map(|c| (*p, c))).filter(|(p, c)| filter(p, c)).count();
        let what = format!("{expected} releases are ready at revision {revision}");
        eventually_within(LIMIT, &what, || async {
            let all = self.world.releases().list(&ListParams::default()).await.unwrap().items;
            let done = all.iter().filter(|release| {
                let cluster = release.spec.cluster_ref.name.as_deref().unwrap();
                filter(&release.spec.release_name, cluster) && ready(release)
            });
            (done.count() == expected).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_failing_placement_and_an_unreachable_cluster_do_not_delay_others() {
    let world = World::exclusive("fleet").await;
    let planes = join_all(CLUSTERS.map(|name| world.create_cluster(name))).await;
    let manager = world.start_manager_with_long_lease();
    for placement in PLACEMENTS {
        world.apply_placement(placement, "hello", json!({})).await;
    }
    let fleet = Fleet { world, planes };
    fleet.wait_ready(1, |_, _| true).await;
    let baseline = fleet.upgrade("greeting: First", "greeting: First", 2, healthy).await;

    fleet.planes.last().unwrap().kill().await;
    fleet.world.wait_reason("p1", "lost", "ClusterUnreachable").await;
    let with_failures = fleet.upgrade("greeting: Second", "replicas: many", 3, healthy).await;
    let limit = baseline * 3 + Duration::from_secs(10);
    assert!(with_failures < limit, "{with_failures:?} with failures, {baseline:?} without");
    for placement in PLACEMENTS {
        fleet.world.wait_reason(placement, "lost", "ClusterUnreachable").await;
    }
    for cluster in &CLUSTERS[..7] {
        fleet.world.wait_reason("bad", cluster, "HelmInstallOrUpgradeFailed").await;
    }
    for plane in &fleet.planes[..7] {
        assert_eq!(config_value(plane, "p9", "greeting").await.as_deref(), Some("Second from somewhere"));
        let history = fleet.world.history(plane, "p9");
        assert_eq!(history.len(), 3, "one revision for each change: {history:?}");
    }

    fleet.planes.last().unwrap().restart().await.unwrap();
    fleet.world.patch_placement("bad", json!({"valuesTemplate": "greeting: Fixed"})).await;
    fleet.wait_ready(3, |placement, cluster| placement != "bad" && cluster == "lost").await;
    for cluster in CLUSTERS {
        fleet.world.wait_ready_at_any_revision("bad", cluster).await;
    }
    manager.stop().await;
}
