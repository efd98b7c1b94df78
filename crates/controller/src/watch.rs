//! The one way Chandler watches the management cluster: pruned, with backoff, and an object that cannot be read is
//! reported and skipped instead of stalling the watch for all others.

use std::{collections::HashSet, fmt::Debug, hash::Hash};

use futures::{StreamExt as _, future::ready};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _, reflector,
        reflector::store::Writer,
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

/// What a watch has shown of an object. The store shows it already.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// It was added or changed, or is in a new list.
    Applied(&'a K),
    /// It was deleted, which a new list may have shown. Another object of its name may exist.
    Deleted(&'a K),
}

impl<'a, K> Change<'a, K> {
    /// Returns the object as the watch has shown it last.
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
    /// Returns when the handler has got every object of the first list; `false` if the watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        self.complete.wait_for(|complete| *complete).await.is_ok()
    }
}

/// Watches a kind for the life of the process, and hands every change to `on_change` after `writer` has stored it.
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
            // Not in the store before the list is complete.
            Ok(Event::InitApply(_)) => {}
            Ok(Event::InitDone) => {
                let there = store.state();
                let uids: HashSet<_> = there.iter().map(|object| object.uid()).collect();
                let gone = before.drain(..).filter(|object| !uids.contains(&object.uid()));
                // First, as another object of the same name may be in the list.
                for object in gone {
                    on_change(&Change::Deleted(&object));
                }
                for object in &there {
                    on_change(&Change::Applied(object));
                }
                // Fails only when the process ends.
                let _ = sender.send(true);
            }
            Err(error) => tracing::warn!(%kind, %error, "watch broken; it is opened again"),
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
