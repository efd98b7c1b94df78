//! Which AddonTenancies select a namespace.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::extensions::{AddonTenancySpec, AllowedKinds, KindPattern};
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

impl Tenancy {
    /// Returns whether it names a namespace.
    pub fn names(&self, namespace: &str) -> bool {
        self.spec.namespaces.names.iter().any(|name| name == namespace)
    }
}

/// Why the spec of an AddonTenancy cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableSpec {
    pub why: String,
    /// The namespaces that it selects. `None` means that it may select any.
    pub namespaces: Option<Vec<String>>,
}

/// Reads the spec of an AddonTenancy.
pub fn read_spec(spec: &Value) -> Result<AddonTenancySpec, UnreadableSpec> {
    let read = AddonTenancySpec::deserialize(spec);
    read.map_err(|error| UnreadableSpec { why: error.to_string(), namespaces: selected_by_name(spec) })
}

/// Returns the namespaces that a spec selects, if it selects them by name only.
fn selected_by_name(spec: &Value) -> Option<Vec<String>> {
    let namespaces = spec.get("namespaces")?.as_object()?;
    let names = namespaces.get("names").filter(|_| namespaces.len() == 1)?;
    Vec::deserialize(names).ok()
}

/// An AddonTenancy that cannot be read.
#[derive(Debug)]
struct Unreadable {
    /// Kind and name, with the reason.
    description: String,
    namespaces: Option<Vec<String>>,
    /// What holds for removals: no object is allowed, so hooks are not run.
    strictest: Arc<Tenancy>,
}

impl Unreadable {
    fn new(name: &str, unreadable: UnreadableSpec) -> Self {
        let any = KindPattern { group: "*".to_owned(), kind: "*".to_owned() };
        let kinds = AllowedKinds { denied: vec![any], ..AllowedKinds::default() };
        let spec = AddonTenancySpec { kinds, ..AddonTenancySpec::default() };
        Self {
            description: format!("AddonTenancy {name} ({})", unreadable.why),
            namespaces: unreadable.namespaces,
            strictest: Arc::new(Tenancy { name: format!("{name} (cannot be read)"), spec, selector: None }),
        }
    }

    fn may_select(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
    }
}

/// All AddonTenancies.
#[derive(Clone, Debug, Default)]
pub struct Tenancies {
    readable: Vec<Arc<Tenancy>>,
    unreadable: Vec<Arc<Unreadable>>,
}

/// The AddonTenancies of one namespace. If there are none, everything is allowed.
#[derive(Clone, Debug, Default)]
pub struct Rules(pub(super) Vec<Arc<Tenancy>>);

impl Tenancies {
    /// Takes the names and specs of all AddonTenancies.
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
                Err(why) => found.unreadable.push(Arc::new(Unreadable::new(&name, why))),
            }
        }
        found.readable.sort_by(|a, b| a.name.cmp(&b.name));
        found.unreadable.sort_by(|a, b| a.description.cmp(&b.description));
        found
    }

    /// Returns whether there are none, so that everything is allowed.
    pub fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.unreadable.is_empty()
    }

    /// Returns the AddonTenancies that cannot be read, each with the reason.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(|unreadable| &*unreadable.description)
    }

    /// Returns whether one of them selects namespaces by label.
    pub fn select_by_label(&self) -> bool {
        self.readable.iter().any(|tenancy| tenancy.selector.is_some())
    }

    /// Returns whether the labels of a namespace are needed to find its rules.
    pub fn need_labels(&self, namespace: &str) -> bool {
        self.readable.iter().any(|tenancy| tenancy.selector.is_some() && !tenancy.names(namespace))
    }

    /// Returns the rules of a namespace with these labels. Fails while an AddonTenancy that may select it cannot be read.
    pub fn of(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Result<Rules, Failure> {
        let unreadable: Vec<_> =
            self.unreadable_in(namespace).map(|unreadable| &*unreadable.description).collect();
        if !unreadable.is_empty() {
            let message = format!(
                "nothing new is started in namespace {namespace} while this cannot be read: {}; fix or delete it",
                unreadable.join(", ")
            );
            return Err(Failure::new(Category::NotAllowed, message));
        }
        Ok(Rules(self.selecting(namespace, labels).collect()))
    }

    /// Returns the rules for removing releases of a namespace with these labels. An AddonTenancy that cannot be read allows no
    /// hooks, but it does not keep releases that run none from being removed.
    pub fn of_removals(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Rules {
        let strictest = self.unreadable_in(namespace).map(|unreadable| unreadable.strictest.clone());
        Rules(self.selecting(namespace, labels).chain(strictest).collect())
    }

    fn unreadable_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Unreadable>> {
        self.unreadable.iter().filter(move |unreadable| unreadable.may_select(namespace))
    }

    fn selecting<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = Arc<Tenancy>> + 'a {
        let selects = move |tenancy: &&Arc<Tenancy>| {
            tenancy.names(namespace)
                || tenancy.selector.as_ref().is_some_and(|selector| selector.matches(labels))
        };
        self.readable.iter().filter(selects).cloned()
    }
}

impl Rules {
    /// Returns whether everything is allowed.
    pub fn allow_everything(&self) -> bool {
        self.0.is_empty()
    }
}
