//! Watches the objects that were read for parameters, as those that have read them, so that changes are applied at once. What may not
//! be watched is polled.

mod table;

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use kube::{
    Client,
    api::{DynamicObject, WatchEvent, WatchParams},
    core::{PartialObjectMeta, Request},
};
use serde_json::Value;
use tokio::time::Instant;

pub use self::table::Placement;
use self::table::WatchTable;
use super::objects::{Reading, What};
use crate::{error::management_category, locks::Mutex, single_flight::SingleFlight};

/// Called with a placement whose sources have changed.
pub type OnChange = Arc<dyn Fn(&Placement) + Send + Sync>;

/// Longer than a watch lasts on the server.
const WATCH_LIMIT: Duration = Duration::from_mins(6);
/// Delay before a watch that has ended begins again.
const RECONNECT: Duration = Duration::from_secs(1);
/// Delay before a watch that has failed begins again.
const RETRY: Duration = Duration::from_secs(30);

/// The watches.
pub struct Watches(Arc<Shared>);

struct Shared {
    client: Client,
    on_change: OnChange,
    /// What was read is not used again after a change.
    read: Arc<SingleFlight<Reading, Arc<Value>>>,
    table: Mutex<WatchTable>,
}

impl Watches {
    pub fn new(client: Client, on_change: OnChange, read: Arc<SingleFlight<Reading, Arc<Value>>>) -> Self {
        Self(Arc::new(Shared { client, on_change, read, table: Mutex::default() }))
    }

    /// Watches what a placement has read, from the version that it has read. `None` means that the object does not exist.
    pub fn keep(&self, reading: &Reading, placement: &Placement, read: Option<&Value>) {
        if self.0.table.lock().keep(reading, placement, Instant::now()) {
            let version = read.and_then(|read| read.pointer("/metadata/resourceVersion"));
            let version = version.and_then(Value::as_str).unwrap_or_default().to_owned();
            tokio::spawn(follow(self.0.clone(), reading.clone(), version));
        }
    }
}

/// Watches a reading as long as it is used.
async fn follow(shared: Arc<Shared>, reading: Reading, mut version: String) {
    while shared.table.lock().is_used(&reading, Instant::now()) {
        let watched = tokio::time::timeout(WATCH_LIMIT, watch(&shared, &reading, &mut version)).await;
        let wait = match watched {
            Ok(Ok(())) | Err(_) => RECONNECT,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                shared.table.lock().refuse(&reading, Instant::now());
                return;
            }
            Ok(Err(error)) => {
                // What has changed meanwhile is shown as new.
                version.clear();
                // The names in the error may be made of values of Secrets.
                let category = management_category(&error);
                tracing::debug!(?category, "a source of parameters cannot be watched and is polled");
                RETRY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Watches the metadata of what a reading names, from a version on, until the server ends it.
async fn watch(shared: &Arc<Shared>, reading: &Reading, version: &mut String) -> Result<(), kube::Error> {
    let mut request = Request::new(&reading.collection)
        .watch_metadata(&parameters(&reading.what), version)
        .map_err(kube::Error::BuildRequest)?;
    if let Some(Ok(user)) = reading.user.as_ref().map(|user| user.parse()) {
        request.headers_mut().insert("impersonate-user", user);
    } else if reading.user.is_some() {
        // It could not have been read.
        return Ok(());
    }
    let events = shared.client.request_events::<PartialObjectMeta<DynamicObject>>(request).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                *version = object.metadata.resource_version.unwrap_or_default();
                changed(shared, reading);
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(())
}

/// Handles a change of what a reading names.
fn changed(shared: &Arc<Shared>, reading: &Reading) {
    shared.read.forget(reading);
    let Some(due) = shared.table.lock().on_change(reading, Instant::now()) else { return };
    let (shared, reading) = (shared.clone(), reading.clone());
    tokio::spawn(async move {
        tokio::time::sleep_until(due).await;
        shared.read.forget(&reading);
        let placements = shared.table.lock().trigger(&reading, Instant::now());
        for placement in &placements {
            (shared.on_change)(placement);
        }
    });
}

fn parameters(what: &What) -> WatchParams {
    match what {
        What::Name(name) => WatchParams::default().fields(&format!("metadata.name={name}")),
        What::Selector(selector) => WatchParams::default().labels(selector),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_or_those_of_a_selector_are_watched() {
        let one = parameters(&What::Name("anna".to_owned()));
        assert_eq!((one.field_selector.as_deref(), one.label_selector), (Some("metadata.name=anna"), None));
        let some = parameters(&What::Selector("a=b".to_owned()));
        assert_eq!((some.field_selector, some.label_selector.as_deref()), (None, Some("a=b")));
    }
}
