//! What is left of the add-on provider for Fleet (CAAPF) on objects that Chandler takes over.

use chandler_api::FIELD_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::Value;

/// Finalizer of CAAPF on Clusters, ClusterClasses and ClusterGroups. Without CAAPF, nothing removes it.
const CAAPF_FINALIZER: &str = "fleet.addons.cluster.x-k8s.io";
/// CAAPF applies with this field manager, or with one that ends with it after a dash.
const CAAPF_MANAGER: &str = "addon-provider-fleet";

/// Returns the finalizers without that of CAAPF, or `None` if it is not among them.
pub fn without_caapf_finalizer(finalizers: &[String]) -> Option<Vec<&str>> {
    let others: Vec<_> =
        finalizers.iter().map(String::as_str).filter(|one| *one != CAAPF_FINALIZER).collect();
    (others.len() < finalizers.len()).then_some(others)
}

/// Returns the managed fields with those that CAAPF applied assigned to Chandler, or `None` if there are none.
///
/// Otherwise a label that is removed from a Cluster would stay on its Fleet Cluster, because CAAPF would still own it.
pub fn take_over_fields(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let first = entries.iter().find(|entry| is_applied_by(entry, is_caapf))?;
    let is_moved = |entry: &&ManagedFieldsEntry| {
        is_applied_by(entry, |manager| is_caapf(manager) || manager == FIELD_MANAGER)
    };
    let fields = entries.iter().filter(is_moved).filter_map(|entry| entry.fields_v1.as_ref());
    let fields =
        fields.fold(Value::Object(serde_json::Map::new()), |all, FieldsV1(fields)| union(all, fields));
    let own = ManagedFieldsEntry {
        manager: Some(FIELD_MANAGER.to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..first.clone()
    };
    let others = entries.iter().filter(|entry| !is_moved(entry)).cloned();
    Some(others.chain([own]).collect())
}

fn is_caapf(manager: &str) -> bool {
    manager.strip_suffix(CAAPF_MANAGER).is_some_and(|before| before.is_empty() || before.ends_with('-'))
}

fn is_applied_by(entry: &ManagedFieldsEntry, by: impl Fn(&str) -> bool) -> bool {
    let is_apply = entry.operation.as_deref() == Some("Apply");
    let is_object = entry.subresource.as_deref().unwrap_or_default().is_empty();
    is_apply && is_object && entry.manager.as_deref().is_some_and(by)
}

/// Returns the union of two sets of fields, which are nested objects.
fn union(mut all: Value, other: &Value) -> Value {
    if let (Some(all), Some(other)) = (all.as_object_mut(), other.as_object()) {
        for (name, fields) in other {
            let merged = match all.remove(name) {
                Some(known) => union(known, fields),
                None => fields.clone(),
            };
            all.insert(name.clone(), merged);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            api_version: Some("fleet.cattle.io/v1alpha1".to_owned()),
            fields_type: Some("FieldsV1".to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }
    }

    #[test]
    fn only_the_finalizer_of_caapf_is_removed() {
        let rows: [(&[&str], Option<Vec<&str>>); 4] = [
            (&["fleet.addons.cluster.x-k8s.io"], Some(vec![])),
            (
                &["cluster.cluster.x-k8s.io", "fleet.addons.cluster.x-k8s.io"],
                Some(vec!["cluster.cluster.x-k8s.io"]),
            ),
            (&["cluster.cluster.x-k8s.io"], None),
            (&[], None),
        ];
        for (finalizers, expected) in rows {
            let finalizers: Vec<_> = finalizers.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(without_caapf_finalizer(&finalizers), expected);
        }
    }

    #[test]
    fn fields_that_caapf_applied_become_fields_of_chandler() {
        let fleet = entry("fleetcontroller", "Update", json!({"f:status": {}}));
        let caapf =
            entry("addon-provider-fleet", "Apply", json!({"f:metadata": {"f:labels": {"f:old": {}}}}));
        let per_cluster =
            entry("cluster-blue-addon-provider-fleet", "Apply", json!({"f:spec": {"f:selector": {}}}));
        let own = entry("chandler", "Apply", json!({"f:metadata": {"f:labels": {"f:new": {}}}}));
        let taken = take_over_fields(&[caapf, fleet.clone(), per_cluster, own.clone()]).unwrap();
        let all =
            json!({"f:metadata": {"f:labels": {"f:old": {}, "f:new": {}}}, "f:spec": {"f:selector": {}}});
        assert_eq!(taken, [fleet.clone(), entry("chandler", "Apply", all)]);
        assert_eq!(take_over_fields(&taken), None, "once is enough");
        let updated = entry("addon-provider-fleet", "Update", json!({}));
        assert_eq!(take_over_fields(&[fleet, own, updated]), None);
    }

    #[test]
    fn other_managers_with_a_similar_name_are_left_alone() {
        for (manager, expected) in [
            ("addon-provider-fleet", true),
            ("namespace-addon-provider-fleet", true),
            ("myaddon-provider-fleet", false),
            ("addon-provider-fleet-2", false),
        ] {
            assert_eq!(is_caapf(manager), expected, "{manager}");
        }
    }
}
