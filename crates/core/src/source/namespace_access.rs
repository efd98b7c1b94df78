//! Which namespaces may use a Source.

use chandler_api::extensions::Source;

use crate::{
    catalog::{Namespace, SharedObject},
    failure::Failure,
};

/// Checks whether a namespace may use a Source. The error says why not.
pub fn may_use_source(
    source: &Source,
    platform: Option<&str>,
    namespace: Namespace<'_>,
) -> Result<(), Failure> {
    let shared = SharedObject {
        kind: "Source",
        namespace: source.metadata.namespace.as_deref().unwrap_or_default(),
        name: source.metadata.name.as_deref().unwrap_or_default(),
        namespaces: source.spec.namespaces.as_ref(),
    };
    shared.may_be_used(platform, namespace)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_is_for_its_own_namespace_unless_it_is_of_the_platform_or_selects_others() {
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        let gold = json!({"matchLabels": {"tier": "gold"}});
        let rows = [
            ("team", json!(null), true),
            ("platform", json!(null), true),
            ("elsewhere", json!(null), false),
            ("elsewhere", gold, true),
        ];
        for (home, namespaces, expected) in rows {
            let source: Source = serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
                "metadata": {"name": "fleet", "namespace": home},
                "spec": {"git": {"url": "https://git.example/a"}, "namespaces": namespaces},
            }))
            .unwrap();
            let team = Namespace { name: "team", labels: &labels };
            let decided = may_use_source(&source, Some("platform"), team);
            assert_eq!(decided.is_ok(), expected, "{home}");
            if let Err(refusal) = decided {
                assert!(refusal.message.starts_with("Source elsewhere/fleet does not allow"), "{refusal}");
            }
        }
    }
}
