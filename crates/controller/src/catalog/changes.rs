//! Tells when catalogs are not what they were.

use std::collections::HashMap;

use chandler_api::extensions::ExtensionCatalog;
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::ready;

use crate::sync::Mutex;

/// Counts changes of catalogs, of their objects and of what they offer.
#[derive(Debug, Default)]
pub(super) struct CatalogChanges {
    count: watch::Sender<u64>,
    /// By uid.
    known: Mutex<HashMap<String, State>>,
}

/// The generation of a catalog, and whether it is Ready.
type State = (Option<i64>, Option<String>);

impl CatalogChanges {
    pub fn sender(&self) -> watch::Sender<u64> {
        self.count.clone()
    }

    /// What a catalog offers is not what it was.
    pub fn changed(&self) {
        self.count.send_modify(|count| *count += 1);
    }

    /// An object was touched. What else its status says is no news: who waits for it to be read waits for Ready.
    pub fn touched(&self, catalog: &ExtensionCatalog, is_there: bool) {
        let uid = catalog.uid().unwrap_or_default();
        let mut known = self.known.lock();
        let (before, now) = if is_there {
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
    fn comings_goings_and_changes_are_news_and_status_is_not() {
        let catalog = |generation: i64| -> ExtensionCatalog {
            let json = serde_json::json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
                "metadata": {"name": "charts", "uid": "uid", "generation": generation},
                "spec": {"url": "https://charts.example"},
            });
            serde_json::from_value(json).unwrap()
        };
        let news = CatalogChanges::default();
        let seen = news.sender().subscribe();
        let rows = [(1, true, 1), (1, true, 1), (2, true, 2), (2, false, 3), (2, false, 3), (2, true, 4)];
        for (generation, is_there, count) in rows {
            news.touched(&catalog(generation), is_there);
            assert_eq!(*seen.borrow(), count);
        }
        news.changed();
        assert_eq!(*seen.borrow(), 5);
    }
}
