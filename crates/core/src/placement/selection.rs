//! Which clusters of a namespace a placement wants.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{ParseExpressionError, Selector, SelectorExt as _};

/// Which clusters are wanted.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The one of this name.
    Name(String),
    /// Those with such labels.
    Labels(Selector),
}

/// Why it cannot be said which clusters are wanted.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("{field} cannot be used: {source}")]
    Selector { field: &'static str, source: ParseExpressionError },
    #[error("spec.clusters must have a name or a selector")]
    Nothing,
}

impl Selection {
    /// By labels. `field` names the selector in the message if it cannot be used.
    pub fn labels(selector: &LabelSelector, field: &'static str) -> Result<Self, SelectionError> {
        Selector::try_from(selector.clone())
            .map(Self::Labels)
            .map_err(|source| SelectionError::Selector { field, source })
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Labels(selector) => selector.matches(labels),
        }
    }
}
