//! When a value template has to be evaluated, and when the last result still holds.

use serde_json::Value;

use crate::{
    cluster_conditions::{ADDONS_READY, ADDONS_UPGRADABLE},
    digest::Digest,
};

/// Annotation of a release object: digest of the template and the data its values were rendered from.
pub const RENDERED_FROM_ANNOTATION: &str = "chandler.dev/rendered-from";

/// Conditions of a Cluster that Chandler writes.
const OWN_CONDITIONS: [&str; 2] = [ADDONS_READY, ADDONS_UPGRADABLE];

/// What has to be done to know a cluster's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// The text holds no template.
    Plain,
    /// The release object's values were rendered from the same.
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

/// The objects that a template may look at, as the API server returns them.
#[derive(Clone, Copy, Debug)]
pub struct TemplateObjects<'a> {
    pub cluster: &'a Value,
    /// None: the template does not name it.
    pub control_plane: Option<&'a Value>,
    /// None: the template does not name it.
    pub infra_cluster: Option<&'a Value>,
}

/// Whether a template looks at the control plane, and at the infrastructure cluster: those are read only for templates
/// that name them.
pub fn looks_at(template: &str) -> (bool, bool) {
    let is_template = template.contains("{{");
    (is_template && template.contains("ControlPlane"), is_template && template.contains("InfraCluster"))
}

/// The template's data for a cluster, and the digest of template and data together.
///
/// Both hold only what is [`visible`] to templates.
pub fn render_inputs(template: &str, objects: &TemplateObjects<'_>) -> (Value, Digest) {
    let named = [
        ("Cluster", Some(objects.cluster)),
        ("ControlPlane", objects.control_plane),
        ("InfraCluster", objects.infra_cluster),
    ];
    let data = named.into_iter().filter_map(|(name, object)| Some((name.to_owned(), visible(object?))));
    let data = Value::Object(data.collect());
    let digest = Digest::of(format!("{template}\n{data}"));
    (data, digest)
}

/// Returns what templates see of an object.
///
/// Bookkeeping that changes with every write (managed fields, resource version) is left out: a template that could read
/// it would make every status update of a Cluster an upgrade. So are the conditions that Chandler itself writes to
/// Clusters, because each add-on that becomes ready changes them for all others.
pub fn visible(object: &Value) -> Value {
    let mut object = object.clone();
    remove_own_conditions(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

/// Leaves no trace of them: a Cluster that only Chandler has written a status to has none.
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
    use serde_json::json;

    use super::*;

    fn only(cluster: &Value) -> TemplateObjects<'_> {
        TemplateObjects { cluster, control_plane: None, infra_cluster: None }
    }

    #[test]
    fn only_what_changed_is_evaluated() {
        let template = "name: {{ .Cluster.metadata.name }}";
        let cluster = json!({"metadata": {"name": "blue", "resourceVersion": "1"}});
        let (data, digest) = render_inputs(template, &only(&cluster));
        assert_eq!(data, json!({"Cluster": {"metadata": {"name": "blue"}}}));
        assert_eq!(rendering(template, &digest, None), Rendering::Needed);
        assert_eq!(rendering(template, &digest, Some(digest.as_str())), Rendering::Current);
        assert_eq!(rendering("a: 1", &digest, None), Rendering::Plain);
        let (_, touched) =
            render_inputs(template, &only(&json!({"metadata": {"name": "blue", "resourceVersion": "2"}})));
        assert_eq!(touched, digest, "a new resource version alone renders nothing");
        let ours = json!([{"type": "AddonsReady", "status": "True"}, {"type": "AddonsUpgradable"}]);
        let with = |conditions: &Value| {
            let cluster = json!({"metadata": {"name": "blue"}, "status": {"conditions": conditions}});
            render_inputs(template, &only(&cluster)).1
        };
        assert_eq!(with(&ours), digest, "our own conditions render nothing");
        assert_ne!(with(&json!([{"type": "Available", "status": "True"}])), digest);
        let (_, renamed) = render_inputs(template, &only(&json!({"metadata": {"name": "green"}})));
        assert_ne!(renamed, digest);
    }

    #[test]
    fn other_objects_count_only_for_templates_that_name_them() {
        assert_eq!(looks_at("a: {{ .ControlPlane.spec.version }}"), (true, false));
        assert_eq!(looks_at("a: {{ .InfraCluster.kind }}"), (false, true));
        assert_eq!(looks_at("# ControlPlane\na: 1"), (false, false));
        let (cluster, plane) = (json!({}), json!({"spec": {"version": "v1"}}));
        let objects = TemplateObjects { cluster: &cluster, control_plane: Some(&plane), infra_cluster: None };
        let (data, _) = render_inputs("{{ .ControlPlane }}", &objects);
        assert_eq!(data, json!({"Cluster": {}, "ControlPlane": {"spec": {"version": "v1"}}}));
    }
}
