//! The one way Chandler watches the management cluster: pruned, with backoff, and an object that cannot be read is
//! reported and skipped instead of stalling the watch for all others.

use std::{collections::HashSet, fmt::Debug, hash::Hash};

use futures::{StreamExt as _, future::ready};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _, reflector,
        reflector::store::{Store, Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

/// What to watch.
#[derive(Clone, Debug)]
pub struct Scope {
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// Only objects that this label selector matches. None: all.
    pub labels: Option<String>,
}

impl Scope {
    /// This one, and the namespace of the platform if it is not in it: what is there is everyone's.
    pub fn and_platform(self, platform: &str) -> Vec<Self> {
        let elsewhere = self.namespace.as_ref().filter(|own| *own != platform);
        let elsewhere = elsewhere.map(|_| Self { namespace: Some(platform.to_owned()), ..self.clone() });
        [Some(self), elsewhere].into_iter().flatten().collect()
    }

    fn api(&self, client: Client, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }
}

/// A kind that is watched.
pub struct Watched<K>
where
    K: Resource + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    pub store: Store<K>,
    complete: tokio::sync::watch::Receiver<bool>,
}

impl<K> Watched<K>
where
    K: Resource + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    /// Returns when every object of the first list has been `touched`. False: the watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        self.complete.wait_for(|complete| *complete).await.is_ok()
    }
}

/// Watches a kind for the life of the process. `touched` gets every object that was added, changed or deleted, when the
/// store shows it so, be it noticed by a list only.
pub fn watch<K>(
    client: Client,
    scope: &Scope,
    resource: &ApiResource,
    dynamic: K::DynamicType,
    touched: impl Fn(&K) + Send + 'static,
) -> Watched<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Debug + Send + Sync,
{
    let writer = Writer::new(dynamic);
    let store = writer.as_reader();
    let kind = resource.kind.clone();
    let config = watcher::Config { label_selector: scope.labels.clone(), ..watcher::Config::default() };
    let events = watcher(scope.api(client, resource), config)
        .default_backoff()
        .filter_map(move |event| ready(decoded(&kind, event).transpose()));
    let (sender, complete) = tokio::sync::watch::channel(false);
    let watched = Watched { store: store.clone(), complete };
    let kind = resource.kind.clone();
    let mut before = Vec::new();
    let stream = reflector(writer, events).for_each(move |event| {
        match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => touched(&object),
            Ok(Event::Init) => before = store.state(),
            // Not in the store before the list is complete.
            Ok(Event::InitApply(_)) => {}
            Ok(Event::InitDone) => {
                let there = store.state();
                let uids: HashSet<_> = there.iter().map(|object| object.uid()).collect();
                let gone = before.drain(..).filter(|object| !uids.contains(&object.uid()));
                for object in there.iter().cloned().chain(gone) {
                    touched(&object);
                }
                // Nobody waits any more once the process ends.
                let _ = sender.send(true);
            }
            Err(error) => tracing::warn!(%kind, %error, "watch broken; it is opened again"),
        }
        ready(())
    });
    tokio::spawn(stream);
    watched
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

/// What the parser says, less what it repeats of the object.
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
            tracing::error!(kind, namespace, name, error, "object cannot be read; it is skipped");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_repeats_no_value() {
        let error = serde_json::from_str::<u32>("\"canary\"").unwrap_err();
        assert_eq!(
            without_quotes(&error.to_string()),
            "invalid type: string \"…\", expected u32 at line 1 column 8"
        );
    }
}
