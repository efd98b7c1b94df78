//! The seam between placements: what a release object is made of differs from kind to kind, the rest does not.

use std::{collections::BTreeMap, sync::Arc};

use chandler_core::{identity::ClusterKey, placement::PlacementFace};
use futures::future::BoxFuture;
use kube::api::DynamicObject;

use crate::Error;

type ClusterMap<T> = BTreeMap<ClusterKey, T>;

/// What was made for each cluster: a release object, or why there is none and what is there has to stay.
pub type Composed<R> = ClusterMap<Result<R, String>>;

/// Makes release objects.
pub trait Compose<P: PlacementFace>: Send + Sync {
    /// For each of `clusters`. What fails for one cluster fails for that one alone.
    fn compose<'a>(
        &'a self,
        placement: &'a P,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<P::Release>>,
    ) -> BoxFuture<'a, Result<Composed<P::Release>, Error>>;
}
