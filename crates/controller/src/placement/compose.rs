//! The seam between placements: what a release object is made of differs from kind to kind, the rest does not.

use std::{sync::Arc, time::Duration};

use chandler_api::status::PlacementStatus;
use chandler_core::{identity::ClusterMap, placement::PlacementFace};
use futures::future::BoxFuture;
use kube::api::DynamicObject;

use crate::Error;

/// What was made for each cluster: a release object, or why there is none. What is there stays then, as it does for
/// clusters that are left out.
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

    /// What to write about a placement, from what all placements say about themselves.
    fn status(
        &self,
        placement: &P,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        said: PlacementStatus,
    ) -> P::Status;

    /// How long until a placement has to be looked at again although nothing was seen to change. None: whenever all are.
    fn look_again(&self, placement: &P) -> Option<Duration>;

    /// Why a release has to stay where it is although its placement does not want it any more.
    fn is_needed(&self, release: &P::Release) -> Option<String>;
}
