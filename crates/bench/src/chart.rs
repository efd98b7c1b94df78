//! The chart that is installed on the fleet. It has four objects and does not change, so that results stay comparable.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chandler_sandbox::chart;

pub const NAME: &str = "bench";

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

/// Writes the chart to a folder.
pub fn write(folder: &Path) -> Result<PathBuf> {
    chart::write(folder, &FILES).with_context(|| format!("writing {}", folder.display()))
}
