//! Deletes objects. Each of them is read again right before, and only the version that was read is deleted.

use chandler_api::extensions::SyncedObject;
use chandler_core::{
    failure::Failure,
    sync::{DeleteDecision, HeldReason, Live, ObjectId, decide_delete},
};
use futures::{StreamExt as _, stream};

use super::{
    impersonated_client::ImpersonatedClient,
    run::CONCURRENT_REQUESTS,
    served_kinds::{FoundKinds, kind_of},
};

/// How often an object is read again because it has changed before it was deleted.
const ATTEMPTS: usize = 3;

/// What has become of an object that was to be deleted.
#[derive(Debug)]
pub enum Deletion {
    /// It is deleted, or was already.
    Done,
    /// It does not belong to the Sync any more.
    NotOurs,
    Held(HeldReason),
    /// `clusterctl move` deletes it.
    Moving,
    Failed(Failure),
}

/// Deletes objects that carry `label`.
pub async fn delete_all(
    impersonated: &ImpersonatedClient,
    kinds: &FoundKinds,
    label: &str,
    objects: Vec<SyncedObject>,
) -> Vec<(SyncedObject, Deletion)> {
    let deletions = objects.into_iter().map(|object| async move {
        let deletion = delete(impersonated, kinds, label, &object).await;
        (object, deletion.unwrap_or_else(Deletion::Failed))
    });
    stream::iter(deletions.collect::<Vec<_>>()).buffered(CONCURRENT_REQUESTS).collect().await
}

async fn delete(
    impersonated: &ImpersonatedClient,
    kinds: &FoundKinds,
    label: &str,
    object: &SyncedObject,
) -> Result<Deletion, Failure> {
    let Some(kind) = kinds.get(&kind_of(object)) else {
        return Ok(Deletion::Held(HeldReason::KindNotServed));
    };
    let id = ObjectId::from(object);
    let at = kind.location(&id);
    let mut attempt = 1;
    loop {
        let live = impersonated.get(at).await?;
        let (uid, resource_version) = match decide_delete(&id, live.as_ref().map(Live), label) {
            DeleteDecision::Gone => return Ok(Deletion::Done),
            DeleteDecision::NotOurs => return Ok(Deletion::NotOurs),
            DeleteDecision::Moving => return Ok(Deletion::Moving),
            DeleteDecision::Hold(reason) => return Ok(Deletion::Held(reason)),
            DeleteDecision::Delete { uid, resource_version } => (uid, resource_version),
        };
        match impersonated.delete(at, uid, resource_version).await {
            Ok(()) => {
                tracing::info!(object = %id, "object deleted");
                return Ok(Deletion::Done);
            }
            Err(error) if error.outdated && attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.failure),
        }
    }
}
