//! Watches the release objects of the management cluster.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use chandler_api::{
    addons::{CHART_PROXY_NAME_LABEL, HelmReleaseProxy},
    extensions::{AddonRelease, INSTANCE_LABEL},
};
use chandler_sandbox::{plane::Plane, process::Child};
use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::{controller::exit_error, environment::DesiredAddon};

pub const TIMEOUT: Duration = Duration::from_mins(5);

/// A release, as the names of its add-on and its cluster.
pub type Key = (String, String);

/// Returns the releases of add-ons on clusters.
pub fn keys(addons: &[String], planes: &[Plane]) -> Vec<Key> {
    let on_planes = |addon: &String| {
        planes.iter().map(|plane| (addon.clone(), plane.name().to_owned())).collect::<Vec<_>>()
    };
    addons.iter().flat_map(on_planes).collect()
}

/// The kind of the release objects.
#[derive(Clone, Copy, Debug)]
pub enum ReleaseKind {
    HelmReleaseProxy,
    /// The version of such a release is the commit that its package was made of.
    AddonRelease,
}

impl ReleaseKind {
    fn resource(self) -> ApiResource {
        match self {
            Self::HelmReleaseProxy => ApiResource::erase::<HelmReleaseProxy>(&()),
            Self::AddonRelease => ApiResource::erase::<AddonRelease>(&()),
        }
    }

    /// Returns the label with the name of the add-on.
    fn addon_label(self) -> &'static str {
        match self {
            Self::HelmReleaseProxy => CHART_PROXY_NAME_LABEL,
            Self::AddonRelease => INSTANCE_LABEL,
        }
    }

    /// Returns the name of the cluster and the version in a spec.
    fn cluster_and_version(self, spec: &Value) -> (&Value, &Value) {
        match self {
            Self::HelmReleaseProxy => (&spec["clusterRef"]["name"], &spec["version"]),
            Self::AddonRelease => (&spec["cluster"], &spec["pinned"]["revision"]),
        }
    }
}

/// The state that releases have to reach.
#[derive(Clone, Copy, Debug)]
pub struct DesiredReleases<'a> {
    pub keys: &'a [Key],
    pub addon: DesiredAddon<'a>,
    pub revision: u64,
}

/// All releases at a point in time.
#[derive(Clone, Debug, Default)]
pub struct ReleaseSnapshot(BTreeMap<String, Release>);

#[derive(Clone, Debug, PartialEq)]
struct Release {
    key: Key,
    version: String,
    values: String,
    revision: Option<u64>,
    ready: bool,
}

impl ReleaseSnapshot {
    /// Returns how many of the releases are Ready in the desired state.
    pub fn count_done(&self, desired: &DesiredReleases<'_>) -> usize {
        let DesiredReleases { keys, addon, revision } = desired;
        keys.iter()
            .filter(|key| {
                self.0.values().any(|release| {
                    release.key == **key
                        && release.ready
                        && release.revision == Some(*revision)
                        && release.version == addon.version
                        && release.values.contains(addon.greeting)
                })
            })
            .count()
    }

    pub fn is_ready(&self, key: &Key) -> bool {
        self.0.values().any(|release| release.key == *key && release.ready)
    }

    /// Returns whether the add-on has a release.
    pub fn contains(&self, addon: &str) -> bool {
        self.0.values().any(|release| release.key.0 == addon)
    }
}

pub struct Releases {
    snapshot: watch::Receiver<ReleaseSnapshot>,
    _task: AbortOnDropHandle<()>,
}

