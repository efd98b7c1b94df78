//! The seam between placements: what a release object is made of differs from kind to kind, the rest does not.

use std::{sync::Arc, time::Duration};

use chandler_api::status::PlacementStatus;
use chandler_core::{
    failure::{Category, Failure},
    identity::ClusterMap,
    parameters::SchemaError,
    placement::PlacementKind,
};
use futures::future::BoxFuture;
use kube::api::DynamicObject;

use crate::{ReconcileError, extension::UnknownKubernetes, references::ReferenceError};

/// What was made for each cluster: a release object, or why there is none. What is there stays then, as it does for
/// clusters that are left out.
pub type Composed<R> = ClusterMap<Result<R, ComposeError>>;

/// Why no release object can be made for a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    #[error("the template looks at the Cluster's {field}, which is not set")]
    ReferenceNotSet { field: &'static str },
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The message is that of the package tool.
    #[error("{0}")]
    Template(String),
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The schema of the package does not allow the parameters.
    #[error("{0}")]
    Parameters(String),
    #[error("cannot write Secret {name} with the values: {source}")]
    WriteValues { name: String, source: kube::Error },
    #[error("no values were made")]
    NoValues,
    #[error(transparent)]
    Kubernetes(#[from] UnknownKubernetes),
    /// No version fits, and why.
    #[error("{0}")]
    NoVersion(String),
}

impl ComposeError {
    /// Whether another try may succeed although no event will say so: what failed is a request, not what was asked for.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Reference(error) | Self::Kubernetes(UnknownKubernetes::ControlPlane(error)) => {
                matches!(error, ReferenceError::NotServed { .. } | ReferenceError::NotListed { .. })
            }
            Self::WriteValues { .. } => true,
            Self::Failed(failure) => matches!(
                failure.category,
                Category::Unreachable | Category::Timeout | Category::ToolUnavailable | Category::Internal
            ),
            _ => false,
        }
    }
}

/// Makes release objects.
pub trait Compose<P: PlacementKind>: Send + Sync {
    /// For each of `clusters`. What fails for one cluster fails for that one alone.
    fn compose<'a>(
        &'a self,
        placement: &'a P,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<P::Release>>,
    ) -> BoxFuture<'a, Result<Composed<P::Release>, ReconcileError>>;

    /// What to write about a placement, from what all placements say about themselves.
    fn status(
        &self,
        placement: &P,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        said: PlacementStatus,
    ) -> P::Status;

    /// How long until a placement has to be looked at again although nothing was seen to change. None: whenever all are.
    fn requeue_after(&self, placement: &P) -> Option<Duration>;

    /// Why a release has to stay where it is although its placement does not want it any more.
    fn is_needed(&self, release: &P::Release) -> Option<String>;
}
