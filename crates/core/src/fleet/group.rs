//! ClusterGroups of classes.

use std::collections::BTreeMap;

use chandler_api::capi::ClusterView;
use serde_json::{Value, json};

use super::{API_VERSION, CLASS_NAME_LABEL, CLASS_NAMESPACE_LABEL, ClassSettings, metadata};

/// The key of a ClusterClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassKey {
    pub namespace: String,
    pub name: String,
}

impl ClassKey {
    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (CLASS_NAME_LABEL.to_owned(), self.name.clone()),
            (CLASS_NAMESPACE_LABEL.to_owned(), self.namespace.clone()),
        ])
    }
}

/// Returns the class of a Cluster, or `None` if it has none.
pub fn class_of(cluster: &Value, view: &ClusterView) -> Option<ClassKey> {
    let class = &view.spec.topology.as_ref()?.class_ref;
    let namespace = if class.namespace.is_empty() { metadata::namespace(cluster) } else { &class.namespace };
    (!class.name.is_empty()).then(|| ClassKey { namespace: namespace.to_owned(), name: class.name.clone() })
}

/// Returns the class of a ClusterGroup, according to its labels.
pub fn class_of_group(group: &Value) -> Option<ClassKey> {
    let mut labels = metadata::labels(group);
    let namespace = labels.remove(CLASS_NAMESPACE_LABEL)?;
    Some(ClassKey { namespace, name: labels.remove(CLASS_NAME_LABEL)? })
}

/// Returns the ClusterGroup that is wanted for a ClusterClass in its namespace.
pub fn class_group(settings: ClassSettings, class: &Value) -> Value {
    let key =
        ClassKey { namespace: metadata::namespace(class).to_owned(), name: metadata::name(class).to_owned() };
    let mut group = group(&key.namespace, &key.name, &key, metadata::labels(class));
    if settings.owner_references {
        group["metadata"]["ownerReferences"] = json!([metadata::owner_reference(class)]);
    }
    group
}

/// Returns the ClusterGroup that is wanted in a namespace for a class of another namespace. The Clusters of the class own
/// it: it is deleted with the last of them.
pub fn shared_class_group(
    namespace: &str,
    class: &ClassKey,
    class_labels: BTreeMap<String, String>,
    clusters: &[&Value],
) -> Value {
    let name = format!("{}.{}", class.name, class.namespace);
    let mut group = group(namespace, &name, class, class_labels);
    let owners: Vec<_> = clusters.iter().map(|cluster| metadata::owner_reference(cluster)).collect();
    group["metadata"]["ownerReferences"] = Value::Array(owners);
    group
}

fn group(namespace: &str, name: &str, class: &ClassKey, mut labels: BTreeMap<String, String>) -> Value {
    labels.extend(class.labels());
    json!({
        "apiVersion": API_VERSION, "kind": "ClusterGroup",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": class.labels()}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::WritePolicy;

    fn class() -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass",
            "metadata": {"name": "base", "namespace": "classes", "uid": "u-9", "labels": {"tier": "one"}},
        })
    }

    fn selector() -> Value {
        json!({"matchLabels": {
            "clusterclass-name.fleet.addons.cluster.x-k8s.io": "base",
            "clusterclass-namespace.fleet.addons.cluster.x-k8s.io": "classes",
        }})
    }

    #[test]
    fn a_class_has_a_group_of_the_same_name() {
        for owner_references in [true, false] {
            let group =
                class_group(ClassSettings { write: WritePolicy::Maintain, owner_references }, &class());
            assert_eq!((metadata::namespace(&group), metadata::name(&group)), ("classes", "base"));
            assert_eq!(group["spec"]["selector"], selector());
            assert_eq!(metadata::labels(&group)["tier"], "one");
            assert_eq!(group["metadata"]["ownerReferences"][0]["uid"] == "u-9", owner_references);
            let key = ClassKey { namespace: "classes".to_owned(), name: "base".to_owned() };
            assert_eq!(class_of_group(&group), Some(key));
        }
        assert_eq!(class_of_group(&json!({"metadata": {"labels": {"tier": "one"}}})), None);
    }

    #[test]
    fn a_class_of_another_namespace_has_a_group_that_its_clusters_own() {
        let cluster = |name: &str| {
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": name, "namespace": "team", "uid": name},
            })
        };
        let (blue, green) = (cluster("blue"), cluster("green"));
        let class_key = ClassKey { namespace: "classes".to_owned(), name: "base".to_owned() };
        let group = shared_class_group("team", &class_key, metadata::labels(&class()), &[&blue, &green]);
        assert_eq!((metadata::namespace(&group), metadata::name(&group)), ("team", "base.classes"));
        assert_eq!(group["spec"]["selector"], selector());
        assert_eq!(metadata::labels(&group)["tier"], "one");
        let owners = group["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(owners.iter().map(|owner| &owner["name"]).collect::<Vec<_>>(), ["blue", "green"]);
    }

    #[test]
    fn the_class_of_a_cluster_is_in_its_own_namespace_by_default() {
        let rows = [
            (json!({"topology": {"classRef": {"name": "base"}}}), Some(("team", "base"))),
            (
                json!({"topology": {"classRef": {"name": "base", "namespace": "classes"}}}),
                Some(("classes", "base")),
            ),
            (json!({}), None),
        ];
        for (spec, expected) in rows {
            let cluster = json!({"metadata": {"name": "blue", "namespace": "team"}, "spec": spec});
            let class = class_of(&cluster, &ClusterView::of(&cluster).unwrap());
            let expected =
                expected.map(|(namespace, name)| ClassKey { namespace: namespace.into(), name: name.into() });
            assert_eq!(class, expected);
        }
    }
}
