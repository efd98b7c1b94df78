//! Watches the `HelmReleaseProxy` objects of the management cluster.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, bail};
use chandler_api::addons::{CHART_PROXY_NAME_LABEL, HelmReleaseProxy};
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

use crate::environment::DesiredAddon;

/// A release, as the names of its add-on and its cluster.
pub type Key = (String, String);

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
    /// Returns how many of the releases are Ready in the desired state at a revision.
    pub fn count_done(&self, keys: &[Key], desired: &DesiredAddon, revision: u64) -> usize {
        keys.iter()
            .filter(|key| {
                self.0.values().any(|release| {
                    release.key == **key
                        && release.ready
                        && release.revision == Some(revision)
                        && release.version == desired.version
                        && release.values.contains(desired.greeting)
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
    pub fn watch(client: Client, namespace: &str) -> Self {
        let resource = ApiResource::erase::<HelmReleaseProxy>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let (sender, snapshot) = watch::channel(ReleaseSnapshot::default());
        let task = tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                sender.send_modify(|snapshot| apply_event(snapshot, event));
            }
        });
        Self { snapshot, _task: AbortOnDropHandle::new(task) }
    }

    pub fn snapshot(&self) -> ReleaseSnapshot {
        self.snapshot.borrow().clone()
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

fn apply_event(snapshot: &mut ReleaseSnapshot, event: Result<Event<DynamicObject>, watcher::Error>) {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            snapshot.0.insert(object.name_any(), release(&object));
        }
        Ok(Event::Delete(object)) => {
            snapshot.0.remove(&object.name_any());
        }
        Ok(Event::Init | Event::InitDone) => {}
        Err(error) => tracing::warn!(%error, "watching releases failed"),
    }
}

/// Reads a release from an untyped object, because another controller may omit fields that Chandler always sets.
fn release(object: &DynamicObject) -> Release {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let observed = status["observedGeneration"].as_i64();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    Release {
        key: (
            object.labels().get(CHART_PROXY_NAME_LABEL).cloned().unwrap_or_default(),
            text(&spec["clusterRef"]["name"]),
        ),
        version: text(&spec["version"]),
        values: text(&spec["values"]),
        revision: status["revision"].as_u64(),
        ready: status["conditions"].as_array().into_iter().flatten().any(is_ready)
            && (observed.is_none() || observed == object.metadata.generation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(changes: &[(&str, Value)]) -> ReleaseSnapshot {
        let mut object = serde_json::json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a-1", "generation": 2, "labels": {CHART_PROXY_NAME_LABEL: "a"}},
            "spec": {"clusterRef": {"name": "alpha"}, "version": "1.0.0", "values": "greeting: one"},
            "status": {"revision": 1, "observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (pointer, value) in changes {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        let mut snapshot = ReleaseSnapshot::default();
        apply_event(&mut snapshot, Ok(Event::Apply(serde_json::from_value(object).unwrap())));
        snapshot
    }

    #[test]
    fn a_release_is_done_when_it_is_ready_in_the_desired_state() {
        let desired = DesiredAddon { version: "1.0.0", greeting: "one" };
        let keys = [("a".to_owned(), "alpha".to_owned())];
        let rows: [(&[(&str, Value)], usize); 6] = [
            (&[], 1),
            (&[("/status/observedGeneration", Value::Null)], 1),
            (&[("/status/observedGeneration", 1.into())], 0),
            (&[("/status/revision", 2.into())], 0),
            (&[("/spec/values", "greeting: two".into())], 0),
            (&[("/status/conditions/0/status", "False".into())], 0),
        ];
        for (changes, expected) in rows {
            assert_eq!(snapshot(changes).count_done(&keys, &desired, 1), expected, "{changes:?}");
        }
    }
}
