//! Releases that a killed helm CLI has left in a pending state.
//!
//! Releases changed with the helm CLI are covered by `adoption`, crashes of Chandler by `crash`.

use std::{process::Stdio, time::Duration};

use chandler_api::status::ReleaseStatus;
use chandler_e2e::{
    clock_shift::ShiftedClock,
    manager::Manager,
    wait::eventually,
    world::{World, chart, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

/// Helm operations that are killed, and the status of their releases. Each release is named after its operation.
const INTERRUPTED: [(&str, &str); 4] = [
    ("install", "pending-install"),
    ("upgrade", "pending-upgrade"),
    ("rollback", "pending-rollback"),
    ("uninstall", "uninstalling"),
];

/// The helm CLI on a cluster.
struct HelmCli<'a> {
    world: &'a World,
    plane: &'a Plane,
    archive: String,
}

impl<'a> HelmCli<'a> {
    fn new(world: &'a World, plane: &'a Plane) -> Self {
        let archive = world.archive(&chart("slow")).to_string_lossy().into_owned();
        Self { world, plane, archive }
    }

    fn run(&self, arguments: &[&str]) {
        let output = self.world.helm_command(self.plane, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs helm until the release has this status, and then kills it with SIGKILL.
    async fn interrupt(&self, release: &str, status: &str, arguments: &[&str]) {
        let mut command = self.world.helm_command(self.plane, arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually(&format!("{release} is {status}"), || async {
            (self.statuses(release).await.last()? == status).then_some(())
        })
        .await;
        // The status is written before the work begins, so helm gets some time to work.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(child.try_wait().unwrap().is_none(), "helm {arguments:?} did not wait");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(self.statuses(release).await.last().unwrap(), status);
    }

    /// Interrupts each operation of [`INTERRUPTED`].
    async fn interrupt_all(&self) {
        let slow = &*self.archive;
        self.interrupt("install", "pending-install", &["install", "install", slow, "--set", "hold=true"])
            .await;

        self.run(&["install", "upgrade", slow, "--set", "hold=false"]);
        self.interrupt("upgrade", "pending-upgrade", &["upgrade", "upgrade", slow, "--set", "hold=true"])
            .await;

        self.run(&["install", "rollback", slow, "--set", "hold=true", "--no-hooks"]);
        self.run(&["upgrade", "rollback", slow, "--set", "hold=false"]);
        self.interrupt("rollback", "pending-rollback", &["rollback", "rollback", "1"]).await;

        self.run(&["install", "uninstall", slow, "--set", "hold=false"]);
        self.set_finalizers("uninstall", json!(["example.com/hold"])).await;
        self.interrupt("uninstall", "uninstalling", &["uninstall", "uninstall", "--wait"]).await;
        self.set_finalizers("uninstall", json!(null)).await;
    }

    async fn set_finalizers(&self, name: &str, finalizers: serde_json::Value) {
        let maps: Api<ConfigMap> = Api::namespaced(self.plane.client().await.unwrap(), "default");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.plane.client().await.unwrap(), "default")
    }

    /// Returns the release Secrets of a release, sorted by revision.
    async fn release_secrets(&self, release: &str) -> Vec<Secret> {
        let secrets = self.secrets().await;
        let selector = ListParams::default().labels(&format!("owner=helm,name={release}"));
        let mut all = secrets.list(&selector).await.unwrap().items;
        all.sort_by_key(|secret| label(secret, "version").parse::<u32>().unwrap());
        all
    }

    /// Returns the status of each stored revision, the newest last.
    async fn statuses(&self, release: &str) -> Vec<String> {
        self.release_secrets(release).await.iter().map(|secret| label(secret, "status")).collect()
    }

    /// Changes the record of the newest revision as its client would, without changing its status.
    async fn touch(&self, release: &str) {
        let newest = self.release_secrets(release).await.pop().unwrap();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"touched": "true"}}}));
        let secrets = self.secrets().await;
        secrets.patch(&newest.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }
}

fn label(secret: &Secret, key: &str) -> String {
    secret.metadata.labels.as_ref().unwrap()[key].clone()
}

fn history(statuses: &[&str]) -> Vec<(u64, String)> {
    (1..).zip(statuses.iter().map(|status| (*status).to_owned())).collect()
}

/// Waits until a release is left to another client, which is given until this time.
async fn wait_left(world: &World, release: &str, status: &str) -> Timestamp {
    let taken_over_at = |status: &ReleaseStatus| {
        let message = &condition(status, "Ready")?.message;
        let (_, until) = message.split_once("Chandler takes over at ")?;
        assert!(message.contains("the operation of another client"), "{message}");
        until.parse::<Timestamp>().ok()
    };
    let seen = world.wait_status(release, "alpha", "left", |status| taken_over_at(status).is_some()).await;
    let reason = &condition(&seen, "Ready").unwrap().reason;
    assert_eq!((&**reason, &*seen.status), ("HelmReleasePending", status), "{release}");
    taken_over_at(&seen).unwrap()
}

