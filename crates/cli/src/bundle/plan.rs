//! Decides how the objects of a ClusterResourceSet become a bundle, or why they cannot.

use std::collections::BTreeMap;

use chandler_api::extensions::GROUP;
use chandler_core::digest::Digest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    manifests::{self, Document, ObjectName},
    resource_set::{Resource, ResourceContent, ResourceRef, ResourceSet},
};

/// Maximum length of the name of a release.
const MAX_RELEASE_NAME: usize = 53;

#[derive(Debug, Clone)]
pub struct PlanOptions {
    pub source: String,
    pub path: String,
    pub instance: String,
    pub release_namespace: String,
    pub leave_secrets: bool,
}

/// What a migration does.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub namespace: String,
    pub cluster_resource_set: String,
    pub source: String,
    /// Folder of the bundle in the repository of the Source.
    pub path: String,
    pub files: Vec<BundleFile>,
    /// Objects that are left out of the bundle.
    pub left: Vec<ObjectName>,
    /// Resources whose content is not what was applied to a cluster.
    pub changes: Vec<ChangedResource>,
    /// The ExtensionInstance that takes the objects over.
    pub instance: Value,
}

/// A file of the bundle.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleFile {
    pub name: String,
    /// The resource that the file comes from.
    pub resource: ResourceRef,
    pub objects: Vec<ObjectName>,
    pub content: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedResource {
    pub resource: ResourceRef,
    pub cluster: String,
}

