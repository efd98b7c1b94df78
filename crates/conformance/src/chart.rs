//! Charts made for a case, file by file.

use std::collections::BTreeMap;

/// A ConfigMap that shows what values it got.
pub const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  values: {{ .Values | toJson | quote }}
";

/// A Deployment that becomes ready, unless a value sends it to a node that does not exist.
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
      {{- if .Values.stuck }}
      nodeSelector: {no-such: node}
      {{- end }}
      containers:
      - name: main
        image: example.invalid/main:1
";

/// A chart in the making.
#[derive(Clone, Debug)]
pub struct Chart {
    name: &'static str,
    version: &'static str,
    metadata: String,
    files: BTreeMap<String, String>,
}

impl Chart {
    pub fn new(name: &'static str) -> Self {
        Self { name, version: "1.0.0", metadata: String::new(), files: BTreeMap::new() }
    }

    /// The chart most cases are content with.
    pub fn config() -> Self {
        Self::new("config").template("config.yaml", CONFIG)
    }

    pub fn deployment() -> Self {
        Self::new("deployment").template("deployment.yaml", DEPLOYMENT)
    }

    pub fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// Further lines of its Chart.yaml.
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

    /// A hook Job. `rest` are lines of its Pod's spec or its own.
    pub fn hook(self, hook: &Hook<'_>) -> Self {
        let name = hook.name;
        self.template(&format!("{name}.yaml"), hook.manifest())
    }

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

/// A Job that runs at some moment of a release's life.
#[derive(Clone, Copy, Debug)]
pub struct Hook<'a> {
    pub name: &'a str,
    /// Such as `pre-install,pre-upgrade`.
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
        // A Pod that no node takes never ends, and a deadline makes its Job fail.
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
