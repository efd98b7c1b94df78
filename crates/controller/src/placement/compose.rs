//! The part of the placement controller that differs between kinds: composing release objects and the status.

use std::{sync::Arc, time::Duration};

use chandler_api::status::PlacementStatus;
use chandler_core::{
    failure::{Category, Failure},
    identity::ClusterMap,
    parameters::{Rendered, SchemaError, SecretValues},
    placement::{KubernetesVersionsError, NoVersion, PlacementKind},
};
use chandler_tool::RenderFailure;
use futures::future::BoxFuture;
use kube::api::DynamicObject;

use crate::{ReconcileError, extension::UnknownKubernetes, references::ReferenceError};

/// The release object of each cluster, or why there is none. The existing release objects of clusters with an error and
/// of omitted clusters, which have to wait for something else, are left unchanged.
pub type Composed<R> = ClusterMap<Result<ComposedRelease<R>, ComposeError>>;

/// A release object, and what rollouts have to know about it.
#[derive(Clone, Debug)]
pub struct ComposedRelease<R> {
    pub object: R,
    /// Digest of the parameters that the placement shares between clusters, but that are not part of its spec.
    pub parameters: String,
    /// Digest of the default parameters of the package's version. Empty if there are none.
    pub defaults: String,
    /// The Kubernetes version of the cluster, if the version of the package was chosen for it.
    pub kubernetes: Option<String>,
    /// Why the version that the placement requests cannot be chosen, if the release object keeps another one.
    pub refused: Option<String>,
    /// The values that the Secret of the release object does not have yet: see [`WriteValues`].
    pub unwritten_values: Option<Rendered>,
    /// The values that come from Secrets.
    pub secrets: SecretValues,
}

impl<R> From<R> for ComposedRelease<R> {
    fn from(object: R) -> Self {
        let (parameters, defaults) = (String::new(), String::new());
        let secrets = SecretValues::default();
        Self {
            object,
            parameters,
            defaults,
            kubernetes: None,
            refused: None,
            unwritten_values: None,
            secrets,
        }
    }
}

/// How release objects are composed.
#[derive(Debug)]
pub struct ComposeMode<'a, R> {
    /// A release object with the package to use, instead of the newest one.
    pub package_of: Option<&'a R>,
    pub write_values: WriteValues,
}

/// Whether the Secrets of release objects are written, if values have to be stored in Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteValues {
    Always,
    /// Unless an existing release object refers to other values: the object may have to wait for these.
    UnlessChanged,
    /// For plans, which write nothing.
    Never,
}

/// Why the release object of a cluster cannot be composed.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    #[error("the template refers to the Cluster's {field}, which is not set")]
    ReferenceNotSet { field: &'static str },
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The message is that of the package tool.
    #[error("{0}")]
    Template(String),
    /// The namespace has used up the time that it may use for templates.
    #[error(
        "namespace {namespace} has used the {seconds} s per minute that it may use for value templates \
         (--template-seconds-per-minute of the manager); this is retried when it may use time again"
    )]
    TemplateQuota { namespace: String, seconds: u64 },
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The schema of the package does not allow the parameters.
    #[error("{0}")]
    Parameters(String),
    #[error("cannot write Secret {name} with the values: {source}")]
    WriteValues { name: String, source: kube::Error },
    #[error(
        "Secret {secret}, which the values are to be written to, does not belong to {release} and is left unchanged; delete \
         or rename it"
    )]
    ForeignSecret { secret: String, release: String },
    #[error("there are no values")]
    NoValues,
    #[error(transparent)]
    Kubernetes(#[from] UnknownKubernetes),
    #[error(transparent)]
    KubernetesVersions(#[from] KubernetesVersionsError),
    #[error(transparent)]
    NoKubernetesVersion(#[from] NoVersion),
    /// What the release object depends on is not known yet. An event reports when it is. This is no failure.
    #[error("the version is not resolved yet")]
    Pending,
    /// No version satisfies the request, and why.
    #[error("{0}")]
    NoVersion(String),
}

impl From<RenderFailure> for ComposeError {
    fn from(RenderFailure { message, crashed }: RenderFailure) -> Self {
        if crashed {
            Self::Failed(Failure::new(Category::ToolCrashed, message))
        } else {
            Self::Template(message)
        }
    }
}

impl ComposeError {
    /// Returns whether a retry may succeed without an event, because a request failed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Reference(error) => error.is_transient(),
            Self::Kubernetes(error) => error.is_transient(),
            Self::WriteValues { .. } | Self::ForeignSecret { .. } | Self::TemplateQuota { .. } => true,
            Self::Failed(failure) => matches!(
                failure.category,
                Category::Unreachable
                    | Category::Timeout
                    | Category::ToolUnavailable
                    | Category::ToolCrashed
                    | Category::Internal
            ),
            _ => false,
        }
    }
}

/// Composes the release objects and the status of a kind of placements.
pub trait Compose<P: PlacementKind>: Send + Sync {
    /// Composes the release object of each of `clusters`. An error of one cluster does not affect the others.
    fn compose<'a>(
        &'a self,
        placement: &'a P,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<P::Release>>,
        mode: &'a ComposeMode<'a, P::Release>,
    ) -> BoxFuture<'a, Result<Composed<P::Release>, ReconcileError>>;

    /// Returns the status of a placement with these selected clusters and release objects. `common` is the part that all
    /// kinds have.
    fn status(
        &self,
        placement: &P,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        releases: &ClusterMap<Arc<P::Release>>,
        common: PlacementStatus,
    ) -> P::Status;

    /// Removes what is kept in memory about a deleted placement.
    fn forget(&self, placement: &P);

    /// Returns when a placement has to be reconciled again without an event. `None` means at the next resync.
    fn requeue_after(&self, placement: &P) -> Option<Duration>;

    /// Returns why a release must not be deleted although its placement no longer selects its cluster.
    fn is_needed(&self, release: &P::Release) -> Option<String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_evaluated_again_after_a_crash() {
        let error = |crashed| ComposeError::from(RenderFailure { message: "why".to_owned(), crashed });
        assert!(error(true).is_transient() && !error(false).is_transient());
    }
}
