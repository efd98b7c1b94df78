//! The order in which objects are applied: Namespaces and CustomResourceDefinitions first, then by kind.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Manifest, ObjectId};

/// Kinds that others need, in the order in which they are applied. Unknown kinds follow.
const FIRST: [&str; 23] = [
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "StorageClass",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodDisruptionBudget",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Service",
    "ReferenceGrant",
    "Source",
    "ExtensionCatalog",
    "Extension",
    "AddonPolicy",
];

/// Kinds that need others. They are applied last, in this order.
const LAST: [&str; 7] = [
    "ClusterClass",
    "Cluster",
    "HelmChartProxy",
    "ExtensionInstance",
    "Sync",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
];

/// The position of a kind: its part of the order, and the position in it.
type Rank = (u8, usize);

fn rank(id: &ObjectId) -> Rank {
    if let Some(position) = FIRST.iter().position(|kind| *kind == id.kind) {
        return (0, position);
    }
    match LAST.iter().position(|kind| *kind == id.kind) {
        Some(position) => (2, position),
        // A ClusterClass and a Cluster refer to templates.
        None => (1, usize::from(!id.kind.ends_with("Template"))),
    }
}

/// Returns the objects in the steps in which they are applied. The objects of one step do not depend on each other.
pub fn steps(manifests: Vec<Manifest>) -> Vec<Vec<Manifest>> {
    let mut steps: BTreeMap<Rank, Vec<Manifest>> = BTreeMap::new();
    for manifest in manifests {
        steps.entry(rank(&manifest.id)).or_default().push(manifest);
    }
    steps.into_values().collect()
}

/// Returns whether an object is a CustomResourceDefinition.
pub fn is_definition(manifest: &Manifest) -> bool {
    manifest.id.kind == "CustomResourceDefinition"
}

/// Returns whether a step contains Namespaces or CustomResourceDefinitions, which are written before
/// the objects of their kinds are validated.
pub fn is_first_stage(step: &[Manifest]) -> bool {
    step.iter().all(|manifest| manifest.id.kind == "Namespace" || is_definition(manifest))
}

/// Returns the CustomResourceDefinitions of a step. They have to be established before the next step.
pub fn definitions(step: &[Manifest]) -> impl Iterator<Item = &Manifest> {
    step.iter().filter(|manifest| is_definition(manifest))
}

/// Returns group and kind of the objects that a CustomResourceDefinition defines.
pub fn defined_kind(definition: &Value) -> Option<(String, String)> {
    let text = |pointer| definition.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some((text("/spec/group")?, text("/spec/names/kind")?))
}

/// Returns whether an apply changes what a CustomResourceDefinition defines. Both are as the API
/// server returns them, with all defaults.
pub fn is_definition_changed(live: Option<&Value>, applied: &Value) -> bool {
    live.and_then(|live| live.get("spec")) != applied.get("spec")
}

/// Returns whether the API server serves the kind of a CustomResourceDefinition.
pub fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use kube_core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    fn manifest(kind: &str) -> Manifest {
        Manifest {
            id: ObjectId::new("x.example/v1", kind, "", "a"),
            kind: GroupVersionKind::gvk("x.example", "v1", kind),
            origin: String::new(),
            object: json!({}),
        }
    }

    #[test]
    fn kinds_that_others_need_come_first() {
        let shuffled = [
            "Sync",
            "Cluster",
            "Widget",
            "ClusterClass",
            "ConfigMap",
            "SandboxClusterTemplate",
            "Namespace",
            "HelmChartProxy",
            "CustomResourceDefinition",
            "ServiceAccount",
            "Gadget",
        ];
        let steps = steps(shuffled.map(manifest).into());
        let kinds: Vec<Vec<_>> =
            steps.iter().map(|step| step.iter().map(|one| &*one.id.kind).collect()).collect();
        let expected: [&[&str]; 10] = [
            &["Namespace"],
            &["CustomResourceDefinition"],
            &["ServiceAccount"],
            &["ConfigMap"],
            &["SandboxClusterTemplate"],
            &["Widget", "Gadget"],
            &["ClusterClass"],
            &["Cluster"],
            &["HelmChartProxy"],
            &["Sync"],
        ];
        assert_eq!(kinds, expected);
        assert_eq!(steps.iter().map(|step| definitions(step).count()).sum::<usize>(), 1);
        let first: Vec<_> = steps.iter().map(|step| is_first_stage(step)).collect();
        assert_eq!(first, [[true; 2].as_slice(), &[false; 8]].concat());
    }

    #[test]
    fn a_definition_with_another_spec_changes_its_kind() {
        let definition = |field: &str| {
            json!({
                "metadata": {"resourceVersion": field},
                "spec": {"group": "x.example", "names": {"kind": "Widget"}, "versions": [{"schema": field}]},
            })
        };
        let (old, mut labeled) = (definition("a"), definition("a"));
        labeled["metadata"] = json!({"labels": {"a": "b"}});
        for (live, applied, changed) in
            [(None, &old, true), (Some(&old), &labeled, false), (Some(&old), &definition("b"), true)]
        {
            assert_eq!(is_definition_changed(live, applied), changed, "{applied}");
        }
        assert_eq!(defined_kind(&old), Some(("x.example".to_owned(), "Widget".to_owned())));
        assert_eq!(defined_kind(&json!({})), None);
    }

    #[test]
    fn a_definition_is_awaited_until_it_is_established() {
        let with =
            |status: &str| json!({"status": {"conditions": [{"type": "Established", "status": status}]}});
        for (definition, expected) in [(json!({}), false), (with("False"), false), (with("True"), true)] {
            assert_eq!(is_established(&definition), expected, "{definition}");
        }
    }
}
