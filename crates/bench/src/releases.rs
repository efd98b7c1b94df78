//! What the management cluster says of every release, followed by one watch.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, bail};
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

use crate::world::{ADDON_LABEL, Wanted};

/// A release of an add-on on a cluster.
pub type Key = (String, String);

/// All releases as last seen.
#[derive(Clone, Debug, Default)]
pub struct Board(BTreeMap<String, Release>);

#[derive(Clone, Debug, PartialEq)]
struct Release {
    key: Key,
    version: String,
    values: String,
    revision: Option<u64>,
    ready: bool,
}

impl Board {
    /// How many of the releases are Ready, as wanted, at this revision.
    pub fn done(&self, keys: &[Key], wanted: &Wanted, revision: u64) -> usize {
        keys.iter()
            .filter(|key| {
                self.0.values().any(|release| {
                    release.key == **key
                        && release.ready
                        && release.revision == Some(revision)
                        && release.version == wanted.version
                        && release.values.contains(wanted.greeting)
                })
            })
            .count()
    }

    pub fn is_ready(&self, key: &Key) -> bool {
        self.0.values().any(|release| release.key == *key && release.ready)
    }

    /// Whether there is a release object of the add-on.
    pub fn has(&self, addon: &str) -> bool {
        self.0.values().any(|release| release.key.0 == addon)
    }
}

pub struct Releases {
    board: watch::Receiver<Board>,
    _watching: AbortOnDropHandle<()>,
}

impl Releases {
    pub fn follow(client: Client, namespace: &str) -> Self {
        let resource = ApiResource::erase::<chandler_api::addons::HelmReleaseProxy>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let (sender, board) = watch::channel(Board::default());
        let watching = tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                sender.send_modify(|board| take_in(board, event));
            }
        });
        Self { board, _watching: AbortOnDropHandle::new(watching) }
    }

    pub fn now(&self) -> Board {
        self.board.borrow().clone()
    }

    /// Waits until the board is as wanted.
    pub async fn until(&self, limit: Duration, wanted: impl FnMut(&Board) -> bool) -> Result<()> {
        let mut board = self.board.clone();
        match tokio::time::timeout(limit, board.wait_for(wanted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => bail!("the watch on releases has ended"),
            Err(_) => bail!("not within {} s", limit.as_secs()),
        }
    }
}

fn take_in(board: &mut Board, event: Result<Event<DynamicObject>, watcher::Error>) {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            board.0.insert(object.name_any(), release(&object));
        }
        Ok(Event::Delete(object)) => {
            board.0.remove(&object.name_any());
        }
        Ok(Event::Init | Event::InitDone) => {}
        Err(error) => tracing::warn!(%error, "watching releases"),
    }
}

/// Read off the plain object, because another controller may leave out what ours always writes.
fn release(object: &DynamicObject) -> Release {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let observed = status["observedGeneration"].as_i64();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    Release {
        key: (
            object.labels().get(ADDON_LABEL).cloned().unwrap_or_default(),
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

    fn seen(changes: &[(&str, Value)]) -> Board {
        let mut object = serde_json::json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a-1", "generation": 2, "labels": {ADDON_LABEL: "a"}},
            "spec": {"clusterRef": {"name": "alpha"}, "version": "1.0.0", "values": "greeting: one"},
            "status": {"revision": 1, "observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (pointer, value) in changes {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        let mut board = Board::default();
        take_in(&mut board, Ok(Event::Apply(serde_json::from_value(object).unwrap())));
        board
    }

    #[test]
    fn a_release_is_done_only_when_all_of_it_is() {
        let wanted = Wanted { version: "1.0.0", greeting: "one" };
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
            assert_eq!(seen(changes).done(&keys, &wanted, 1), expected, "{changes:?}");
        }
    }
}