impl Releases {
    pub fn watch(client: Client, namespace: &str, kind: ReleaseKind) -> Self {
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind.resource());
        let (sender, snapshot) = watch::channel(ReleaseSnapshot::default());
        let task = tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                sender.send_modify(|snapshot| apply_event(snapshot, event, kind));
            }
        });
        Self { snapshot, _task: AbortOnDropHandle::new(task) }
    }

    pub fn snapshot(&self) -> ReleaseSnapshot {
        self.snapshot.borrow().clone()
    }

    /// Waits until the releases have reached a state. Returns an error if the controller exits first.
    pub async fn wait_done(&self, controller: Option<&Child>, desired: &DesiredReleases<'_>) -> Result<()> {
        let DesiredReleases { keys, revision, .. } = desired;
        let done = self.wait_for(TIMEOUT, |snapshot| snapshot.count_done(desired) == keys.len());
        let result = match controller {
            Some(child) => tokio::select! {
                result = done => result,
                error = exit_error(child) => Err(error),
            },
            None => done.await,
        };
        result.with_context(|| {
            let count = self.snapshot().count_done(desired);
            format!("{count} of {} releases are ready at revision {revision}", keys.len())
        })
    }

    /// Waits until the releases match a predicate.
    pub async fn wait_for(
        &self,
        timeout: Duration,
        predicate: impl FnMut(&ReleaseSnapshot) -> bool,
    ) -> Result<()> {
        let mut snapshot = self.snapshot.clone();
        match tokio::time::timeout(timeout, snapshot.wait_for(predicate)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => bail!("the watch on releases has ended"),
            Err(_) => bail!("timed out after {} s", timeout.as_secs()),
        }
    }
}

fn apply_event(
    snapshot: &mut ReleaseSnapshot,
    event: Result<Event<DynamicObject>, watcher::Error>,
    kind: ReleaseKind,
) {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            snapshot.0.insert(object.name_any(), release(&object, kind));
        }
        Ok(Event::Delete(object)) => {
            snapshot.0.remove(&object.name_any());
        }
        Ok(Event::Init | Event::InitDone) => {}
        Err(error) => tracing::warn!(%error, "watching releases failed"),
    }
}

/// Reads a release from an untyped object, because another controller may omit fields that Chandler always sets.
fn release(object: &DynamicObject, kind: ReleaseKind) -> Release {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let observed = status["observedGeneration"].as_i64();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let (cluster, version) = kind.cluster_and_version(spec);
    Release {
        key: (object.labels().get(kind.addon_label()).cloned().unwrap_or_default(), text(cluster)),
        version: text(version),
        values: text(&spec["values"]),
        revision: status["revision"].as_u64(),
        ready: status["conditions"].as_array().into_iter().flatten().any(is_ready)
            && (observed.is_none() || observed == object.metadata.generation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(object: Value, kind: ReleaseKind) -> ReleaseSnapshot {
        let mut snapshot = ReleaseSnapshot::default();
        apply_event(&mut snapshot, Ok(Event::Apply(serde_json::from_value(object).unwrap())), kind);
        snapshot
    }

    fn changed(changes: &[(&str, Value)]) -> ReleaseSnapshot {
        let mut object = serde_json::json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a-1", "generation": 2, "labels": {CHART_PROXY_NAME_LABEL: "a"}},
            "spec": {"clusterRef": {"name": "alpha"}, "version": "1.0.0", "values": "greeting: one"},
            "status": {"revision": 1, "observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (pointer, value) in changes {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        snapshot(object, ReleaseKind::HelmReleaseProxy)
    }

    #[test]
    fn a_release_is_done_when_it_is_ready_in_the_desired_state() {
        let addon = DesiredAddon { version: "1.0.0", greeting: "one" };
        let keys = [("a".to_owned(), "alpha".to_owned())];
        let desired = DesiredReleases { keys: &keys, addon, revision: 1 };
        let rows: [(&[(&str, Value)], usize); 6] = [
            (&[], 1),
            (&[("/status/observedGeneration", Value::Null)], 1),
            (&[("/status/observedGeneration", 1.into())], 0),
            (&[("/status/revision", 2.into())], 0),
            (&[("/spec/values", "greeting: two".into())], 0),
            (&[("/status/conditions/0/status", "False".into())], 0),
        ];
        for (changes, expected) in rows {
            assert_eq!(changed(changes).count_done(&desired), expected, "{changes:?}");
        }
    }

    #[test]
    fn the_version_of_an_addon_release_is_its_commit() {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a-1", "labels": {INSTANCE_LABEL: "a"}},
            "spec": {"cluster": "alpha", "pinned": {"revision": "c1"}, "values": "greeting: one"},
            "status": {"revision": 1, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let keys = [("a".to_owned(), "alpha".to_owned())];
        let snapshot = snapshot(object, ReleaseKind::AddonRelease);
        for (version, expected) in [("c1", 1), ("c2", 0)] {
            let addon = DesiredAddon { version, greeting: "one" };
            let desired = DesiredReleases { keys: &keys, addon, revision: 1 };
            assert_eq!(snapshot.count_done(&desired), expected, "{version}");
        }
    }
}
