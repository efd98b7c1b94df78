//! Checks whether objects that the watches do not show exist.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{api::GetParams, core::Request as ResourceRequest};

use super::{HealthWatches, object::split_key, states::Check, watch::WatchedCluster};
use crate::{turn::in_turn, watch_error::WatchError};

/// Checks one object after the other, for ever.
pub async fn run(watches: HealthWatches, cluster: Arc<WatchedCluster>) {
    loop {
        let next = watches.states().next_check();
        let Some(check) = next else {
            watches.0.check_due.notified().await;
            continue;
        };
        let wait = Duration::try_from(check.due.duration_since(Timestamp::now())).unwrap_or_default();
        if !wait.is_zero() {
            // A check that is due earlier does not wait for this one.
            let _ = tokio::time::timeout(wait, watches.0.check_due.notified()).await;
            continue;
        }
        let connect = watches.0.connects.acquire().await;
        let exists = match in_turn(connect, exists(&cluster, &check)).await {
            Ok(exists) => Some(exists),
            Err(error) => {
                let (cluster, kind) = (&watches.0.cluster, &check.kind);
                tracing::debug!(%cluster, %kind, object = %check.key, "cannot check whether an object exists: {error}");
                None
            }
        };
        watches.update(|states, now| states.checked(&check, exists, now));
    }
}

/// Returns whether an object exists, with any labels.
async fn exists(cluster: &WatchedCluster, check: &Check) -> Result<bool, WatchError> {
    let (namespace, name) = split_key(&check.key);
    let path = cluster.resources.path(&cluster.client, &check.kind).await?;
    let resource = ResourceRequest::new(path.in_namespace(namespace));
    let request = resource.get_metadata(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
    match cluster.client.read(request).await {
        Ok(_) => Ok(true),
        // A path that is not served is another 404: only this one names the object.
        Err(WatchError::Request(kube::Error::Api(status)))
            if status.code == 404 && status.details.as_ref().is_some_and(|details| details.name == name) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
