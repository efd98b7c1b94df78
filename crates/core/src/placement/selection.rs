//! Which clusters of a namespace a placement wants.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{Selector, SelectorExt as _};

/// Which clusters are wanted.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The one of this name.
    Name(String),
    /// Those with such labels.
    Labels(Selector),
}

impl Selection {
    /// By labels. `field` names the selector in the message if it cannot be used.
    pub fn labels(selector: &LabelSelector, field: &str) -> Result<Self, String> {
        Selector::try_from(selector.clone())
            .map(Self::Labels)
            .map_err(|error| format!("{field} cannot be used: {error}"))
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Labels(selector) => selector.matches(labels),
        }
    }
}
