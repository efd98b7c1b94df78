//! Which AddonTenancies are about a namespace.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::AddonTenancySpec;
use kube_core::{Selector, SelectorExt as _};

use crate::failure::{Category, Failure};

/// An AddonTenancy that can be read.
#[derive(Debug)]
pub(super) struct Tenancy {
    pub name: String,
    pub spec: AddonTenancySpec,
    selector: Option<Selector>,
}

/// All AddonTenancies.
#[derive(Clone, Debug, Default)]
pub struct Tenancies {
    readable: Vec<Arc<Tenancy>>,
    /// Names of those that cannot be read, each with the reason.
    unreadable: Vec<String>,
}

/// The AddonTenancies of one namespace. None of them allows everything.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub(super) Vec<Arc<Tenancy>>);

impl Tenancies {
    /// Takes the names and specs of all AddonTenancies. A spec that cannot be read is an error with the reason.
    pub fn new(all: impl IntoIterator<Item = (String, Result<AddonTenancySpec, String>)>) -> Self {
        let mut found = Self::default();
        for (name, spec) in all {
            let read = spec.and_then(|spec| {
                let selector = spec.namespaces.selector.clone().map(Selector::try_from).transpose();
                let selector = selector.map_err(|error| format!("spec.namespaces.selector: {error}"))?;
                Ok((spec, selector))
            });
            match read {
                Ok((spec, selector)) => found.readable.push(Arc::new(Tenancy { name, spec, selector })),
                Err(why) => found.unreadable.push(format!("AddonTenancy {name} ({why})")),
            }
        }
        found.readable.sort_by(|a, b| a.name.cmp(&b.name));
        found.unreadable.sort();
        found
    }

    /// Returns whether there are none, so that everything is allowed.
    pub fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.unreadable.is_empty()
    }

    /// Returns the AddonTenancies that cannot be read, each with the reason.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Returns whether the labels of a namespace are needed to find its rules.
    pub fn need_labels(&self, namespace: &str) -> bool {
        let is_named = |tenancy: &Tenancy| tenancy.spec.namespaces.names.iter().any(|name| name == namespace);
        self.readable.iter().any(|tenancy| tenancy.selector.is_some() && !is_named(tenancy))
    }

    /// Returns the rules of a namespace with these labels.
    pub fn of(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Result<Rules, Failure> {
        if !self.unreadable.is_empty() {
            let message = format!(
                "nothing new is started in any namespace while this cannot be read: {}; fix or delete it",
                self.unreadable.join(", ")
            );
            return Err(Failure::new(Category::NotAllowed, message));
        }
        let selects = |tenancy: &&Arc<Tenancy>| {
            tenancy.spec.namespaces.names.iter().any(|name| name == namespace)
                || tenancy.selector.as_ref().is_some_and(|selector| selector.matches(labels))
        };
        Ok(Rules(self.readable.iter().filter(selects).cloned().collect()))
    }
}

impl Rules {
    /// Returns whether everything is allowed.
    pub fn allow_everything(&self) -> bool {
        self.0.is_empty()
    }
}