impl Plan {
    pub fn instance_name(&self) -> &str {
        self.instance["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Returns what to do, or every reason why the set cannot be migrated.
pub fn plan(set: &ResourceSet, options: &PlanOptions) -> Result<Plan, Vec<String>> {
    let mut problems = check_set(set);
    problems.extend(check_options(options));
    let (mut files, mut left) = (Vec::new(), Vec::new());
    for (number, resource) in set.resources.iter().enumerate() {
        match parse(resource) {
            Err(found) => problems.extend(found),
            Ok(parsed) => {
                for (key, documents) in parsed {
                    let (secrets, kept): (Vec<_>, Vec<_>) =
                        documents.into_iter().partition(|document| document.object.is_secret());
                    left.extend(secrets.into_iter().map(|document| document.object));
                    if !kept.is_empty() {
                        files.push(file(number + 1, &resource.reference, &key, &kept));
                    }
                }
            }
        }
    }
    if !options.leave_secrets {
        problems.extend(left.iter().map(|secret| {
            format!(
                "{secret} would become part of a Git repository: leave it out with --leave-secrets, or let another tool \
                 create it"
            )
        }));
    }
    problems.extend(find_duplicates(&files));
    if files.is_empty() && problems.is_empty() {
        problems.push("it contains no objects for a bundle".to_owned());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Plan {
        namespace: set.namespace.clone(),
        cluster_resource_set: set.name.clone(),
        source: options.source.clone(),
        path: options.path.clone(),
        files,
        left,
        changes: find_changes(set),
        instance: instance(set, options),
    })
}

fn check_set(set: &ResourceSet) -> Vec<String> {
    let mut problems = Vec::new();
    if set.deleting {
        problems.push("it is being deleted".to_owned());
    }
    if set.paused {
        problems.push(
            "it is paused, so the Cluster API would not complete its deletion: remove the annotation \
             cluster.x-k8s.io/paused"
                .to_owned(),
        );
    }
    if is_empty(&set.spec.cluster_selector) {
        problems.push(
            "its clusterSelector is empty, so it selects no clusters: create an ExtensionInstance with a selector of your \
             own"
                .to_owned(),
        );
    }
    problems
}

fn is_empty(selector: &LabelSelector) -> bool {
    let no_labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    no_labels && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

fn check_options(options: &PlanOptions) -> Vec<String> {
    let mut problems = Vec::new();
    if options.instance.len() > MAX_RELEASE_NAME {
        problems.push(format!(
            "the name {} is longer than the {MAX_RELEASE_NAME} characters of the name of a release: choose another one with \
             --instance",
            options.instance
        ));
    }
    let is_folder = |part: &str| !matches!(part, "" | "." | "..") && !part.contains("{{");
    if !options.path.split('/').all(is_folder) {
        problems.push(format!(
            "{} is not a folder of a repository: choose one such as bundles/cni with --path",
            options.path
        ));
    }
    problems
}

/// Returns the documents of a resource by its keys.
fn parse(resource: &Resource) -> Result<Vec<(String, Vec<Document>)>, Vec<String>> {
    let reference = &resource.reference;
    let data = match &resource.content {
        ResourceContent::Data(data) => data,
        ResourceContent::Missing => {
            return Err(vec![format!(
                "{reference} does not exist: create it, or remove it from the ClusterResourceSet"
            )]);
        }
        ResourceContent::WrongType(type_) => {
            return Err(vec![format!(
                "{reference} has the type {type_}, which a ClusterResourceSet does not apply: remove it from the \
                 ClusterResourceSet"
            )]);
        }
    };
    let (mut parsed, mut problems) = (Vec::new(), Vec::new());
    for (key, value) in data {
        let text = std::str::from_utf8(value).map_err(|_| "is not text".to_owned());
        match text.and_then(manifests::documents) {
            Ok(documents) => {
                problems.extend(documents.iter().filter(|document| document.is_hook).map(|document| {
                    format!(
                        "{} of {reference} has the annotation helm.sh/hook, so a release would run it as a hook: remove the \
                         annotation",
                        document.object
                    )
                }));
                parsed.push((key.clone(), documents));
            }
            Err(problem) => problems.push(format!("key {key} of {reference} {problem}")),
        }
    }
    if problems.is_empty() { Ok(parsed) } else { Err(problems) }
}

/// Returns a file with the documents of a key. Its name starts with the number of the resource, which makes it unique.
fn file(number: usize, resource: &ResourceRef, key: &str, documents: &[Document]) -> BundleFile {
    // A file with several documents is YAML, whatever its key.
    let extensions: &[&str] =
        if documents.len() == 1 { &[".yaml", ".yml", ".json"] } else { &[".yaml", ".yml"] };
    let has_extension = extensions.iter().any(|extension| key.ends_with(extension));
    let extension = if has_extension { "" } else { ".yaml" };
    let texts: Vec<_> = documents.iter().map(|document| with_newline(&document.text)).collect();
    BundleFile {
        name: format!("{number:02}-{}-{key}{extension}", resource.name),
        resource: resource.clone(),
        objects: documents.iter().map(|document| document.object.clone()).collect(),
        content: texts.join("---\n"),
    }
}

fn with_newline(text: &str) -> String {
    format!("{}\n", text.trim_end_matches('\n'))
}

fn find_duplicates(files: &[BundleFile]) -> Vec<String> {
    let mut known: BTreeMap<_, &BundleFile> = BTreeMap::new();
    let mut problems = Vec::new();
    for file in files {
        for object in &file.objects {
            if let Some(first) = known.insert(object.identity(), file) {
                problems.push(format!(
                    "{object} is in {} and again in {}: remove one of them",
                    first.resource, file.resource
                ));
            }
        }
    }
    problems
}

/// Returns the resources that have changed since they were applied to a cluster. A take-over would apply the change.
fn find_changes(set: &ResourceSet) -> Vec<ChangedResource> {
    let mut changes = Vec::new();
    for resource in &set.resources {
        let ResourceContent::Data(data) = &resource.content else { continue };
        let current = Digest::of(data.values().flatten().copied().collect::<Vec<u8>>());
        for binding in &set.bindings {
            let applied = binding.resources.iter().find(|applied| applied.reference == resource.reference);
            if applied.is_some_and(|applied| !applied.hash.is_empty() && applied.hash != current.as_str()) {
                changes.push(ChangedResource {
                    resource: resource.reference.clone(),
                    cluster: binding.cluster.clone(),
                });
            }
        }
    }
    changes
}

fn instance(set: &ResourceSet, options: &PlanOptions) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "ExtensionInstance",
        "metadata": {"name": options.instance, "namespace": set.namespace},
        "spec": {
            "source": {"sourceRef": {"name": options.source}, "path": options.path},
            "clusters": {"selector": set.spec.cluster_selector},
            "release": {"namespace": options.release_namespace},
            "options": {"takeOwnership": true},
        },
    })
}

#[cfg(test)]
pub mod tests {
    use chandler_api::extensions::ExtensionInstance;

