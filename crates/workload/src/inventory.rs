//! The watch that keeps the inventory of one cluster: the metadata of a tool's release records, never their content.

use std::{pin::pin, sync::Arc, time::Duration};

use chandler_core::{
    failure::{Category, Failure},
    identity::ReleaseId,
    inventory::{ReleaseInventory, ReleaseRecords, StoredRevision},
};
use futures::TryStreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, TypeMeta},
    core::{GroupVersionKind, PartialObjectMeta},
    runtime::watcher::{self, Event, watcher},
};

use crate::{connection::InventoryView, reach::failure_of};

/// How often a cluster that does not serve the kind of the records is asked again.
const NOT_SERVED_RETRY: Duration = Duration::from_mins(1);

type Record = PartialObjectMeta<DynamicObject>;

/// Returns the kind of a tool's records.
pub fn resource(records: &ReleaseRecords) -> Result<ApiResource, Failure> {
    let types = TypeMeta { api_version: records.api_version.clone(), kind: records.kind.clone() };
    let kind = GroupVersionKind::try_from(types).map_err(|error| {
        Failure::new(
            Category::Internal,
            format!("the package tool breaks the contract: its records are of no valid kind: {error}"),
        )
    })?;
    Ok(ApiResource::from_gvk_with_plural(&kind, &records.plural))
}

/// Watches the records of a tool on a cluster until the watch breaks, and returns why. `publish` gets each new state, with
/// the release that has changed; `None` means that any release may have.
pub async fn watch(
    client: Client,
    records: &ReleaseRecords,
    mut publish: impl FnMut(InventoryView, Option<ReleaseId>),
) -> Failure {
    let resource = match resource(records) {
        Ok(resource) => resource,
        Err(failure) => return failure,
    };
    let api: Api<Record> = Api::all_with(client, &resource);
    let mut events = pin!(watcher(api, watcher::Config::default().labels(&records.label_selector)));
    let mut listing = ReleaseInventory::default();
    let mut current = Arc::new(ReleaseInventory::default());
    let recorded = |record: &Record| -> Option<StoredRevision> {
        records.revision(&record.namespace()?, record.labels())
    };
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => listing = ReleaseInventory::default(),
            Ok(Some(Event::InitApply(record))) => {
                if let Some(revision) = recorded(&record) {
                    listing.store(revision);
                }
            }
            Ok(Some(Event::InitDone)) => {
                current = Arc::new(std::mem::take(&mut listing));
                publish(InventoryView::Known(current.clone()), None);
            }
            Ok(Some(Event::Apply(record))) => {
                if let Some(revision) = recorded(&record) {
                    let release = revision.release.clone();
                    Arc::make_mut(&mut current).store(revision);
                    publish(InventoryView::Known(current.clone()), Some(release));
                }
            }
            Ok(Some(Event::Delete(record))) => {
                if let Some(revision) = recorded(&record) {
                    Arc::make_mut(&mut current).forget(&revision);
                    publish(InventoryView::Known(current.clone()), Some(revision.release));
                }
            }
            Ok(None) => return closed(),
            Err(error) if is_not_served(&error) => {
                // A cluster that does not serve the kind has no record of it.
                current = Arc::default();
                publish(InventoryView::Known(current.clone()), None);
                tokio::time::sleep(NOT_SERVED_RETRY).await;
            }
            Err(error) => return broken(&error),
        }
    }
}

/// Returns whether the API server does not serve the kind of the records.
fn is_not_served(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
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
        Category::Unreachable,
        "the workload cluster closed the watch of its releases; Chandler opens it again",
    )
}
