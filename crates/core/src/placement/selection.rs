//! Which clusters of its namespace a placement selects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{ParseExpressionError, Selector, SelectorExt as _};

/// A selection of clusters.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The cluster with this name.
    Name(String),
    /// The clusters whose labels match.
    Labels(Selector),
}

/// An invalid selection.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("{field} is invalid: {source}")]
    Selector { field: &'static str, source: ParseExpressionError },
    #[error("spec.clusters must have a name or a selector")]
    Empty,
}

impl Selection {
    /// Parses a label selector. `field` names it in the error.
    pub fn labels(selector: &LabelSelector, field: &'static str) -> Result<Self, SelectionError> {
        Selector::try_from(selector.clone())
            .map(Self::Labels)
            .map_err(|source| SelectionError::Selector { field, source })
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Name(selected) => selected == name,
            Self::Labels(selector) => selector.matches(labels),
        }
    }
}