    use super::*;
    use crate::bundle::resource_set::{AppliedResource, Binding, ResourceSetSpec};

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x}\n";
    const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: x}\n";

    fn reference(kind: &str, name: &str) -> ResourceRef {
        ResourceRef { kind: kind.to_owned(), name: name.to_owned() }
    }

    fn map(name: &str, data: &[(&str, &str)]) -> Resource {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Resource { reference: reference("ConfigMap", name), content: ResourceContent::Data(data.collect()) }
    }

    fn set(resources: Vec<Resource>) -> ResourceSet {
        let spec: ResourceSetSpec =
            serde_json::from_value(json!({"clusterSelector": {"matchLabels": {"cni": "x"}}})).unwrap();
        ResourceSet {
            namespace: "fleet".to_owned(),
            name: "cni".to_owned(),
            spec,
            resources,
            ..ResourceSet::default()
        }
    }

    fn options() -> PlanOptions {
        PlanOptions {
            source: "git".to_owned(),
            path: "bundles/cni".to_owned(),
            instance: "cni".to_owned(),
            release_namespace: "kube-system".to_owned(),
            leave_secrets: false,
        }
    }

    /// Returns a plan with one file and a change.
    pub fn example() -> Plan {
        let mut set = set(vec![map("cni", &[("cni.yaml", MAP)])]);
        let resources =
            vec![AppliedResource { reference: reference("ConfigMap", "cni"), hash: "sha256:0".to_owned() }];
        set.bindings = vec![Binding { cluster: "alpha".to_owned(), resources }];
        plan(&set, &options()).unwrap()
    }

    fn problems(set: &ResourceSet, options: &PlanOptions) -> String {
        plan(set, options).unwrap_err().join("\n")
    }

    #[test]
    fn each_key_is_a_file_and_keeps_its_text() {
        let other = MAP.replace("name: a", "name: b");
        let two = format!("{MAP}---\n{}", MAP.replace("name: a", "name: c"));
        let set = set(vec![
            map("cni", &[("b.yaml", &other), ("a", two.trim_end())]),
            map("rest", &[("x.json", "[]")]),
        ]);
        let plan = plan(&set, &options()).unwrap();
        let names: Vec<_> = plan.files.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["01-cni-a.yaml", "01-cni-b.yaml"], "a key without objects is no file");
        assert_eq!((&*plan.files[0].content, &*plan.files[1].content), (&*two, &*other));
        assert_eq!(plan.files[0].objects[1].to_string(), "ConfigMap x/c");
    }

    #[test]
    fn the_instance_is_valid_and_takes_ownership() {
        let plan = example();
        let instance: ExtensionInstance = serde_json::from_value(plan.instance.clone()).unwrap();
        assert!(instance.spec.options.take_ownership);
        assert_eq!(instance.spec.source.unwrap().path.as_deref(), Some("bundles/cni"));
        assert_eq!(plan.instance["spec"]["clusters"], json!({"selector": {"matchLabels": {"cni": "x"}}}));
        assert_eq!(plan.instance_name(), "cni");
    }

    #[test]
    fn secrets_are_refused_or_left_out() {
        let set = set(vec![map("cni", &[("a.yaml", &format!("{SECRET}---\n{MAP}"))])]);
        assert!(problems(&set, &options()).contains("Secret x/s would become part of a Git repository"));
        let plan = plan(&set, &PlanOptions { leave_secrets: true, ..options() }).unwrap();
        assert_eq!((&*plan.files[0].content, plan.left.len()), (MAP, 1));
    }

    #[test]
    fn every_reason_is_reported() {
        let hook = MAP.replace("namespace: x", "namespace: x, annotations: {helm.sh/hook: test}");
        let missing = Resource { reference: reference("Secret", "gone"), content: ResourceContent::Missing };
        let wrong = ResourceContent::WrongType("Opaque".to_owned());
        let mut set = set(vec![
            map("one", &[("a.yaml", MAP), ("b.yaml", "a: [")]),
            map("two", &[("a.yaml", MAP)]),
            map("three", &[("a.yaml", MAP)]),
            map("four", &[("a.yaml", &hook)]),
            missing,
            Resource { reference: reference("Secret", "wrong"), content: wrong },
        ]);
        set.spec.cluster_selector = LabelSelector::default();
        (set.paused, set.deleting) = (true, true);
        let options = PlanOptions { path: "../x".to_owned(), instance: "n".repeat(54), ..options() };
        let problems = problems(&set, &options);
        for expected in [
            "it is being deleted",
            "it is paused",
            "its clusterSelector is empty",
            "longer than the 53 characters",
            "../x is not a folder",
            "key b.yaml of ConfigMap one contains invalid YAML",
            "ConfigMap x/a is in ConfigMap two and again in ConfigMap three",
            "ConfigMap x/a of ConfigMap four has the annotation helm.sh/hook",
            "Secret gone does not exist",
            "Secret wrong has the type Opaque",
        ] {
            assert!(problems.contains(expected), "{expected}: {problems}");
        }
    }

    #[test]
    fn a_set_without_objects_is_refused() {
        assert_eq!(problems(&set(vec![map("cni", &[])]), &options()), "it contains no objects for a bundle");
    }

    #[test]
    fn changes_since_the_set_was_applied_are_found() {
        let changed =
            ChangedResource { resource: reference("ConfigMap", "cni"), cluster: "alpha".to_owned() };
        assert_eq!(example().changes, [changed]);
        // The digest is that of all values, in the order of their keys.
        let mut set = set(vec![map("cni", &[("a", MAP), ("b", "---\n")])]);
        let hash = Digest::of(format!("{MAP}---\n")).as_str().to_owned();
        let resources = vec![AppliedResource { reference: reference("ConfigMap", "cni"), hash }];
        set.bindings = vec![Binding { cluster: "alpha".to_owned(), resources }];
        assert_eq!(plan(&set, &options()).unwrap().changes, []);
    }
}
