//! Which namespaces may use a catalog or a Source.

use std::collections::BTreeMap;

use chandler_api::extensions::ExtensionCatalog;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{Selector, SelectorExt as _};

use crate::failure::{Category, Failure};

/// A namespace that refers to a catalog or a Source. Its labels are used only if that has a namespace selector.
#[derive(Clone, Copy, Debug)]
pub struct Namespace<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
}

/// An object that other namespaces may use: a catalog or a Source.
#[derive(Clone, Copy, Debug)]
pub struct SharedObject<'a> {
    pub kind: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// `spec.namespaces`.
    pub namespaces: Option<&'a LabelSelector>,
}

/// Checks whether a namespace may use a catalog. The error says why not.
pub fn may_use(
    catalog: &ExtensionCatalog,
    platform: Option<&str>,
    namespace: Namespace<'_>,
) -> Result<(), Failure> {
    let shared = SharedObject {
        kind: "ExtensionCatalog",
        namespace: catalog.metadata.namespace.as_deref().unwrap_or_default(),
        name: catalog.metadata.name.as_deref().unwrap_or_default(),
        namespaces: catalog.spec.namespaces.as_ref(),
    };
    shared.may_be_used(platform, namespace)
}

impl SharedObject<'_> {
    /// Checks whether a namespace may use the object. The error says why not.
    ///
    /// The object's own namespace always may, because its users could copy the object.
    pub fn may_be_used(&self, platform: Option<&str>, namespace: Namespace<'_>) -> Result<(), Failure> {
        let Self { kind, namespace: home, name, namespaces } = *self;
        if namespace.name == home {
            return Ok(());
        }
        let Some(selector) = namespaces else {
            return if platform == Some(home) { Ok(()) } else { Err(self.refused(namespace.name)) };
        };
        let selector = Selector::try_from(selector.clone()).map_err(|error| {
            let message = format!("spec.namespaces of {kind} {home}/{name} is invalid: {error}");
            Failure::new(Category::InvalidSpec, message)
        })?;
        if selector.matches(namespace.labels) { Ok(()) } else { Err(self.refused(namespace.name)) }
    }

    fn refused(&self, namespace: &str) -> Failure {
        let Self { kind, namespace: home, name, .. } = self;
        let message = format!(
            "{kind} {home}/{name} does not allow namespace {namespace}; its owner can allow it with spec.namespaces"
        );
        Failure::new(Category::Forbidden, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalog(namespace: &str, namespaces: &serde_json::Value) -> ExtensionCatalog {
        serde_json::from_value(json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "charts", "namespace": namespace},
            "spec": {"url": "https://charts.example", "namespaces": namespaces},
        }))
        .unwrap()
    }

    #[test]
    fn platform_catalogs_are_for_all_namespaces_and_others_for_their_own_unless_they_select() {
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        let (none, all) = (json!(null), json!({}));
        let gold = json!({"matchLabels": {"tier": "gold"}});
        let silver = json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["silver"]}]});
        let rows = [
            ("platform", &none, Some("platform"), true),
            ("platform", &none, None, false),
            ("elsewhere", &none, Some("platform"), false),
            ("team", &none, Some("platform"), true),
            ("team", &silver, Some("platform"), true),
            ("platform", &gold, Some("platform"), true),
            ("platform", &silver, Some("platform"), false),
            ("elsewhere", &gold, Some("platform"), true),
            ("elsewhere", &silver, None, false),
            ("elsewhere", &all, None, true),
        ];
        for (home, namespaces, platform, expected) in rows {
            let team = Namespace { name: "team", labels: &labels };
            let decided = may_use(&catalog(home, namespaces), platform, team);
            assert_eq!(decided.is_ok(), expected, "{home} {namespaces} {platform:?}");
        }
    }

    #[test]
    fn the_error_names_catalog_namespace_and_field() {
        let team = Namespace { name: "team", labels: &BTreeMap::new() };
        let refusal =
            may_use(&catalog("platform", &json!({"matchLabels": {"a": "b"}})), Some("platform"), team);
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.category, Category::Forbidden);
        assert!(refusal.message.contains("platform/charts does not allow namespace team"), "{refusal}");
        let odd = json!({"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["b"]}]});
        let invalid = may_use(&catalog("platform", &odd), Some("platform"), team).unwrap_err();
        assert!(invalid.category == Category::InvalidSpec && invalid.message.contains("spec.namespaces"));
    }
}
