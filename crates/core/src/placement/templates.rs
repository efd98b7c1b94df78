//! Decides when a value template has to be evaluated and when its last result is still valid.

use serde_json::Value;

use super::template_paths::TemplatePaths;
use crate::{
    cluster_conditions::{ADDONS_READY, ADDONS_UPGRADABLE},
    digest::Digest,
    parameters::Parameters,
};

/// Annotation of a release object: digest of the template and the data that its values were rendered from.
pub const RENDERED_FROM_ANNOTATION: &str = "chandler.dev/rendered-from";

/// Conditions of a Cluster that Chandler writes.
const OWN_CONDITIONS: [&str; 2] = [ADDONS_READY, ADDONS_UPGRADABLE];

/// Whether a template has to be evaluated for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// The text contains no template actions.
    Plain,
    /// The values of the release object were rendered from the same template and data.
    Current,
    /// The template has to be evaluated.
    Needed,
}

/// Decides whether `template` has to be evaluated for a cluster.
pub fn rendering(template: &str, inputs: &Digest, rendered_from: Option<&str>) -> Rendering {
    if !template.contains("{{") {
        Rendering::Plain
    } else if rendered_from == Some(inputs.as_str()) {
        Rendering::Current
    } else {
        Rendering::Needed
    }
}

/// The objects that a template may refer to, in the JSON form of the API server.
#[derive(Clone, Copy, Debug)]
pub struct TemplateObjects<'a> {
    pub cluster: &'a Value,
    /// `None` if the template does not refer to it.
    pub control_plane: Option<&'a Value>,
    /// `None` if the template does not refer to it.
    pub infra_cluster: Option<&'a Value>,
    /// `None` if the template does not refer to it, or if the Cluster has no class.
    pub cluster_class: Option<&'a Value>,
    /// `None` if the template does not refer to it.
    pub kubernetes_version: Option<&'a str>,
    /// Data that is not about the Cluster, by name.
    pub other: &'a Parameters,
    /// What was read from objects for parameters, and its name.
    pub content: Option<(&'static str, &'a Value)>,
}

/// Returns whether a template refers to data of this name. Objects that it does not refer to are not read.
pub fn refers_to(template: &str, name: &str) -> bool {
    // What a template reads is named in its text, so most templates need not be parsed.
    template.contains(name) && reads(&TemplatePaths::of(template), name)
}

fn reads(paths: &TemplatePaths, name: &str) -> bool {
    match paths {
        TemplatePaths::All => true,
        TemplatePaths::Fields(paths) => {
            paths.iter().any(|path| path.first().is_some_and(|first| first == name))
        }
    }
}

/// Returns the data of a template for a cluster, and the digest of template and data.
///
/// The objects are reduced by [`visible_to_templates`] and to the fields that the template reads.
pub fn render_inputs(template: &str, objects: &TemplateObjects<'_>) -> (Value, Digest) {
    let named = [
        ("Cluster", Some(objects.cluster)),
        ("ControlPlane", objects.control_plane),
        ("InfraCluster", objects.infra_cluster),
        ("ClusterClass", objects.cluster_class),
    ];
    let visible =
        named.into_iter().filter_map(|(name, object)| Some((name.to_owned(), visible_to_templates(object?))));
    let version = objects.kubernetes_version.map(|version| ("KubernetesVersion".to_owned(), version.into()));
    let paths = TemplatePaths::of(template);
    // Other data may be large, so it is not copied if the template does not read it.
    let other = objects.other.iter().map(|(name, value)| (name.as_str(), value)).chain(objects.content);
    let other = other.filter(|(name, _)| reads(&paths, name));
    let mut data: Parameters = other.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    data.extend(visible.chain(version));
    let data = paths.select(Value::Object(data));
    let digest = Digest::of(format!("{template}\n{data}"));
    (data, digest)
}

