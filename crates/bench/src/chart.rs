//! The charts that are installed. They do not change, so that results stay comparable.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chandler_sandbox::chart;

/// The chart of the fleet, with four objects.
pub const NAME: &str = "bench";
/// The chart of the placement benchmark, with [`LARGE_OBJECTS`] objects.
pub const LARGE_NAME: &str = "bench-large";
pub const LARGE_OBJECTS: u32 = 50;

const FILES: [(&str, &str); 6] = [
    ("Chart.yaml", "apiVersion: v2\nname: bench\nversion: 0.0.0\n"),
    ("values.yaml", "greeting: none\ncluster: none\n"),
    (
        "templates/configmap.yaml",
        r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  greeting: {{ printf "%s from %s" .Values.greeting .Values.cluster | quote }}
  chart: {{ .Chart.Version | quote }}
"#,
    ),
    (
        "templates/deployment.yaml",
        r"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  selector:
    matchLabels:
      app: {{ .Release.Name }}
  template:
    metadata:
      labels:
        app: {{ .Release.Name }}
    spec:
      serviceAccountName: {{ .Release.Name }}
      containers:
        - name: bench
          image: pause:3.10
          envFrom:
            - configMapRef:
                name: {{ .Release.Name }}
",
    ),
    (
        "templates/service.yaml",
        r"apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
spec:
  selector:
    app: {{ .Release.Name }}
  ports:
    - port: 80
",
    ),
    (
        "templates/serviceaccount.yaml",
        r"apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
",
    ),
];

/// The values set none of the objects, so that all clusters have the same release.
const LARGE_FILES: [(&str, &str); 3] = [
    ("Chart.yaml", "apiVersion: v2\nname: bench-large\nversion: 0.0.0\n"),
    ("values.yaml", "greeting: none\n"),
    (
        "templates/configmaps.yaml",
        r"{{- range $index := until 50 }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $.Release.Name }}-{{ $index }}
data:
  greeting: {{ $.Values.greeting | quote }}
{{- end }}
",
    ),
];

/// Writes the chart of the placement benchmark to a folder.
pub fn write_large(folder: &Path) -> Result<PathBuf> {
    chart::write(folder, &LARGE_FILES).with_context(|| format!("writing {}", folder.display()))
}

/// Returns the file `values.yaml` of the chart of the fleet with another greeting.
pub fn values(greeting: &str) -> String {
    format!("greeting: {greeting}\ncluster: none\n")
}

/// Writes the chart of the fleet to a folder.
pub fn write(folder: &Path) -> Result<PathBuf> {
    chart::write(folder, &FILES).with_context(|| format!("writing {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_with_a_greeting_are_those_of_the_chart() {
        assert!(FILES.iter().any(|(name, text)| *name == "values.yaml" && *text == values("none")));
    }

    #[test]
    fn the_large_chart_has_the_stated_number_of_objects() {
        let range = format!("until {LARGE_OBJECTS} ");
        assert!(LARGE_FILES.iter().any(|(_, text)| text.contains(&range)));
    }
}
