//! Releases that a killed client left in the middle of something, made by killing the real one.
//!
//! A release changed or deleted by hand is in `adoption`, one that our own death left in `crash`.

use std::{process::Stdio, time::Duration};

use chandler_e2e::{
    wait::eventually,
    world::{World, chart, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

/// What a helm CLI was doing when it was killed. Each is the name of a release too.
const CUT_OFF: [(&str, &str); 4] = [
    ("install", "pending-install"),
    ("upgrade", "pending-upgrade"),
    ("rollback", "pending-rollback"),
    ("uninstall", "uninstalling"),
];

/// A cluster and the helm CLI that somebody uses on it.
struct Hand<'a> {
    world: &'a World,
    plane: &'a Plane,
    archive: String,
}

impl<'a> Hand<'a> {
    fn new(world: &'a World, plane: &'a Plane) -> Self {
        let archive = world.archive(&chart("slow")).to_string_lossy().into_owned();
        Self { world, plane, archive }
    }

    fn run(&self, arguments: &[&str]) {
        let output = self.world.helm_command(self.plane, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs helm until the release has this status, then kills it with -9.
    async fn cut_off(&self, release: &str, status: &str, arguments: &[&str]) {
        let mut command = self.world.helm_command(self.plane, arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually(&format!("{release} is {status}"), || async {
            (self.statuses(release).await.last()? == status).then_some(())
        })
        .await;
        // The status is written before the work begins: let it be in the middle.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(child.try_wait().unwrap().is_none(), "helm {arguments:?} did not wait");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(self.statuses(release).await.last().unwrap(), status);
    }

    /// Leaves every release as its killed client does.
    async fn cut_off_all(&self) {
        let slow = &*self.archive;
        self.cut_off("install", "pending-install", &["install", "install", slow, "--set", "hold=true"]).await;

        self.run(&["install", "upgrade", slow, "--set", "hold=false"]);
        self.cut_off("upgrade", "pending-upgrade", &["upgrade", "upgrade", slow, "--set", "hold=true"]).await;

        self.run(&["install", "rollback", slow, "--set", "hold=true", "--no-hooks"]);
        self.run(&["upgrade", "rollback", slow, "--set", "hold=false"]);
        self.cut_off("rollback", "pending-rollback", &["rollback", "rollback", "1"]).await;

        self.run(&["install", "uninstall", slow, "--set", "hold=false"]);
        self.held_by_finalizer("uninstall", json!(["example.com/hold"])).await;
        self.cut_off("uninstall", "uninstalling", &["uninstall", "uninstall", "--wait"]).await;
        self.held_by_finalizer("uninstall", json!(null)).await;
    }

    async fn held_by_finalizer(&self, name: &str, finalizers: serde_json::Value) {
        let maps: Api<ConfigMap> = Api::namespaced(self.plane.client().await.unwrap(), "default");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn records(&self) -> Api<Secret> {
        Api::namespaced(self.plane.client().await.unwrap(), "default")
    }

    async fn stored(&self, release: &str) -> Vec<Secret> {
        let records = self.records().await;
        let mine = ListParams::default().labels(&format!("owner=helm,name={release}"));
        let mut all = records.list(&mine).await.unwrap().items;
        all.sort_by_key(|record| label(record, "version").parse::<u32>().unwrap());
        all
    }

    /// The status of each stored revision, the newest last.
    async fn statuses(&self, release: &str) -> Vec<String> {
        self.stored(release).await.iter().map(|record| label(record, "status")).collect()
    }

    /// Lets the newest revision look as old as if its client had died an hour ago.
    async fn age(&self, release: &str) {
        let newest = self.stored(release).await.pop().unwrap();
        let then = (Timestamp::now() - Duration::from_hours(1)).as_second().to_string();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"createdAt": then, "modifiedAt": then}}}));
        let records = self.records().await;
        records.patch(&newest.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }
}

fn label(record: &Secret, key: &str) -> String {
    record.metadata.labels.as_ref().unwrap()[key].clone()
}

fn history(statuses: &[&str]) -> Vec<(u64, String)> {
    (1..).zip(statuses.iter().map(|status| (*status).to_owned())).collect()
}

#[tokio::test]
async fn a_release_cut_off_in_any_state_is_respected_while_it_is_young_then_brought_to_what_is_wanted() {
    let world = World::new("cutoff").await;
    let alpha = world.cluster("alpha").await;
    let hand = Hand::new(&world, &alpha);
    hand.cut_off_all().await;
    let _manager = world.manager();
    for (release, _) in CUT_OFF {
        world.place(release, "slow", json!({"valuesTemplate": "hold: false"})).await;
    }
    for (release, status) in CUT_OFF {
        let told = world
            .status(release, "alpha", "left to whoever works on it", |seen| {
                condition(seen, "Ready").is_some_and(|c| c.message.contains("the operation of another client"))
            })
            .await;
        let ready = condition(&told, "Ready").unwrap();
        assert_eq!((&*ready.reason, &*told.status), ("HelmReleasePending", status), "{ready:?}");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (release, status) in CUT_OFF {
        assert_eq!(hand.statuses(release).await.last().unwrap(), status, "nobody interferes");
        hand.age(release).await;
    }
    // As helm itself writes it: an upgrade supersedes the last good revision or, where there is none, the last.
    for (release, expected) in [
        ("install", &["superseded", "deployed"][..]),
        ("upgrade", &["superseded", "failed", "deployed"]),
        ("rollback", &["superseded", "superseded", "failed", "deployed"]),
        ("uninstall", &["deployed"]),
    ] {
        world.ready_at_any_revision(release, "alpha").await;
        assert_eq!(world.history(&alpha, release), history(expected), "{release}");
        assert_eq!(config_value(&alpha, release, "hold").await.as_deref(), Some("false"), "{release}");
    }
}

#[tokio::test]
async fn a_release_cut_off_in_any_state_is_removed_at_once_when_its_placement_goes() {
    let world = World::new("cutremoved").await;
    let alpha = world.cluster("alpha").await;
    let hand = Hand::new(&world, &alpha);
    hand.cut_off_all().await;
    let _manager = world.manager();
    for (release, _) in CUT_OFF {
        world.place(release, "slow", json!({"valuesTemplate": "hold: false"})).await;
    }
    for (release, status) in CUT_OFF {
        world.status(release, "alpha", status, |seen| seen.status == status).await;
        world.delete(release).await;
    }
    for (release, _) in CUT_OFF {
        world.gone(release).await;
        assert_eq!(config_value(&alpha, release, "hold").await, None, "{release}");
    }
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}

#[tokio::test]
async fn a_failed_release_is_upgraded_once_its_values_are_mended() {
    let world = World::new("mendedvalues").await;
    let alpha = world.cluster("alpha").await;
    let _manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    world.change("hello", json!({"valuesTemplate": "replicas: many"})).await;
    let failed = world
        .status("hello", "alpha", "failed", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
        })
        .await;
    assert_eq!(failed.status, "failed");
    world.change("hello", json!({"valuesTemplate": "replicas: 2"})).await;
    let revision = world.ready_at_any_revision("hello", "alpha").await;
    let past = world.history(&alpha, "hello");
    let statuses: Vec<_> = past.iter().map(|(_, status)| status.as_str()).collect();
    let [first, failed @ .., last] = statuses.as_slice() else { panic!("{past:?}") };
    assert_eq!((*first, *last, past.last().unwrap().0), ("superseded", "deployed", revision.into()));
    assert!(!failed.is_empty() && failed.iter().all(|status| *status == "failed"), "{past:?}");
}
