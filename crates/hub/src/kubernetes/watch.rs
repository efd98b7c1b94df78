//! Watches the ClusterTunnels.

use std::sync::Arc;

use chandler_api::tunnel::ClusterTunnel;
use futures::StreamExt as _;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::watch;

use super::{objects::Objects, status::StatusWriter};
use crate::{directory::Directory, locks::Mutex};

/// Watches until the future is dropped. Keeps `objects`, `directory` and the work of `status` up to date.
pub async fn run(
    client: Client,
    objects: Arc<Mutex<Objects>>,
    directory: watch::Sender<Arc<Directory>>,
    status: StatusWriter,
) {
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<ClusterTunnel>(&()));
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if let Some(changed) = handle(&mut objects.lock(), event, &status) {
                    directory.send_replace(changed);
                }
            }
            Err(error) => tracing::warn!(%error, "the watch of ClusterTunnels failed; retrying"),
        }
    }
}

/// Handles an event. Returns the new directory if it differs.
fn handle(
    objects: &mut Objects,
    event: Event<DynamicObject>,
    status: &StatusWriter,
) -> Option<Arc<Directory>> {
    match event {
        Event::Init => {
            objects.begin_list();
            None
        }
        Event::InitApply(object) => {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            match decode(object) {
                Some(object) => objects.list(&object),
                None => objects.list_undecodable(&namespace, &name),
            }
            None
        }
        Event::InitDone => {
            let directory = objects.end_list();
            status.forget_deleted(objects);
            for (tunnel, observed) in objects.observed() {
                status.observed(tunnel, observed);
            }
            Some(directory)
        }
        Event::Apply(object) => {
            let object = decode(object)?;
            let directory = objects.apply(&object);
            if let Some((tunnel, observed)) = objects.observed_of(&object) {
                status.observed(tunnel, observed);
            }
            directory
        }
        Event::Delete(object) => {
            let directory = objects.delete(object.namespace().unwrap_or_default(), object.name_any());
            status.forget_deleted(objects);
            directory
        }
    }
}

/// Decodes an object. One that cannot be decoded is logged and skipped, so that it does not stall the watch.
fn decode(mut object: DynamicObject) -> Option<ClusterTunnel> {
    object.metadata.managed_fields = None;
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let decoded = object.try_parse();
    // The error may quote the object, which may contain a join token of another installation.
    decoded
        .inspect_err(|_| {
            let kind = ClusterTunnel::kind(&());
            tracing::error!(%kind, namespace, name, "object cannot be decoded; it is skipped");
        })
        .ok()
}
