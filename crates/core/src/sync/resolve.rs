//! Turns documents into the objects to apply: with a namespace, and each of them once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chandler_api::extensions::SyncedObject;
use kube_core::{GroupVersion, GroupVersionKind};
use serde_json::Value;

use super::{Document, ObjectId};
use crate::{
    digest::Digest,
    failure::{Category, Failure},
};

/// The group of roles.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Whether the objects of a kind are in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// An object to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub id: ObjectId,
    pub kind: GroupVersionKind,
    /// File and line, for messages.
    pub origin: String,
    pub object: Value,
}

impl Manifest {
    /// Returns the entry of the inventory.
    pub fn record(&self) -> SyncedObject {
        SyncedObject {
            api_version: self.kind.api_version(),
            kind: self.kind.kind.clone(),
            namespace: self.id.namespace.clone(),
            name: self.id.name.clone(),
            uid: String::new(),
        }
    }

    /// Returns a failure that names the file, the line and the object.
    pub fn failure(&self, category: Category, problem: &str) -> Failure {
        Failure::new(category, format!("{}: {}: {problem}", self.origin, self.id))
    }
}

/// Returns whether an object cannot be validated before others of the same revision are written: its namespace, or the role
/// that it binds, whose permissions the API server compares with those of the account.
pub fn needs_others(manifest: &Manifest, rendered: &BTreeSet<ObjectId>) -> bool {
    let namespace = ObjectId::new("v1", "Namespace", "", &manifest.id.namespace);
    rendered.contains(&namespace) || bound_role(manifest).is_some_and(|role| rendered.contains(&role))
}

/// Returns the role of a `RoleBinding` or a `ClusterRoleBinding`.
fn bound_role(manifest: &Manifest) -> Option<ObjectId> {
    let Manifest { id, object, .. } = manifest;
    if id.group != RBAC || !id.kind.ends_with("RoleBinding") {
        return None;
    }
    let text = |field| object.pointer(field).and_then(Value::as_str);
    let (kind, name) = (text("/roleRef/kind")?, text("/roleRef/name")?);
    let namespace = if kind == "Role" { &*id.namespace } else { "" };
    Some(ObjectId::new(&format!("{RBAC}/v1"), kind, namespace, name))
}

/// Returns the kinds of the documents.
pub fn kinds(documents: &[Document]) -> HashSet<GroupVersionKind> {
    documents.iter().filter_map(kind_of).collect()
}

pub(super) fn kind_of(document: &Document) -> Option<GroupVersionKind> {
    let version: GroupVersion = document.text("/apiVersion").parse().ok()?;
    Some(version.with_kind(document.text("/kind")))
}

/// Returns the objects to apply. `served` returns the scope of a kind that the API server serves; other kinds must have a
/// CustomResourceDefinition among the documents.
pub fn resolve(
    documents: Vec<Document>,
    namespace: &str,
    served: impl Fn(&GroupVersionKind) -> Option<Scope>,
) -> Result<Vec<Manifest>, Failure> {
    let defined = defined(&documents);
    let mut origins: BTreeMap<ObjectId, String> = BTreeMap::new();
    let mut manifests = Vec::new();
    for document in documents {
        let kind = kind_of(&document)
            .ok_or_else(|| document.failure(Category::InvalidPackage, "apiVersion is not valid"))?;
        if document.text("/metadata/name").is_empty() {
            return Err(document.failure(Category::InvalidPackage, "the document has no metadata.name"));
        }
        let scope = served(&kind).or_else(|| defined.get(&kind).copied()).ok_or_else(|| {
            let problem = format!(
                "kind {} of {} is not served by the management cluster; install its CustomResourceDefinition, or \
                 correct apiVersion and kind; nothing is changed",
                kind.kind,
                kind.api_version()
            );
            document.failure(Category::InvalidPackage, &problem)
        })?;
        let manifest = manifest(document, kind, scope, namespace);
        if let Some(first) = origins.insert(manifest.id.clone(), manifest.origin.clone()) {
            let problem = format!("is defined at {first} already; remove one of them");
            return Err(manifest.failure(Category::InvalidPackage, &problem));
        }
        manifests.push(manifest);
    }
    Ok(manifests)
}

fn manifest(document: Document, kind: GroupVersionKind, scope: Scope, namespace: &str) -> Manifest {
    let written = document.text("/metadata/namespace");
    let namespace = match scope {
        Scope::Cluster => "",
        Scope::Namespaced if written.is_empty() => namespace,
        Scope::Namespaced => written,
    };
    let id = ObjectId::new(&kind.api_version(), &kind.kind, namespace, document.text("/metadata/name"));
    let mut object = document.object;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("namespace");
        if !id.namespace.is_empty() {
            metadata.insert("namespace".to_owned(), id.namespace.clone().into());
        }
        // Only the API server sets these.
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
    }
    Manifest { id, kind, origin: format!("{}:{}", document.file, document.line), object }
}

