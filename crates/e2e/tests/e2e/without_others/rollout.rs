//! The order and the times of a large rollout.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chandler_api::{addons::HelmReleaseProxy, status::RolloutState};
use chandler_e2e::{
    chandler_command::run_ok,
    manager::Manager,
    wait::eventually_within,
    world::{World, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::rollout::{LIMIT, apply_hello, is_ready, register, rollout, wait_state};

fn cluster_of(release: &HelmReleaseProxy) -> &str {
    release.spec.cluster_ref.name.as_deref().unwrap()
}

fn has_failed(release: &HelmReleaseProxy) -> bool {
    let status = release.status.as_ref();
    let ready = status.and_then(|status| condition(status, "Ready"));
    ready.is_some_and(|ready| ready.reason == "RetriesExhausted")
}

const CLUSTERS: usize = 40;
const SLOTS: usize = 4;
const TIERS: [&str; 3] = ["first", "staging", "production"];
const SOAK: SignedDuration = SignedDuration::from_secs(3);
/// How long the manager may take to see a failure on a busy machine. Recorded times of failures have no fractions of a second.
const REACTION: SignedDuration = SignedDuration::from_secs(10);
const FAILING: [&str; 2] = ["c20", "c25"];

fn tier(number: usize) -> &'static str {
    match number {
        0..4 => "first",
        4..16 => "staging",
        _ => "production",
    }
}

/// The releases at one moment.
struct Snapshot(Vec<HelmReleaseProxy>);

impl Snapshot {
    async fn take(world: &World) -> Self {
        Self(world.releases_of("hello").await)
    }

    /// Returns the clusters of a tier whose release has the new spec and satisfies a predicate.
    fn updated(&self, of: &str, is: impl Fn(&HelmReleaseProxy) -> bool) -> BTreeSet<String> {
        let of_tier = |release: &&HelmReleaseProxy| {
            let number: usize = cluster_of(release)[1..].parse().unwrap();
            tier(number) == of
        };
        let updated = self.0.iter().filter(of_tier).filter(|release| release.spec.values.contains("Two"));
        updated.filter(|release| is(release)).map(|release| cluster_of(release).to_owned()).collect()
    }

    /// Returns a time in the rollout records of the updated releases of a tier.
    fn recorded(&self, of: &str, field: &str) -> Vec<Timestamp> {
        let clusters = self.updated(of, |_| true);
        let updated = self.0.iter().filter(|release| clusters.contains(cluster_of(release)));
        let record = |release: &HelmReleaseProxy| -> Value {
            serde_json::from_str(&release.annotations()["chandler.dev/rollout"]).unwrap()
        };
        updated.filter_map(|release| record(release)[field].as_str()?.parse().ok()).collect()
    }

    /// Fails the test if the second wave has begun before the first was ready for a while, or if a release was updated after the
    /// second failure.
    fn assert_times(&self) {
        let ready = self.recorded("first", "ready");
        assert_eq!(ready.len(), 4, "{ready:?}");
        let (ready, staging) = (ready.into_iter().max().unwrap(), self.recorded("staging", "at"));
        let staging = staging.into_iter().min().unwrap();
        assert!(staging >= ready + SOAK, "ready at {ready}, the second wave began at {staging}");
        let failed = self.0.iter().filter(|release| FAILING.contains(&cluster_of(release)));
        let failed =
            failed.map(|release| release.status.as_ref().unwrap().last_failure.as_ref().unwrap().at.0);
        let (stopped, last) =
            (failed.max().unwrap(), self.recorded("production", "at").into_iter().max().unwrap());
        assert!(last <= stopped + REACTION, "stopped at {stopped}, but updated at {last}");
    }

    /// Fails the test if a wave has begun before the one before it was ready, or if too many releases are updated at once.
    fn assert_order(&self) {
        let all = |tier| self.updated(tier, |_| true);
        let ready = |tier| self.updated(tier, is_ready).len();
        if !all("staging").is_empty() {
            assert_eq!(ready("first"), 4, "{:?}", all("staging"));
        }
        if !all("production").is_empty() {
            assert_eq!(ready("staging"), 12, "{:?}", all("production"));
        }
        let is_updating = |release: &HelmReleaseProxy| !is_ready(release) && !has_failed(release);
        let updating: usize = TIERS.map(|tier| self.updated(tier, is_updating).len()).iter().sum();
        assert!(updating <= SLOTS, "{updating} releases are updated at the same time");
    }
}

/// Checks the order of the rollout until a condition is met.
async fn follow(world: &World, what: &str, mut done: impl AsyncFnMut(&Snapshot) -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let snapshot = Snapshot::take(world).await;
        snapshot.assert_order();
        if done(&snapshot).await {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn install_forty(world: &World) -> (Vec<Arc<Plane>>, Manager) {
    let planes = join_all(["p0", "p1", "p2", "p3"].map(|name| world.create_cluster(name))).await;
    for number in 0..CLUSTERS {
        register(world, &format!("c{number:02}"), &planes[number % planes.len()], tier(number)).await;
    }
    let wave = |tier: &str, soak: &str| json!({"name": tier, "selector": {"matchLabels": {"tier": tier}}, "soak": soak});
    let policy = json!({
        "remediation": {"retries": 0}, "health": {"enabled": false},
        "rollout": {
            "maxConcurrent": "10%", "stopAfterFailures": 2, "waves": [wave("first", "3s"), wave("staging", "0s")],
        },
    });
    world.apply_policy("careful", policy).await;
    let manager = world.start_manager();
    apply_hello(world, json!({})).await;
    eventually_within(LIMIT, "everything is installed at once", || async {
        let ready = Snapshot::take(world).await.0.iter().filter(|release| is_ready(release)).count();
        (ready == CLUSTERS).then_some(())
    })
    .await;
    (planes, manager)
}

#[tokio::test]
async fn forty_releases_in_three_waves_survive_a_restart_and_stop_at_the_second_failure() {
    let world = World::exclusive("rollout").await;
    let (planes, manager) = install_forty(&world).await;
    assert_eq!(wait_state(&world, RolloutState::Done).await.updated, 40);
    let failing = FAILING.map(|name| format!("(eq .Cluster.metadata.name {name:?})")).join(" ");
    let template = format!("greeting: Two\n{{{{ if or {failing} }}}}replicas: many{{{{ end }}}}\n");
    world.patch_placement("hello", json!({"valuesTemplate": template})).await;
    follow(&world, "the second wave is in progress", async |snapshot: &Snapshot| {
        snapshot.updated("staging", |_| true).len() > 2
    })
    .await;
    manager.kill().await;
    let manager = world.start_manager();
    follow(&world, "the rollout has stopped", async |_: &Snapshot| {
        rollout(&world).await.is_some_and(|rollout| rollout.state == RolloutState::Stopped)
    })
    .await;
    let at_stop = Snapshot::take(&world).await.updated("production", |_| true);
    manager.wait_idle().await;
    let stopped = wait_state(&world, RolloutState::Stopped).await;
    let snapshot = Snapshot::take(&world).await;
    let reached = snapshot.updated("production", |_| true);
    assert_eq!((stopped.failed, stopped.total, stopped.waves), (2, 40, 3), "{stopped:?}");
    assert_eq!(stopped.wave.as_deref(), Some("others"));
    assert!(FAILING.iter().all(|name| reached.contains(*name)), "{reached:?}");
    assert!(reached.len() < 24, "it has stopped: {reached:?}");
    assert_eq!(reached, at_stop, "nothing is updated after it has stopped");
    snapshot.assert_times();
    assert_eq!(usize::try_from(stopped.waiting).unwrap(), 24 - reached.len());
    let ready = world.placements().get("hello").await.unwrap().status.unwrap();
    let ready = ready.conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("False", "RolloutStopped"));
    let text = run_ok(&world, &["rollout", "status", "hcp/hello"]).await;
    assert!(text.contains("Stopped") && text.contains("others (3/3)"), "{text}");

    run_ok(&world, &["rollout", "resume", "hcp/hello"]).await;
    let done = wait_state(&world, RolloutState::Done).await;
    assert_eq!((done.updated, done.failed), (38, 0), "the failures before do not count: {done:?}");
    let unchecked = "only the result of the update was checked for 38, whose health is turned off or unknown";
    assert!(done.message.contains(unchecked), "{done:?}");
    let release = world.release("hello", "c39").await.unwrap();
    let greeting = config_value(&planes[3], &release.spec.release_name, "greeting").await;
    assert_eq!(greeting.as_deref(), Some("Two from somewhere"));
    for cluster in FAILING {
        world.wait_reason("hello", cluster, "RetriesExhausted").await;
    }
    manager.stop().await;
}
