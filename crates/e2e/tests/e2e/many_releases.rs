//! Eight clusters, ten placements, one of them failing and one cluster unreachable: nobody else notices.

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

/// Whether a placement's release on a cluster counts.
type Wanted = fn(&str, &str) -> bool;

fn others(placement: &str, cluster: &str) -> bool {
    placement != "bad" && cluster != "lost"
}

struct Fleet {
    world: World,
    planes: Vec<Arc<Plane>>,
}

impl Fleet {
    /// Changes every placement, the bad one to what is said of it; returns how long those of `wanted` took to be Ready.
    async fn upgrade(&self, values: &str, bad: &str, revision: u32, wanted: Wanted) -> Duration {
        let started = Instant::now();
        let of = |placement| if placement == "bad" { bad } else { values };
        let change = |placement| self.world.change(placement, json!({"valuesTemplate": of(placement)}));
        join_all(PLACEMENTS.map(change)).await;
        self.ready(revision, wanted).await;
        started.elapsed()
    }

    async fn ready(&self, revision: u32, wanted: Wanted) {
        let ready = |release: &HelmReleaseProxy| {
            let status =
                release.status.as_ref().filter(|s| s.observed_generation == release.metadata.generation);
            status.is_some_and(|status| {
                status.revision == Some(revision)
                    && condition(status, "Ready").is_some_and(|c| c.status == "True")
            })
        };
        let expected =
            PLACEMENTS.iter().flat_map(|p| CLUSTERS.map(|c| (*p, c))).filter(|(p, c)| wanted(p, c)).count();
        let what = format!("{expected} releases are ready at revision {revision}");
        eventually_within(LIMIT, &what, || async {
            let all = self.world.releases().list(&ListParams::default()).await.unwrap().items;
            let done = all.iter().filter(|release| {
                let cluster = release.spec.cluster_ref.name.as_deref().unwrap();
                wanted(&release.spec.release_name, cluster) && ready(release)
            });
            (done.count() == expected).then_some(())
        })
        .await;
    }

    /// The reason that the release gives for not being Ready.
    async fn reason(&self, placement: &str, cluster: &str) -> String {
        let status = self
            .world
            .status(placement, cluster, "not ready, for a reason", |status| {
                condition(status, "Ready").is_some_and(|c| c.status == "False" && !c.message.is_empty())
            })
            .await;
        condition(&status, "Ready").unwrap().reason.clone()
    }
}

#[tokio::test]
async fn a_failing_placement_and_an_unreachable_cluster_slow_nobody() {
    let world = World::alone("fleet").await;
    let planes = join_all(CLUSTERS.map(|name| world.cluster(name))).await;
    let manager = world.patient_manager();
    for placement in PLACEMENTS {
        world.place(placement, "hello", json!({})).await;
    }
    let fleet = Fleet { world, planes };
    fleet.ready(1, |_, _| true).await;
    let undisturbed = fleet.upgrade("greeting: First", "greeting: First", 2, others).await;

    fleet.planes.last().unwrap().kill().await;
    assert_eq!(fleet.reason("p1", "lost").await, "ClusterUnreachable");
    let disturbed = fleet.upgrade("greeting: Second", "replicas: many", 3, others).await;
    let limit = undisturbed * 3 + Duration::from_secs(10);
    assert!(disturbed < limit, "{disturbed:?} with trouble, {undisturbed:?} without");
    for placement in PLACEMENTS {
        assert_eq!(fleet.reason(placement, "lost").await, "ClusterUnreachable");
    }
    for cluster in &CLUSTERS[..7] {
        assert_eq!(fleet.reason("bad", cluster).await, "HelmInstallOrUpgradeFailed");
    }
    for plane in &fleet.planes[..7] {
        assert_eq!(config_value(plane, "p9", "greeting").await.as_deref(), Some("Second from somewhere"));
        let past = fleet.world.history(plane, "p9");
        assert_eq!(past.len(), 3, "one revision for each change: {past:?}");
    }

    fleet.planes.last().unwrap().restart().await.unwrap();
    fleet.world.change("bad", json!({"valuesTemplate": "greeting: Mended"})).await;
    fleet.ready(3, |placement, cluster| placement != "bad" && cluster == "lost").await;
    for cluster in CLUSTERS {
        fleet.world.ready_at_any_revision("bad", cluster).await;
    }
    manager.stop().await;
}