/// Returns the scopes of the kinds that CustomResourceDefinitions among the documents define.
fn defined(documents: &[Document]) -> HashMap<GroupVersionKind, Scope> {
    let mut defined = HashMap::new();
    for document in documents.iter().filter(|document| document.text("/kind") == "CustomResourceDefinition") {
        let scope = match document.text("/spec/scope") {
            "Namespaced" => Scope::Namespaced,
            _ => Scope::Cluster,
        };
        let versions = document.object.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            let Some(name) = version.get("name").and_then(Value::as_str) else { continue };
            if version.get("served") == Some(&Value::Bool(true)) {
                let (group, kind) = (document.text("/spec/group"), document.text("/spec/names/kind"));
                defined.insert(GroupVersionKind::gvk(group, name, kind), scope);
            }
        }
    }
    defined
}

/// Returns the digest of the objects. It does not depend on files, comments or order.
pub fn rendered_digest(manifests: &[Manifest]) -> Digest {
    let sorted: BTreeMap<_, _> = manifests.iter().map(|one| (&one.id, one.object.to_string())).collect();
    let texts: Vec<_> = sorted.into_values().collect();
    Digest::of(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(line: usize, object: Value) -> Document {
        Document { file: "a.yaml".to_owned(), line, object }
    }

    fn map(name: &str, namespace: Option<&str>) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
    }

    fn served(kind: &GroupVersionKind) -> Option<Scope> {
        match &*kind.kind {
            "ConfigMap" => Some(Scope::Namespaced),
            "Namespace" | "CustomResourceDefinition" => Some(Scope::Cluster),
            _ => None,
        }
    }

    #[test]
    fn namespaced_objects_get_the_namespace_of_the_sync_and_others_none() {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "x"}});
        let documents =
            vec![document(1, map("a", None)), document(2, map("b", Some("team"))), document(3, namespace)];
        let resolved = resolve(documents, "fleet", served).unwrap();
        let ids: Vec<_> = resolved.iter().map(|one| one.id.to_string()).collect();
        assert_eq!(ids, ["ConfigMap fleet/a", "ConfigMap team/b", "Namespace n"]);
        assert_eq!(resolved[0].object["metadata"]["namespace"], "fleet");
        assert_eq!(resolved[2].object["metadata"].get("namespace"), None);
        assert_eq!(resolved[1].record().namespace, "team");
    }

    #[test]
    fn an_object_is_defined_once_and_its_kind_is_known() {
        let twice = vec![document(1, map("a", None)), document(9, map("a", Some("fleet")))];
        let failure = resolve(twice, "fleet", served).unwrap_err();
        assert_eq!(
            failure.message,
            "a.yaml:9: ConfigMap fleet/a: is defined at a.yaml:1 already; remove one of them"
        );
        let widget = json!({"apiVersion": "x.example/v1", "kind": "Widget", "metadata": {"name": "w"}});
        let failure = resolve(vec![document(4, widget.clone())], "fleet", served).unwrap_err();
        assert!(
            failure.message.starts_with("a.yaml:4: kind Widget of x.example/v1 is not served"),
            "{failure}"
        );
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.x.example"},
            "spec": {
                "group": "x.example", "scope": "Namespaced", "names": {"kind": "Widget"},
                "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}],
            },
        });
        let both = vec![document(1, widget.clone()), document(2, definition.clone())];
        assert_eq!(resolve(both, "fleet", served).unwrap()[0].id.namespace, "fleet");
        let mut unserved = widget;
        unserved["apiVersion"] = json!("x.example/v2");
        assert!(resolve(vec![document(1, unserved), document(2, definition)], "fleet", served).is_err());
    }

    #[test]
    fn an_object_may_need_a_namespace_or_a_role_of_the_same_revision() {
        let manifest = |kind: &str, namespace: &str, role: Value| Manifest {
            id: ObjectId::new("rbac.authorization.k8s.io/v1", kind, namespace, "a"),
            kind: GroupVersionKind::gvk(RBAC, "v1", kind),
            origin: String::new(),
            object: json!({"roleRef": role}),
        };
        let role = |kind: &str| json!({"apiGroup": RBAC, "kind": kind, "name": "reader"});
        let rendered = BTreeSet::from([
            ObjectId::new("v1", "Namespace", "", "new"),
            ObjectId::new("rbac.authorization.k8s.io/v1", "Role", "fleet", "reader"),
            ObjectId::new("rbac.authorization.k8s.io/v1", "ClusterRole", "", "reader"),
        ]);
        let rows = [
            (manifest("Widget", "new", json!(null)), true),
            (manifest("Widget", "fleet", role("Role")), false),
            (manifest("RoleBinding", "fleet", role("Role")), true),
            (manifest("RoleBinding", "team", role("Role")), false),
            (manifest("RoleBinding", "team", role("ClusterRole")), true),
            (manifest("ClusterRoleBinding", "", role("ClusterRole")), true),
            (manifest("RoleBinding", "fleet", json!(null)), false),
        ];
        for (manifest, expected) in rows {
            assert_eq!(needs_others(&manifest, &rendered), expected, "{manifest:?}");
        }
    }

    #[test]
    fn the_digest_depends_on_the_objects_only() {
        let resolved = |documents| rendered_digest(&resolve(documents, "fleet", served).unwrap());
        let one = resolved(vec![document(1, map("a", None)), document(2, map("b", None))]);
        let other = resolved(vec![document(7, map("b", None)), document(9, map("a", Some("fleet")))]);
        assert_eq!(one, other);
        assert_ne!(one, resolved(vec![document(1, map("a", None))]));
    }
}
