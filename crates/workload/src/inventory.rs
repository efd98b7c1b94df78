//! The watch that keeps the inventory of one cluster: metadata of Helm's release Secrets, nothing decoded.

use std::{pin::pin, sync::Arc};

use chandler_core::{
    failure::Failure,
    identity::ReleaseId,
    inventory::{ReleaseInventory, StoredRevision},
};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::watcher::{self, Event, watcher},
};

use crate::{connection::InventoryView, reach::failure_of};

/// Label that Helm puts on the Secrets it stores releases in.
const SELECTOR: &str = "owner=helm";

/// Follows the cluster until the watch breaks; says why. `publish` gets each new state, with the release that changed
/// (None: anything may have).
pub async fn follow(client: Client, mut publish: impl FnMut(InventoryView, Option<ReleaseId>)) -> Failure {
    let api: Api<PartialObjectMeta<Secret>> = Api::all(client);
    let mut events = pin!(watcher(api, watcher::Config::default().labels(SELECTOR)));
    let mut listing = ReleaseInventory::default();
    let mut current = Arc::new(ReleaseInventory::default());
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => listing = ReleaseInventory::default(),
            Ok(Some(Event::InitApply(secret))) => {
                if let Some(revision) = stored(&secret) {
                    listing.store(revision);
                }
            }
            Ok(Some(Event::InitDone)) => {
                current = Arc::new(std::mem::take(&mut listing));
                publish(InventoryView::Known(current.clone()), None);
            }
            Ok(Some(Event::Apply(secret))) => {
                if let Some(revision) = stored(&secret) {
                    let release = revision.release.clone();
                    Arc::make_mut(&mut current).store(revision);
                    publish(InventoryView::Known(current.clone()), Some(release));
                }
            }
            Ok(Some(Event::Delete(secret))) => {
                if let Some(revision) = stored(&secret) {
                    Arc::make_mut(&mut current).forget(&revision);
                    publish(InventoryView::Known(current.clone()), Some(revision.release));
                }
            }
            Ok(None) => return closed(),
            Err(error) => return broken(&error),
        }
    }
}

fn stored(secret: &PartialObjectMeta<Secret>) -> Option<StoredRevision> {
    StoredRevision::from_labels(&secret.namespace()?, secret.labels())
}

fn broken(error: &watcher::Error) -> Failure {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => failure_of(error),
        watcher::Error::WatchError(status) => failure_of(&kube::Error::Api(status.clone())),
        watcher::Error::NoResourceVersion => closed(),
    }
}

fn closed() -> Failure {
    Failure::new(
        chandler_core::failure::Category::Unreachable,
        "the workload cluster closed the watch of its releases; it is opened again",
    )
}
