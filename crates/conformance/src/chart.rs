//! Helm charts, for the Helm topics and for test packages.

use std::collections::BTreeMap;

use super::package::{RELEASE, TestPackage, VALUES};

/// A ConfigMap with the values that the chart was rendered with.
pub const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  values: {{ .Values | toJson | quote }}
";

/// A Deployment that becomes ready.
pub const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      containers:
      - name: main
        image: example.invalid/main:1
";

/// A Helm chart and its files.
#[derive(Clone, Debug)]
pub struct Chart {
    name: String,
    version: String,
    metadata: String,
    files: BTreeMap<String, String>,
}

impl Chart {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            metadata: String::new(),
            files: BTreeMap::new(),
        }
    }

    /// Returns a chart with the ConfigMap [`CONFIG`].
    pub fn config() -> Self {
        Self::new("config").template("config.yaml", CONFIG)
    }

    /// Returns a chart with the Deployment [`DEPLOYMENT`].
    pub fn deployment() -> Self {
        Self::new("deployment").template("deployment.yaml", DEPLOYMENT)
    }

    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Adds lines to the `Chart.yaml`.
    pub fn metadata(mut self, lines: &str) -> Self {
        self.metadata.push_str(lines);
        self
    }

    pub fn file(mut self, name: &str, content: impl Into<String>) -> Self {
        self.files.insert(name.to_owned(), content.into());
        self
    }

    pub fn template(self, name: &str, content: impl Into<String>) -> Self {
        self.file(&format!("templates/{name}"), content)
    }

    /// Adds a hook Job.
    pub fn hook(self, hook: &Hook<'_>) -> Self {
        let name = hook.name;
        self.template(&format!("{name}.yaml"), hook.manifest())
    }

    /// Returns the content of every file by its path.
    pub fn files(&self) -> BTreeMap<String, String> {
        let Self { name, version, metadata, files } = self;
        let chart = format!(
            "apiVersion: v2\nname: {name}\nversion: {version}\nappVersion: app-{version}\n{metadata}"
        );
        let mut files = files.clone();
        files.insert("Chart.yaml".to_owned(), chart);
        files
    }
}

impl From<&TestPackage> for Chart {
    fn from(package: &TestPackage) -> Self {
        let description = format!("description: {}\n", serde_json::Value::from(&*package.description));
        let chart = Self::new(&package.name)
            .version(&package.version)
            .metadata(&description)
            .file("values.yaml", package.default_values.to_string());
        package.manifests.iter().enumerate().fold(chart, |chart, (index, manifest)| {
            let template = manifest
                .replace(RELEASE, "{{ .Release.Name }}")
                .replace(VALUES, "{{ .Values | toJson | quote }}");
            chart.template(&format!("{index}.yaml"), template)
        })
    }
}

/// A Job that Helm runs as a hook.
#[derive(Clone, Copy, Debug)]
pub struct Hook<'a> {
    pub name: &'a str,
    /// For example `pre-install,pre-upgrade`.
    pub events: &'a str,
    pub weight: i32,
    pub end: HookEnd,
}

/// How a hook's Job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEnd {
    Succeeds,
    Fails,
    Never,
}

impl<'a> Hook<'a> {
    pub fn new(name: &'a str, events: &'a str, end: HookEnd) -> Self {
        Self { name, events, weight: 0, end }
    }

    pub fn weight(mut self, weight: i32) -> Self {
        self.weight = weight;
        self
    }

    fn manifest(&self) -> String {
        let Self { name, events, weight, end } = self;
        // A Pod that cannot be scheduled never ends, and a deadline makes its Job fail.
        let (deadline, selector) = match end {
            HookEnd::Succeeds => ("", ""),
            HookEnd::Fails => ("  activeDeadlineSeconds: 1\n", "      nodeSelector: {no-such: node}\n"),
            HookEnd::Never => ("", "      nodeSelector: {no-such: node}\n"),
        };
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{{{ .Release.Name }}}}-{name}\n  annotations:\n    \
             helm.sh/hook: {events}\n    helm.sh/hook-weight: \"{weight}\"\n\
             spec:\n  backoffLimit: 0\n{deadline}  template:\n    spec:\n{selector}      restartPolicy: Never\n      \
             containers:\n      - name: main\n        image: example.invalid/hook:1\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_package_becomes_a_chart() {
        let package = TestPackage::config().version("2.0.0").default_values(serde_json::json!({"size": 1}));
        let files = Chart::from(&package).files();
        assert_eq!(files["templates/0.yaml"], CONFIG);
        assert_eq!(files["values.yaml"], r#"{"size":1}"#);
        let metadata = &files["Chart.yaml"];
        assert!(metadata.contains("version: 2.0.0\nappVersion: app-2.0.0\n"), "{metadata}");
    }
}
