//! The one way Chandler watches the management cluster: pruned, with backoff, and an object that cannot be read is
//! reported and skipped instead of stalling the watch for all others.

use std::{fmt::Debug, hash::Hash};

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
    fn api(&self, client: Client, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }
}

/// Watches a kind for the life of the process. `touched` gets every object that was added, changed or deleted.
pub fn watch<K>(
    client: Client,
    scope: &Scope,
    resource: &ApiResource,
    dynamic: K::DynamicType,
    touched: impl Fn(&K) + Send + 'static,
) -> Store<K>
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
    let kind = resource.kind.clone();
    let stream = reflector(writer, events).touched_objects().for_each(move |object| {
        match object {
            Ok(object) => touched(&object),
            Err(error) => tracing::warn!(%kind, %error, "watch broken; it is opened again"),
        }
        ready(())
    });
    tokio::spawn(stream);
    store
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

fn parsed<K: Resource + DeserializeOwned>(kind: &str, mut object: DynamicObject) -> Option<K> {
    object.metadata.managed_fields = None;
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    object
        .try_parse()
        .inspect_err(
            |error| tracing::error!(kind, namespace, name, %error, "object cannot be read; it is skipped"),
        )
        .ok()
}