/// Enqueues a release object, which a shifted clock does not.
async fn enqueue(world: &World, release: &str) {
    let name = world.release(release, "alpha").await.unwrap().name_any();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"at": Timestamp::now().to_string()}}}));
    world.releases().patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_release_interrupted_in_any_state_is_recovered_once_its_record_has_not_changed_for_long() {
    let world = World::new("interrupted").await;
    let alpha = world.create_cluster("alpha").await;
    let helm = HelmCli::new(&world, &alpha);
    helm.interrupt_all().await;
    let clock = ShiftedClock::new(&world.dir);
    let started = Timestamp::now();
    let _manager = Manager::start_with_environment(&world, 15, &[], clock.environment());
    for (release, _) in INTERRUPTED {
        let timeout = if release == "rollback" { "20m" } else { "5m" };
        let spec = json!({"valuesTemplate": "hold: false", "options": {"timeout": timeout}});
        world.apply_placement(release, "slow", spec).await;
    }
    for (release, status) in INTERRUPTED {
        let until = wait_left(&world, release, status).await;
        let minutes = if release == "rollback" { 20 } else { 10 };
        assert!(
            until >= started + SignedDuration::from_mins(minutes),
            "{release} is seen first now: {until}"
        );
    }
    // The other client still works on this one, as far as its record tells.
    clock.set(6 * 60);
    let before = wait_left(&world, "upgrade", "pending-upgrade").await;
    helm.touch("upgrade").await;
    eventually("the time counts from the change of the record", || async {
        (wait_left(&world, "upgrade", "pending-upgrade").await > before).then_some(())
    })
    .await;

    clock.set(11 * 60);
    for (release, _) in INTERRUPTED {
        enqueue(&world, release).await;
    }
    // As in Helm, an upgrade supersedes the last deployed revision or, if there is none, the last revision.
    let expect_recovered = async |release: &str, expected: &[&str]| {
        world.wait_ready_at_any_revision(release, "alpha").await;
        assert_eq!(world.history(&alpha, release), history(expected), "{release}");
        assert_eq!(config_value(&alpha, release, "hold").await.as_deref(), Some("false"), "{release}");
    };
    expect_recovered("install", &["superseded", "deployed"]).await;
    expect_recovered("uninstall", &["deployed"]).await;
    for (release, status) in [("upgrade", "pending-upgrade"), ("rollback", "pending-rollback")] {
        assert_eq!(helm.statuses(release).await.last().unwrap(), status, "{release} is left alone");
    }
    clock.set(21 * 60);
    for release in ["upgrade", "rollback"] {
        enqueue(&world, release).await;
    }
    expect_recovered("upgrade", &["superseded", "failed", "deployed"]).await;
    expect_recovered("rollback", &["superseded", "superseded", "failed", "deployed"]).await;
}

#[tokio::test]
async fn a_release_interrupted_in_any_state_is_removed_at_once_when_its_placement_is_deleted() {
    let world = World::new("interrupted-delete").await;
    let alpha = world.create_cluster("alpha").await;
    let helm = HelmCli::new(&world, &alpha);
    helm.interrupt_all().await;
    let _manager = world.start_manager();
    for (release, _) in INTERRUPTED {
        world.apply_placement(release, "slow", json!({"valuesTemplate": "hold: false"})).await;
    }
    for (release, status) in INTERRUPTED {
        world.wait_status(release, "alpha", status, |current| current.status == status).await;
        world.delete_placement(release).await;
    }
    for (release, _) in INTERRUPTED {
        world.wait_deleted(release).await;
        assert_eq!(config_value(&alpha, release, "hold").await, None, "{release}");
    }
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}

#[tokio::test]
async fn a_failed_release_is_upgraded_once_its_values_are_fixed() {
    let world = World::new("fixed-values").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.patch_placement("hello", json!({"valuesTemplate": "replicas: many"})).await;
    let failed = world
        .wait_status("hello", "alpha", "failed", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
        })
        .await;
    assert_eq!(failed.status, "failed");
    world.patch_placement("hello", json!({"valuesTemplate": "replicas: 2"})).await;
    let revision = world.wait_ready_at_any_revision("hello", "alpha").await;
    let history = world.history(&alpha, "hello");
    let statuses: Vec<_> = history.iter().map(|(_, status)| status.as_str()).collect();
    let [first, failed @ .., last] = statuses.as_slice() else { panic!("{history:?}") };
    assert_eq!((*first, *last, history.last().unwrap().0), ("superseded", "deployed", revision.into()));
    assert!(!failed.is_empty() && failed.iter().all(|status| *status == "failed"), "{history:?}");
}
