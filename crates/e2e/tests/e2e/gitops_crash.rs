//! Pushes survive SIGKILL: whenever the manager is killed, every change arrives once.

use std::sync::Arc;

use chandler_api::extensions::{AddonRelease, Source, SyncObject, SyncStatus};
use chandler_e2e::{
    chandler_command::run_ok,
    extension_world::{ExtensionWorld, is_ready},
    git_repository::{Repository, map},
    manager::{Manager, Operation},
    sync_world::deployer,
    wait::until,
    world::{condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::leadership::release_lease;

const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";

/// When the manager is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The Source has fetched the commit.
    Fetched,
    /// The Sync has read the commit, and may have written objects.
    Read,
    /// The manager has started an operation on a release.
    Started,
}

/// What a commit leads to.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// It is applied, and the add-on is ready with the package of a commit.
    Applied { add_on: &'a str },
    /// It is reported as invalid.
    Refused,
    /// It is applied, and a deletion waits for a confirmation.
    Held,
    /// The HelmChartProxy is deleted and its release is removed.
    Deleted,
}

/// A Sync of a folder with an ExtensionInstance, a HelmChartProxy and a ConfigMap, and a manager that is killed.
struct Pushes {
    manager: Option<Manager>,
    /// How often the add-on was left in a pending or failed state. Each time leaves one more revision.
    interrupted: usize,
    repository: Repository,
    alpha: Arc<Plane>,
    test: ExtensionWorld,
}

fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn has_reason(status: &SyncStatus, type_: &str, reason: &str) -> bool {
    find(&status.conditions, type_).is_some_and(|condition| condition.reason == reason)
}

impl Pushes {
    async fn new() -> Self {
        let test = ExtensionWorld::new("gitops-crash").await;
        let alpha = test.world.create_cluster("alpha").await;
        let repository = Repository::new(&test).await;
        for object in &deployer(&test.world.namespace) {
            test.world.apply(object).await;
        }
        let manager = Some(test.world.start_manager_with_long_lease());
        Self { manager, interrupted: 0, repository, alpha, test }
    }

    /// Applies the Sync. Confirms that a revision deletes the HelmChartProxy, if one is given.
    async fn apply_sync(&self, confirmed: Option<&str>) {
        let namespace = &self.test.world.namespace;
        let mut prune = json!({"enabled": true});
        if let Some(revision) = confirmed {
            let object = json!({
                "apiVersion": ADDONS, "kind": "HelmChartProxy", "namespace": namespace, "name": "hello",
            });
            prune["confirm"] = json!({"revision": revision, "objects": [object]});
        }
        let sync = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync",
            "metadata": {"name": "fleet", "namespace": namespace},
            "spec": {
                "source": {"sourceRef": {"name": "apps"}, "path": "fleet"},
                "serviceAccountName": "deployer", "prune": prune,
            },
        });
        self.test.world.apply(&sync).await;
    }

    /// Returns the files of the first commit.
    fn files(&self) -> [(&'static str, String); 4] {
        let selector = json!({"matchLabels": {"fleet": "test"}});
        let instance = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance", "metadata": {"name": "maps"},
            "spec": {
                "source": {"sourceRef": {"name": "apps"}, "path": "maps"},
                "release": {"namespace": "default"}, "clusters": {"selector": selector},
            },
        });
        let hello = json!({
            "apiVersion": ADDONS, "kind": "HelmChartProxy", "metadata": {"name": "hello"},
            "spec": {
                "clusterSelector": selector, "repoURL": self.test.world.repository.url(), "chartName": "hello",
                "version": "1.0.0", "releaseName": "hello", "namespace": "default",
                "tlsConfig": {"caSecret": {"name": "ca"}},
            },
        });
        [
            ("fleet/maps.json", instance.to_string()),
            ("fleet/hello.json", hello.to_string()),
            ("fleet/m.yaml", map("m", "1")),
            ("maps/a.yaml", map("a", "1")),
        ]
    }

    /// Waits for the end of a commit. Kills the manager at each of these moments, unless the end has come before.
    async fn survive(&mut self, commit: &str, moments: &[Moment], end: End<'_>) {
        for moment in moments {
            until(&format!("{commit}: {moment:?}"), async || {
                self.has_come(*moment, commit).await || self.is_over(commit, end).await
            })
            .await;
            let manager = self.manager.take().unwrap();
            let drivers = manager.tool_pids();
            manager.kill().await;
            // Until then, a driver may mark a pending revision as failed.
            until("the drivers exit with their manager", async || {
                // It is empty if the process has exited and was not waited for.
                let arguments = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                drivers.iter().all(|pid| arguments(pid).is_empty())
            })
            .await;
            let is_interrupted = |(name, status): &(String, String)| {
                name == "maps" && (status.starts_with("pending") || status == "failed")
            };
            self.interrupted += self.helm_releases().iter().filter(|one| is_interrupted(one)).count();
            // The next manager need not wait until the Lease ends.
            release_lease(&self.test.world).await;
            self.manager = Some(self.test.world.start_manager_with_long_lease());
        }
        until(&format!("{commit}: {end:?}"), async || self.is_over(commit, end).await).await;
    }

    async fn has_come(&self, moment: Moment, commit: &str) -> bool {
        let client = self.test.world.client.clone();
        let revision = match moment {
            Moment::Fetched => {
                let sources: Api<Source> = Api::namespaced(client, &self.test.world.namespace);
                sources.get("apps").await.unwrap().status.and_then(|status| status.revision)
            }
            Moment::Read => self.sync_status().await.and_then(|status| status.revision),
            Moment::Started => {
                return self.manager.as_ref().unwrap().operations().iter().any(Operation::is_start);
            }
        };
        revision.as_deref() == Some(commit)
    }

    async fn is_over(&self, commit: &str, end: End<'_>) -> bool {
        let Some(status) = self.sync_status().await else { return false };
        let applied = has_reason(&status, "Ready", "Applied") && status.revision.as_deref() == Some(commit);
        match end {
            End::Applied { add_on } => {
                applied && self.is_instance_ready().await && self.are_releases_ready(add_on).await
            }
            End::Refused => {
                let refused = has_reason(&status, "Ready", "InvalidPackage");
                refused && status.revision.as_deref() == Some(commit) && self.is_instance_refused().await
            }
            End::Held => applied && has_reason(&status, "PruneHeld", "Held"),
            End::Deleted => {
                applied
                    && has_reason(&status, "PruneHeld", "NothingHeld")
                    && self.test.world.placements().get_opt("hello").await.unwrap().is_none()
            }
        }
    }

    /// Returns the status of the Sync, if it is up to date.
    async fn sync_status(&self) -> Option<SyncStatus> {
        let world = &self.test.world;
        let syncs: Api<SyncObject> = Api::namespaced(world.client.clone(), &world.namespace);
        let sync = syncs.get("fleet").await.unwrap();
        sync.status.filter(|status| status.observed_generation == sync.metadata.generation)
    }

    /// Returns the condition `Ready` of the ExtensionInstance.
    async fn instance_ready(&self) -> Option<Condition> {
        let status = self.test.instances().get_opt("maps").await.unwrap()?.status?;
        find(&status.placement.conditions, "Ready").cloned()
    }

    async fn is_instance_ready(&self) -> bool {
        self.instance_ready().await.is_some_and(|ready| ready.status == "True")
    }

    async fn is_instance_refused(&self) -> bool {
        let ready = self.instance_ready().await;
        ready.is_some_and(|ready| ready.status == "False" && ready.message.contains("a.yaml"))
    }

    async fn add_on(&self) -> Option<AddonRelease> {
        let all = self.test.releases().list(&ListParams::default()).await.unwrap();
        all.items.into_iter().find(|release| release.spec.release.name == "maps")
    }

    /// Returns whether both releases are ready, the add-on with the package of this commit.
    async fn are_releases_ready(&self, commit: &str) -> bool {
        let Some(add_on) = self.add_on().await else { return false };
        let pinned = add_on.spec.pinned.as_ref().is_some_and(|pinned| pinned.revision == commit);
        let Some(hello) = self.test.world.release("hello", "alpha").await else { return false };
        let status = hello.status.filter(|status| status.observed_generation == hello.metadata.generation);
        let ready = status.as_ref().and_then(|status| condition(status, "Ready"));
        pinned && is_ready(&add_on) && ready.is_some_and(|ready| ready.status == "True")
    }

    /// Returns the names and statuses of the releases on the cluster.
    fn helm_releases(&self) -> Vec<(String, String)> {
        let all = self.test.world.helm(&self.alpha, &["list", "--all-namespaces"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = all.as_array().into_iter().flatten();
        all.map(|release| (text(&release["name"]), text(&release["status"]))).collect()
    }

    /// Returns the uids of the ConfigMap in the folder, the instance, its release object, and the ConfigMap on the cluster.
    async fn uids(&self) -> [String; 4] {
        let world = &self.test.world;
        let here: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
        let there: Api<ConfigMap> = Api::namespaced(self.alpha.client().await.unwrap(), "default");
        let uids = [
            here.get("m").await.unwrap().uid(),
            self.test.instances().get("maps").await.unwrap().uid(),
            self.add_on().await.unwrap().uid(),
            there.get("a").await.unwrap().uid(),
        ];
        uids.map(Option::unwrap)
    }

    /// Waits until `chandler where` lists the Sync and the add-on with these arrivals and revisions.
    async fn wait_where(&self, commit: &str, expected: [(&str, &str); 2]) {
        until(&format!("{commit} is at {expected:?}"), async || {
            let report = run_ok(&self.test.world, &["where", commit, "--output", "json"]).await;
            let report: Value = serde_json::from_str(&report).unwrap();
            let places = report["places"].as_array().unwrap().iter();
            let found = places.map(|place| (place["arrival"].as_str(), place["revision"].as_str()));
            found.eq(expected.map(|(arrival, revision)| (Some(arrival), Some(revision))))
        })
        .await;
    }
}

#[tokio::test]
async fn a_manager_killed_at_every_step_of_a_push_loses_nothing() {
    let mut pushes = Box::pin(Pushes::new()).await;
    let files = pushes.files();
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let first = pushes.repository.push(&files).await;
    pushes.apply_sync(None).await;
    let end = End::Applied { add_on: &first };
    pushes.survive(&first, &[Moment::Fetched, Moment::Started], end).await;
    let created = pushes.uids().await;

    let second =
        pushes.repository.push(&[("fleet/m.yaml", &map("m", "2")), ("maps/a.yaml", &map("a", "2"))]).await;
    let end = End::Applied { add_on: &second };
    pushes.survive(&second, &[Moment::Read, Moment::Started], end).await;
    let bad = [("fleet/m.yaml", "apiVersion: v1\nkind: Conf"), ("maps/a.yaml", "# no object\n- one\n")];
    let bad = pushes.repository.push(&bad).await;
    pushes.survive(&bad, &[Moment::Fetched, Moment::Read], End::Refused).await;
    pushes.repository.tree.git(&["revert", "--no-edit", "HEAD"]).await.unwrap();
    let reverted = pushes.repository.tree.push().await.unwrap();
    // The invalid content was pinned, so the content of before arrives with another commit. Its package is the same.
    pushes.survive(&reverted, &[Moment::Fetched], End::Applied { add_on: &reverted }).await;

    pushes.repository.tree.git(&["rm", "--quiet", "fleet/hello.json"]).await.unwrap();
    let removed = pushes.repository.push(&[]).await;
    pushes.survive(&removed, &[Moment::Read], End::Held).await;
    assert!(pushes.test.world.placements().get_opt("hello").await.unwrap().is_some());
    pushes.apply_sync(Some(&removed)).await;
    pushes.survive(&removed, &[Moment::Started], End::Deleted).await;
    pushes.manager.as_ref().unwrap().wait_idle().await;

    // The objects are those that were created first, with the last values; the inventory lists exactly these.
    assert_eq!(pushes.uids().await, created);
    let world = &pushes.test.world;
    let here: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    assert_eq!(here.get("m").await.unwrap().data.unwrap()["value"], "2");
    assert_eq!(config_value(&pushes.alpha, "a", "value").await.as_deref(), Some("2"));
    let inventory = pushes.sync_status().await.unwrap().inventory;
    let inventory: Vec<_> = inventory.iter().map(|object| (&*object.name, &*object.uid)).collect();
    assert_eq!(inventory, [("m", &*created[0]), ("maps", &*created[1])]);

    // Each change of the add-on is one revision, and `chandler where` names the commits of these changes.
    assert_eq!(pushes.helm_releases(), [("maps".to_owned(), "deployed".to_owned())]);
    let history = world.history(&pushes.alpha, "maps");
    assert!((2..=2 + pushes.interrupted).contains(&history.len()), "{history:?}, {}", pushes.interrupted);
    assert_eq!(history.iter().filter(|(_, status)| status == "deployed").count(), 1, "{history:?}");
    assert!(history.iter().all(|(_, status)| !status.starts_with("pending")), "{history:?}");
    pushes.wait_where(&removed, [("Current", &removed), ("Unchanged", &reverted)]).await;
    pushes.wait_where(&second, [("Later", &removed), ("Later", &reverted)]).await;
}
