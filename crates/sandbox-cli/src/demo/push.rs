//! The third part of the demo: a push to a Git repository, which reaches all clusters.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Result, bail};
use chandler_api::extensions::{AddonRelease, INSTANCE_LABEL};
use chandler_sandbox::{
    Sandbox, apply,
    git_server::{GitServer, WorkTree},
};
use kube::{Api, Client, api::ListParams};
use serde_json::json;
use tokio::time::Instant;

use super::walkthrough::{NAMESPACE, POLL_INTERVAL, TIMEOUT};

/// The ExtensionInstance, its bundle, and the ConfigMap on the clusters.
const NAME: &str = "greeting";
const FILE: &str = "bundles/greeting/configmap.yaml";
const CLUSTERS: [&str; 3] = ["alpha", "bravo", "harbour"];

/// A Git repository with a bundle, which is served as long as the value lives.
pub struct Repository {
    server: GitServer,
    tree: WorkTree,
}

impl Repository {
    pub async fn start(sandbox: &Sandbox, dir: &Path) -> Result<Self> {
        let folder = dir.join("git");
        // A demo that was killed may have left it.
        std::fs::remove_dir_all(&folder).ok();
        let server = GitServer::start(sandbox.authority(), &folder.join("served")).await?;
        let tree = server.create("fleet").await?;
        Ok(Self { server, tree })
    }

    /// Commits the bundle with a text, and pushes it. Returns the id of the commit.
    pub async fn push(&self, text: &str) -> Result<String> {
        let commit = self.tree.commit(&format!("Say {text}"), &[(FILE, &config_map(text))]).await?;
        eprintln!("pushed commit {} to {}: {text}", short(&commit), self.server.url("fleet"));
        Ok(commit)
    }

    /// Applies a Source of the repository, and an ExtensionInstance that installs the bundle on all clusters.
    pub async fn apply(&self, client: &Client) -> Result<()> {
        let source = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": "fleet", "namespace": NAMESPACE},
            "spec": {
                "git": {"url": self.server.url("fleet"), "ref": {"branch": "main"}}, "interval": "1s",
                "certificateAuthority": {"name": "charts-ca", "key": "ca.crt"},
            },
        });
        let instance = json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {
                "source": {"sourceRef": {"name": "fleet"}, "path": "bundles/greeting"},
                "clusters": {"selector": {}}, "release": {"namespace": "default"},
            },
        });
        for object in [source, instance] {
            apply::apply(client, &object).await?;
        }
        eprintln!("applied Source {NAMESPACE}/fleet and ExtensionInstance {NAMESPACE}/{NAME}");
        eprintln!("to push changes yourself, commit and push in {}", self.tree.path().display());
        Ok(())
    }
}

fn config_map(text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {NAME}\n  namespace: default\ndata:\n  text: {text}\n"
    )
}

fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

/// Prints which clusters a commit has reached, until it has reached all of them.
pub struct PushProgress {
    releases: Api<AddonRelease>,
    commit: String,
    pushed: Instant,
    reached: BTreeSet<String>,
}

impl PushProgress {
    /// Starts to measure the time.
    pub fn new(client: &Client, commit: String) -> Self {
        let releases = Api::namespaced(client.clone(), NAMESPACE);
        Self { releases, commit, pushed: Instant::now(), reached: BTreeSet::new() }
    }

    /// Prints changes since the last call. Returns whether the commit has reached all clusters.
    pub async fn poll(&mut self) -> Result<bool> {
        let of_instance = ListParams::default().labels(&format!("{INSTANCE_LABEL}={NAME}"));
        for release in self.releases.list(&of_instance).await?.items {
            if has_reached(&release, &self.commit) && self.reached.insert(release.spec.cluster.clone()) {
                let seconds = self.pushed.elapsed().as_secs_f32();
                eprintln!("  {}: commit {} after {seconds:.1} s", release.spec.cluster, short(&self.commit));
            }
        }
        if CLUSTERS.iter().all(|cluster| self.reached.contains(*cluster)) {
            eprintln!("the push has reached all {} clusters", CLUSTERS.len());
            return Ok(true);
        }
        if self.pushed.elapsed() > TIMEOUT {
            bail!("commit {} has not reached all clusters within {TIMEOUT:?}", short(&self.commit));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok(false)
    }
}

/// Returns whether a release is ready with a package of this commit.
fn has_reached(release: &AddonRelease, commit: &str) -> bool {
    let pinned = release.spec.pinned.as_ref().is_some_and(|pinned| pinned.revision == commit);
    let status =
        release.status.as_ref().filter(|status| status.observed_generation == release.metadata.generation);
    let ready = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Ready"));
    pinned && ready.is_some_and(|ready| ready.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_reached_a_cluster_when_its_release_is_ready() {
        let release = |commit: &str, generation: u8, ready: &str| -> AddonRelease {
            let object = json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonRelease",
                "metadata": {"name": "a", "generation": 2},
                "spec": {
                    "cluster": "alpha", "release": {"name": "a", "namespace": "a"},
                    "source": {"sourceRef": {"name": "fleet"}},
                    "pinned": {"revision": commit, "digest": "sha256:0"},
                },
                "status": {"observedGeneration": generation, "conditions": [{
                    "type": "Ready", "status": ready, "reason": "x", "message": "",
                    "lastTransitionTime": "2025-01-01T00:00:00Z",
                }]},
            });
            serde_json::from_value(object).unwrap()
        };
        assert!(has_reached(&release("new", 2, "True"), "new"));
        for other in [release("old", 2, "True"), release("new", 1, "True"), release("new", 2, "False")] {
            assert!(!has_reached(&other, "new"));
        }
    }
}
