//! BundleNamespaceMappings: they let the bundles of a class's namespace reach the clusters of other namespaces.

use serde_json::{Value, json};

use super::{API_VERSION, APPLIED_ANNOTATION, ClassKey, metadata};

/// Returns the mapping that is wanted for a namespace with Clusters whose class is in another namespace.
pub fn mapping(clusters: &str, classes: &str) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "BundleNamespaceMapping",
        "metadata": {"name": clusters, "namespace": classes},
        "bundleSelector": {},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": clusters}},
    })
}

/// Returns whether a mapping has to be deleted: Chandler applied it, and no Cluster needs it. An owner reference cannot do
/// that across namespaces.
///
/// `classes` are the classes of the Clusters in the namespace that the mapping is named after, without Clusters that are being
/// deleted.
pub fn is_stale_mapping(mapping: &Value, mut classes: impl Iterator<Item = ClassKey>) -> bool {
    let is_own = mapping["metadata"]["annotations"].get(APPLIED_ANNOTATION).is_some();
    is_own
        && !metadata::is_deleting(mapping)
        && !classes.any(|class| class.namespace == metadata::namespace(mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_selects_all_bundles_and_one_namespace() {
        let mapping = mapping("team", "classes");
        assert_eq!((metadata::namespace(&mapping), metadata::name(&mapping)), ("classes", "team"));
        assert_eq!(mapping["bundleSelector"], json!({}));
        assert_eq!(
            mapping["namespaceSelector"],
            json!({"matchLabels": {"kubernetes.io/metadata.name": "team"}})
        );
    }

    #[test]
    fn only_own_mappings_that_no_cluster_needs_are_deleted() {
        let mut own = mapping("team", "classes");
        own["metadata"]["annotations"] = json!({APPLIED_ANNOTATION: "x"});
        let mut deleting = own.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let class = |namespace: &str| ClassKey { namespace: namespace.to_owned(), name: "base".to_owned() };
        let rows = [
            ("the last Cluster is deleted", &own, vec![], true),
            ("only classes of other namespaces", &own, vec![class("team"), class("others")], true),
            ("one Cluster needs it", &own, vec![class("team"), class("classes")], false),
            ("it is deleted already", &deleting, vec![], false),
            ("someone else made it", &mapping("team", "classes"), vec![], false),
        ];
        for (what, mapping, classes, stale) in rows {
            assert_eq!(is_stale_mapping(mapping, classes.into_iter()), stale, "{what}");
        }
    }
}
