//! When a value template has to be evaluated, and when the last result still holds.

use serde_json::{Value, json};

use crate::digest::Digest;

/// Annotation of a release object: digest of the template and the data its values were rendered from.
pub const RENDERED_FROM_ANNOTATION: &str = "chandler.dev/rendered-from";

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

/// The template's data for a cluster, and the digest of template and data together.
///
/// Bookkeeping that changes with every write (managed fields, resource version) is left out of both: a template that
/// could read it would make every status update of a Cluster an upgrade.
pub fn render_inputs(template: &str, cluster: &Value) -> (Value, Digest) {
    let mut cluster = cluster.clone();
    if let Some(metadata) = cluster.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    let data = json!({ "Cluster": cluster });
    let digest = Digest::of(format!("{template}\n{data}"));
    (data, digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_evaluated() {
        let template = "name: {{ .Cluster.metadata.name }}";
        let cluster = json!({"metadata": {"name": "blue", "resourceVersion": "1"}});
        let (data, digest) = render_inputs(template, &cluster);
        assert_eq!(data, json!({"Cluster": {"metadata": {"name": "blue"}}}));
        assert_eq!(rendering(template, &digest, None), Rendering::Needed);
        assert_eq!(rendering(template, &digest, Some(digest.as_str())), Rendering::Current);
        assert_eq!(rendering("a: 1", &digest, None), Rendering::Plain);
        let (_, touched) =
            render_inputs(template, &json!({"metadata": {"name": "blue", "resourceVersion": "2"}}));
        assert_eq!(touched, digest, "a new resource version alone renders nothing");
        let (_, renamed) = render_inputs(template, &json!({"metadata": {"name": "green"}}));
        assert_ne!(renamed, digest);
    }
}
