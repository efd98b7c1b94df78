//! Packages that the cases apply, in no tool's format.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::hold::HELD_LABEL;

/// Is replaced by the release's name.
pub const RELEASE: &str = "$(release)";
/// Is replaced by a double-quoted string: the canonical JSON of the package's default values merged with the given ones.
pub const VALUES: &str = "$(values)";

/// A ConfigMap with the values that the package was rendered with.
pub const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: $(release)
data:
  values: $(values)
";

/// A package that a case applies. A packer gets it as JSON and writes a package of the tool's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestPackage {
    pub name: String,
    pub version: String,
    pub app_version: String,
    pub description: String,
    /// A JSON object.
    pub default_values: Value,
    /// One object each, as YAML with the placeholders `$(release)` and `$(values)`. Every placeholder is a whole YAML
    /// value or part of a plain name.
    pub manifests: Vec<String>,
}

impl TestPackage {
    /// Returns a package without objects.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            app_version: "app-1.0.0".to_owned(),
            description: format!("The test package {name}"),
            default_values: json!({}),
            manifests: Vec::new(),
        }
    }

    /// Returns a package with the ConfigMap `$(release)`, which shows the values.
    pub fn config() -> Self {
        Self::new("config").manifest(CONFIG)
    }

    /// Returns a package with the ConfigMap `$(release)`, whose requests a [`Hold`](super::hold::Hold) holds.
    pub fn held() -> Self {
        Self::new("held").manifest(held_config())
    }

    /// Returns a package with the ConfigMap `$(release)`, which a finalizer keeps.
    pub fn finalized() -> Self {
        let finalizer = "metadata:\n  finalizers: [example.invalid/kept]\n";
        Self::new("finalized").manifest(CONFIG.replace("metadata:\n", finalizer))
    }

    /// Returns a package with the Deployment `$(release)`, which becomes ready.
    pub fn deployment(replicas: u32) -> Self {
        Self::new("deployment").manifest(deployment(replicas, ""))
    }

    /// Returns a package with the Deployment `$(release)`, which never becomes ready.
    pub fn stuck_deployment() -> Self {
        Self::new("deployment").manifest(deployment(1, "      nodeSelector: {no-such: node}\n"))
    }

    /// Returns a package with as many objects of kind ConfigMap, `$(release)-0` and so on, and the given label.
    pub fn many(objects: usize, label: &str) -> Self {
        (0..objects).fold(Self::new("many"), |package, index| {
            let label = format!("metadata:\n  labels: {{{label}}}\n");
            let object = CONFIG.replace(RELEASE, &format!("{RELEASE}-{index}"));
            package.manifest(object.replace("metadata:\n", &label))
        })
    }

    /// Returns a package with many objects and the one of [`held`](Self::held): no operation can apply all of them before the
    /// [`Hold`](super::hold::Hold) is released.
    pub fn many_with_held(objects: usize) -> Self {
        Self::many(objects, "app: many").manifest(held_config())
    }

    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self.app_version = format!("app-{version}");
        self
    }

    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    #[must_use]
    pub fn default_values(mut self, values: Value) -> Self {
        self.default_values = values;
        self
    }

    #[must_use]
    pub fn manifest(mut self, manifest: impl Into<String>) -> Self {
        self.manifests.push(manifest.into());
        self
    }
}

/// Returns the ConfigMap `$(release)` with the label of held requests.
fn held_config() -> String {
    let label = format!("metadata:\n  labels: {{{HELD_LABEL}: \"true\"}}\n");
    CONFIG.replace("metadata:\n", &label)
}

fn deployment(replicas: u32, pod_spec: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {RELEASE}\nspec:\n  replicas: {replicas}\n  \
         selector:\n    matchLabels: {{app: {RELEASE}}}\n  template:\n    metadata:\n      \
         labels: {{app: {RELEASE}}}\n    spec:\n{pod_spec}      containers:\n      - name: main\n        \
         image: example.invalid/main:1\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packer_reads_camel_case_json() {
        let package = TestPackage::config().default_values(json!({"size": 1}));
        let written = serde_json::to_value(&package).unwrap();
        assert_eq!(
            written,
            json!({
                "name": "config", "version": "1.0.0", "appVersion": "app-1.0.0",
                "description": "The test package config", "defaultValues": {"size": 1}, "manifests": [CONFIG],
            })
        );
        assert_eq!(serde_json::from_value::<TestPackage>(written).unwrap(), package);
    }
}
