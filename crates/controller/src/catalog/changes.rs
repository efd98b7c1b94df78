//! Notifies others of changes to catalogs.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use chandler_api::extensions::ExtensionCatalog;
use kube::ResourceExt as _;
use tokio::sync::{Notify, watch};

use super::ready;
use crate::{locks::Mutex, routing::ObjectKey};

/// The catalogs that have changed. One task takes them.
#[derive(Debug, Default)]
pub(super) struct ChangedCatalogs {
    keys: Mutex<BTreeSet<ObjectKey>>,
    added: Notify,
}

impl ChangedCatalogs {
    pub fn add(&self, catalog: &ExtensionCatalog) {
        self.keys.lock().insert(ObjectKey::of(catalog));
        self.added.notify_one();
    }

    /// Waits for a change, and `longer` for further ones. Returns all of them.
    pub async fn next(&self, longer: Duration) -> BTreeSet<ObjectKey> {
        loop {
            self.added.notified().await;
            tokio::time::sleep(longer).await;
            let changed = std::mem::take(&mut *self.keys.lock());
            if !changed.is_empty() {
                return changed;
            }
        }
    }
}

/// Counts changes to catalogs: to their objects and to the packages they offer.
#[derive(Debug, Default)]
pub(super) struct CatalogChanges {
    count: watch::Sender<u64>,
    /// By uid.
    known: Mutex<HashMap<String, State>>,
}

/// The generation of a catalog and the status of its condition `Ready`.
type State = (Option<i64>, Option<String>);

impl CatalogChanges {
    pub fn sender(&self) -> watch::Sender<u64> {
        self.count.clone()
    }

    /// Records that a catalog offers other packages.
    pub fn changed(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    /// Records a watch event, and returns whether it is a change. Of the status only the condition `Ready` matters.
    pub fn on_object(&self, catalog: &ExtensionCatalog, exists: bool) -> bool {
        let uid = catalog.uid().unwrap_or_default();
        let mut known = self.known.lock();
        let (before, now) = if exists {
            let now = state(catalog);
            (known.insert(uid, now.clone()), Some(now))
        } else {
            (known.remove(&uid), None)
        };
        let is_changed = before != now;
        if is_changed {
            self.changed();
        }
        is_changed
    }
}

fn state(catalog: &ExtensionCatalog) -> State {
    let ready = catalog.status.as_ref().and_then(ready);
    (catalog.metadata.generation, ready.map(|ready| ready.status.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creation_deletion_and_new_generations_are_changes() {
        let catalog = |generation: i64| -> ExtensionCatalog {
            let json = serde_json::json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
                "metadata": {"name": "charts", "uid": "uid", "generation": generation},
                "spec": {"url": "https://charts.example"},
            });
            serde_json::from_value(json).unwrap()
        };
        let changes = CatalogChanges::default();
        let count = changes.sender().subscribe();
        let rows = [(1, true, 1), (1, true, 1), (2, true, 2), (2, false, 3), (2, false, 3), (2, true, 4)];
        for (generation, exists, expected) in rows {
            let before = *count.borrow();
            assert_eq!(changes.on_object(&catalog(generation), exists), expected > before);
            assert_eq!(*count.borrow(), expected);
        }
        changes.changed();
        assert_eq!(*count.borrow(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_together_are_taken_together() {
        let catalog = |name: &str| -> ExtensionCatalog {
            let json = serde_json::json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
                "metadata": {"name": name, "namespace": "fleet"}, "spec": {"url": "https://charts.example"},
            });
            serde_json::from_value(json).unwrap()
        };
        let (changed, longer) = (ChangedCatalogs::default(), Duration::from_millis(200));
        let add = async {
            changed.add(&catalog("a"));
            tokio::time::sleep(longer / 4).await;
            changed.add(&catalog("b"));
            changed.add(&catalog("a"));
        };
        let (first, ()) = tokio::join!(changed.next(longer), add);
        let names: Vec<_> = first.iter().map(|key| &*key.name).collect();
        assert_eq!(names, ["a", "b"]);
        changed.add(&catalog("c"));
        assert_eq!(changed.next(longer).await.len(), 1);
        let none = tokio::time::timeout(2 * longer, changed.next(longer)).await;
        assert!(none.is_err(), "nothing has changed");
    }
}
