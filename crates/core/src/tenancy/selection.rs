//! Which AddonTenancies are about a namespace.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{AddonTenancySpec, TenantNamespaces};
use kube_core::{Selector, SelectorExt as _};
use serde::Deserialize as _;
use serde_json::Value;

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
    /// Names of those that cannot be read, each with the reason, and with the namespaces that it is about. `None` means that they
    /// are not known.
    unreadable: Vec<(String, Option<Vec<String>>)>,
}

/// Why a spec cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableSpec {
    pub why: String,
    /// The namespaces that it is about. `None` means that they are not known.
    pub namespaces: Option<Vec<String>>,
}

/// Reads the spec of an AddonTenancy.
pub fn read_spec(spec: &Value) -> Result<AddonTenancySpec, UnreadableSpec> {
    AddonTenancySpec::deserialize(spec).map_err(|error| {
        let namespaces = TenantNamespaces::deserialize(&spec["namespaces"]).ok();
        let named = namespaces.filter(|namespaces| {
            namespaces.selector.is_none() && spec["namespaces"].as_object().is_some_and(|all| all.len() == 1)
        });
        UnreadableSpec { why: error.to_string(), namespaces: named.map(|namespaces| namespaces.names) }
    })
}

/// The AddonTenancies of one namespace. None of them allows everything.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub(super) Vec<Arc<Tenancy>>);

impl Tenancies {
    /// Takes the names and specs of all AddonTenancies. A spec that cannot be read is an error with the reason, and with the names of
    /// the namespaces if it is certain that it is about no others.
    pub fn new(all: impl IntoIterator<Item = (String, Result<AddonTenancySpec, UnreadableSpec>)>) -> Self {
        let mut found = Self::default();
        for (name, spec) in all {
            let read = spec.and_then(|spec| {
                let selector = spec.namespaces.selector.clone().map(Selector::try_from).transpose();
                let selector = selector.map_err(|error| UnreadableSpec {
                    why: format!("spec.namespaces.selector: {error}"),
                    namespaces: None,
                })?;
                Ok((spec, selector))
            });
            match read {
                Ok((spec, selector)) => found.readable.push(Arc::new(Tenancy { name, spec, selector })),
                Err(UnreadableSpec { why, namespaces }) => {
                    found.unreadable.push((format!("AddonTenancy {name} ({why})"), namespaces));
                }
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
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(|(name, _)| name.as_str())
    }

    /// Returns whether the labels of a namespace are needed to find its rules.
    pub fn need_labels(&self, namespace: &str) -> bool {
        let is_named = |tenancy: &Tenancy| tenancy.spec.namespaces.names.iter().any(|name| name == namespace);
        self.readable.iter().any(|tenancy| tenancy.selector.is_some() && !is_named(tenancy))
    }

    /// Returns the rules of a namespace with these labels.
    pub fn of(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Result<Rules, Failure> {
        let concerns = |namespaces: &Option<Vec<String>>| {
            namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
        };
        let unreadable = self.unreadable.iter().filter(|(_, namespaces)| concerns(namespaces));
        let unreadable: Vec<_> = unreadable.map(|(name, _)| name.as_str()).collect();
        if !unreadable.is_empty() {
            let message = format!(
                "it is not known what namespace {namespace} is allowed, so nothing new is started: {} cannot be read; fix or \
                 delete it",
                unreadable.join(", ")
            );
            return Err(Failure::new(Category::NotReady, message));
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
