//! Notifies others of changes to catalogs.

use std::collections::HashMap;

use chandler_api::extensions::ExtensionCatalog;
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::ready;
use crate::locks::Mutex;

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

    /// Records a watch event. Of the status only the condition `Ready` matters.
    pub fn on_object(&self, catalog: &ExtensionCatalog, exists: bool) {
        let uid = catalog.uid().unwrap_or_default();
        let mut known = self.known.lock();
        let (before, now) = if exists {
            let now = state(catalog);
            (known.insert(uid, now.clone()), Some(now))
        } else {
            (known.remove(&uid), None)
        };
        if before != now {
            self.changed();
        }
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
            changes.on_object(&catalog(generation), exists);
            assert_eq!(*count.borrow(), expected);
        }
        changes.changed();
        assert_eq!(*count.borrow(), 5);
    }
}