/// Returns the part of an object that templates can read.
///
/// Managed fields and the resource version are removed: they change with every write, so that each status update of a
/// Cluster would become an upgrade. The conditions that Chandler writes to Clusters are removed too, because each
/// add-on that becomes ready changes them for all others.
pub fn visible_to_templates(object: &Value) -> Value {
    let mut object = object.clone();
    remove_own_conditions(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

/// Also removes the status if it contains nothing else.
fn remove_own_conditions(object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    conditions.retain(|condition| !OWN_CONDITIONS.iter().any(|own| condition["type"] == **own));
    if conditions.is_empty() {
        status.remove("conditions");
    }
    if status.is_empty()
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::json;

    use super::*;

    static NOTHING: LazyLock<Parameters> = LazyLock::new(Parameters::new);

    fn only(cluster: &Value) -> TemplateObjects<'_> {
        TemplateObjects {
            cluster,
            control_plane: None,
            infra_cluster: None,
            cluster_class: None,
            kubernetes_version: None,
            other: &NOTHING,
            content: None,
        }
    }

    #[test]
    fn templates_are_evaluated_only_if_their_input_changed() {
        let template = "name: {{ .Cluster.metadata.name }}";
        let cluster = json!({"metadata": {"name": "blue", "resourceVersion": "1"}});
        let (data, digest) = render_inputs(template, &only(&cluster));
        assert_eq!(data, json!({"Cluster": {"metadata": {"name": "blue"}}}));
        assert_eq!(rendering(template, &digest, None), Rendering::Needed);
        assert_eq!(rendering(template, &digest, Some(digest.as_str())), Rendering::Current);
        assert_eq!(rendering("a: 1", &digest, None), Rendering::Plain);
        let (_, updated) =
            render_inputs(template, &only(&json!({"metadata": {"name": "blue", "resourceVersion": "2"}})));
        assert_eq!(updated, digest, "a new resource version alone does not matter");
        let (_, paused) = render_inputs(
            template,
            &only(&json!({"metadata": {"name": "blue", "labels": {}}, "spec": {"paused": true}})),
        );
        assert_eq!(paused, digest, "fields that the template does not read do not matter");
        let (_, renamed) = render_inputs(template, &only(&json!({"metadata": {"name": "green"}})));
        assert_ne!(renamed, digest);
    }

    #[test]
    fn own_conditions_are_not_visible() {
        let template = "conditions: {{ .Cluster.status.conditions | toJson }}";
        let with = |conditions: &Value| {
            let cluster = json!({"metadata": {"name": "blue"}, "status": {"conditions": conditions}});
            render_inputs(template, &only(&cluster)).1
        };
        let available = json!({"type": "Available", "status": "True"});
        let ours = [json!({"type": "AddonsReady", "status": "True"}), json!({"type": "AddonsUpgradable"})];
        assert_eq!(with(&json!([available, ours[0], ours[1]])), with(&json!([available])));
        assert_ne!(with(&json!([available])), with(&json!([])));
    }

    #[test]
    fn other_objects_matter_only_for_templates_that_refer_to_them() {
        let template = "a: {{ .ControlPlane.spec.version }}";
        assert!(refers_to(template, "ControlPlane") && !refers_to(template, "InfraCluster"));
        let rows = [
            ("# ControlPlane\na: 1", false),
            ("# ControlPlane\na: {{ .Cluster.metadata.name }}", false),
            ("{{/* ControlPlane */}}{{ .Cluster.metadata.name }}", false),
            ("{{ .Cluster.spec.topology.ControlPlane }}", false),
            ("{{ eq .Cluster.kind \"ControlPlane\" }}", false),
            ("{{ toJson . }}", false),
            ("{{ index . \"ControlPlane\" }}", true),
            ("{{ with .Cluster }}{{ $.ControlPlane.kind }}{{ end }}", true),
        ];
        for (template, expected) in rows {
            assert_eq!(refers_to(template, "ControlPlane"), expected, "{template}");
        }
        let (cluster, plane) = (json!({}), json!({"spec": {"version": "v1"}}));
        let objects = TemplateObjects { control_plane: Some(&plane), ..only(&cluster) };
        let (data, _) = render_inputs("{{ .ControlPlane }}", &objects);
        assert_eq!(data, json!({"ControlPlane": {"spec": {"version": "v1"}}}));
    }

    #[test]
    fn other_data_and_the_kubernetes_version_are_visible() {
        let (cluster, other) =
            (json!({}), json!({"Values": {"mtu": 9000, "zone": "a"}, "Cluster": "hidden"}));
        let objects = TemplateObjects {
            kubernetes_version: Some("v1.35.0"),
            other: other.as_object().unwrap(),
            ..only(&cluster)
        };
        let (data, _) = render_inputs("{{ .KubernetesVersion }}: {{ .Values.mtu }}", &objects);
        assert_eq!(data, json!({"KubernetesVersion": "v1.35.0", "Values": {"mtu": 9000}}));
        let (data, _) = render_inputs("{{ .Cluster }}", &objects);
        assert_eq!(data, json!({"Cluster": {}}), "objects cannot be replaced");
        let content = json!([{"a": 1}]);
        let objects = TemplateObjects { content: Some(("Objects", &content)), ..objects };
        let (data, _) = render_inputs("{{ range .Objects }}{{ end }}", &objects);
        assert_eq!(data, json!({"Objects": [{"a": 1}]}));
        assert_eq!(render_inputs("{{ .Values.zone }}", &objects).0, json!({"Values": {"zone": "a"}}));
    }
}
