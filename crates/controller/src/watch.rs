//! Watches the management cluster with backoff and without managed fields. An object that cannot be decoded is logged
//! and skipped, so that it does not stall the watch.
//!
//! Each kind has its own watch and its own cache, so caches of different kinds show different moments: a connection that is dropped
//! silently shows nothing for about a minute, while the other watches go on. An object that a cache does not contain may exist, and
//! one that it contains may have been deleted, or moved to another management cluster. Before Chandler deletes or uninstalls
//! something, removes a finalizer or creates an object again because of a missing object, it reads that object from the API server.

use std::{collections::HashSet, fmt::Debug, hash::Hash, time::Duration};

use futures::{StreamExt as _, future::ready};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _, reflector,
        reflector::{Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// How often a task looks whether a store is complete.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Returns a store of objects that were listed once and are not watched.
pub fn listed<K>(objects: Vec<K>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let mut writer = Writer::new(());
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(object));
    }
    writer.as_reader()
}

/// The objects to watch.
#[derive(Clone, Debug)]
pub struct Scope {
    /// `None` means all namespaces.
    pub namespace: Option<String>,
    /// A label selector. `None` means all objects.
    pub labels: Option<String>,
}

impl Scope {
    /// Returns this scope and that of the platform's namespace if this one does not include it.
    pub fn and_platform(self, platform: &str) -> Vec<Self> {
        let other = self.namespace.as_ref().filter(|own| *own != platform);
        let other = other.map(|_| Self { namespace: Some(platform.to_owned()), ..self.clone() });
        [Some(self), other].into_iter().flatten().collect()
    }

    fn api(&self, client: Client, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }
}

/// A change that a watch has shown. The store is already updated.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// The object was added or changed, or is in a new list.
    Applied(&'a K),
    /// The object was deleted, or is missing in a new list. Another object with its name may exist.
    Deleted(&'a K),
}

impl<'a, K> Change<'a, K> {
    /// Returns the last version of the object.
    pub fn object(&self) -> &'a K {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

/// The first list of a watch.
pub struct FirstList {
    complete: tokio::sync::watch::Receiver<bool>,
}

impl FirstList {
    /// Waits until the handler has been called for all objects of the first list. Returns `false` if the watch has
    /// ended before that.
    pub async fn is_complete(&mut self) -> bool {
        self.complete.wait_for(|complete| *complete).await.is_ok()
    }
}

/// Waits until the handlers of all these watches have been called for their first lists. Returns `false` if a watch has ended
/// before that.
pub async fn are_complete(lists: &mut [FirstList]) -> bool {
    for list in lists {
        if !list.is_complete().await {
            return false;
        }
    }
    true
}

/// Waits until the first lists of watches are in their stores. Returns `false` if a watch has ended before that.
pub async fn are_listed<K>(stores: &[Store<K>]) -> bool
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    for store in stores {
        // If several tasks wait for a store, it wakes only the one that was polled last.
        let listed = loop {
            if let Ok(listed) = tokio::time::timeout(LOOK_AGAIN, store.wait_until_ready()).await {
                break listed;
            }
        };
        if listed.is_err() {
            return false;
        }
    }
    true
}

/// Watches a kind for the lifetime of the process, and calls `on_change` for every change after `writer` has stored it.
pub fn watch<K>(
    client: Client,
    scope: &Scope,
    resource: &ApiResource,
    writer: Writer<K>,
    on_change: impl Fn(&Change<'_, K>) + Send + 'static,
) -> FirstList
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Debug + Send + Sync,
{
    let store = writer.as_reader();
    let kind = resource.kind.clone();
    let config = watcher::Config { label_selector: scope.labels.clone(), ..watcher::Config::default() };
    let events = watcher(scope.api(client, resource), config)
        .default_backoff()
        .filter_map(move |event| ready(decoded(&kind, event).transpose()));
    let (sender, complete) = tokio::sync::watch::channel(false);
    let kind = resource.kind.clone();
    let mut before = Vec::new();
    let stream = reflector(writer, events).for_each(move |event| {
        match event {
            Ok(Event::Apply(object)) => on_change(&Change::Applied(&object)),
            Ok(Event::Delete(object)) => on_change(&Change::Deleted(&object)),
            Ok(Event::Init) => before = store.state(),
            // The store does not contain the object before the list is complete.
            Ok(Event::InitApply(_)) => {}
            Ok(Event::InitDone) => {
                let listed = store.state();
                let uids: HashSet<_> = listed.iter().map(|object| object.uid()).collect();
                let deleted = before.drain(..).filter(|object| !uids.contains(&object.uid()));
                // Deletions come first, because another object with the same name may be in the list.
                for object in deleted {
                    on_change(&Change::Deleted(&object));
                }
                for object in &listed {
                    on_change(&Change::Applied(object));
                }
                // Fails only when the process ends.
                let _ = sender.send(true);
            }
            Err(error) => tracing::warn!(%kind, %error, "watch failed; retrying"),
        }
        ready(())
    });
    tokio::spawn(stream);
    FirstList { complete }
}

fn decoded<K: Resource + DeserializeOwned>(
    kind: &str,
    event: watcher::Result<Event<DynamicObject>>,
) -> watcher::Result<Option<Event<K>>> {
    Ok(match event? {
        Event::Apply(object) => parsed(kind, object).map(Event::Apply),
        Event::Delete(object) => parsed(kind, object).map(Event::Delete),
        Event::InitApply(object) => parsed(kind, object).map(Event::InitApply),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    })
}

/// Returns a parser error without the quoted parts of the object.
fn without_quotes(text: &str) -> String {
    let parts = text.split('"').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "\"…\"" }).collect()
}

fn parsed<K: Resource + DeserializeOwned>(kind: &str, mut object: DynamicObject) -> Option<K> {
    object.metadata.managed_fields = None;
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    object
        .try_parse()
        .inspect_err(|error| {
            let error = without_quotes(&error.to_string());
            tracing::error!(kind, namespace, name, error, "object cannot be decoded; it is skipped");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[tokio::test]
    async fn all_tasks_that_wait_for_a_list_go_on() {
        let mut writer = Writer::<ConfigMap>::new(());
        let stores = [writer.as_reader()];
        let wait = || {
            let stores = stores.clone();
            tokio::spawn(async move { are_listed(&stores).await })
        };
        let waiting = [wait(), wait()];
        tokio::time::sleep(LOOK_AGAIN / 4).await;
        for event in [Event::Init, Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        for task in waiting {
            assert!(tokio::time::timeout(20 * LOOK_AGAIN, task).await.expect("it ends").unwrap());
        }
    }

    #[test]
    fn parser_errors_contain_no_values() {
        let error = serde_json::from_str::<u32>("\"canary\"").unwrap_err();
        assert_eq!(
            without_quotes(&error.to_string()),
            "invalid type: string \"…\", expected u32 at line 1 column 8"
        );
    }
}
