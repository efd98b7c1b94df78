//! The chart that the sequences install: three ConfigMaps with everything that the model predicts, and two hooks if its
//! values enable them.

use std::{
    collections::BTreeMap,
    fmt, iter,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use chandler_sandbox::{assets::KubernetesVersion, chart};

use crate::{
    action::{ChartVersion, Placement, PlacementKind},
    model::Content,
};

pub const NAME: &str = "chaos";

/// A hook creates an object with the number of the revision in its name, so that an audit log shows which hooks have run.
const FILES: [(&str, &str); 4] = [
    ("Chart.yaml", "apiVersion: v2\nname: chaos\nversion: 0.0.0\n"),
    ("values.yaml", "value: none\nannotation: none\nhooks: false\n"),
    (
        "templates/objects.yaml",
        r"{{- range $index := until 3 }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $.Release.Name }}-{{ $index }}
data:
  value: {{ $.Values.value | quote }}
  version: {{ $.Chart.Version | quote }}
  annotation: {{ $.Values.annotation | quote }}
  kubernetes: {{ $.Capabilities.KubeVersion.Version | quote }}
{{- end }}
",
    ),
    (
        "templates/hooks.yaml",
        r"{{- if .Values.hooks }}
{{- range $when := list `pre` `post` }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $.Release.Name }}-hook-{{ $when }}-{{ $.Release.Revision }}
  annotations:
    helm.sh/hook: {{ $when }}-install,{{ $when }}-upgrade
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
{{- end }}
",
    ),
];

/// A published version of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedVersion {
    /// The only Kubernetes version that it supports. `None` means all.
    pub kubernetes: Option<KubernetesVersion>,
    pub version: ChartVersion,
}

impl PublishedVersion {
    pub fn all() -> impl Iterator<Item = Self> {
        iter::once(None)
            .chain(KubernetesVersion::PREBUILT.map(Some))
            .flat_map(|kubernetes| ChartVersion::ALL.map(|version| Self { kubernetes, version }))
    }

    /// Returns the version that a placement installs on a cluster.
    pub fn installed_by(kind: PlacementKind, version: ChartVersion, kubernetes: KubernetesVersion) -> Self {
        let kubernetes = match kind {
            PlacementKind::HelmChartProxy => None,
            PlacementKind::ExtensionInstance => Some(kubernetes),
        };
        Self { kubernetes, version }
    }

    /// Returns the version that does not depend on the Kubernetes version.
    pub fn independent(version: ChartVersion) -> Self {
        Self { kubernetes: None, version }
    }
}

impl fmt::Display for PublishedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let major = self.kubernetes.map_or(1, KubernetesVersion::minor);
        write!(f, "{major}.{}.0", self.version.minor())
    }
}

/// A hook of the chart. It runs on installations and upgrades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    Pre,
    Post,
}

impl Hook {
    pub const ALL: [Self; 2] = [Self::Pre, Self::Post];

    fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

/// Writes the chart to a folder.
pub fn write(folder: &Path) -> Result<PathBuf> {
    chart::write(folder, &FILES).with_context(|| format!("writing {}", folder.display()))
}

/// Returns the value template of a placement.
pub fn values_template(placement: Placement, value: u32) -> String {
    let hooks = placement.has_hooks();
    format!("value: v{value}\nannotation: {{{{ .Cluster.metadata.annotations.version }}}}\nhooks: {hooks}\n")
}

/// Returns the range of versions of an ExtensionInstance. It contains one version for each Kubernetes version.
pub fn version_range(version: ChartVersion) -> String {
    let versions = KubernetesVersion::PREBUILT
        .map(|kubernetes| PublishedVersion { kubernetes: Some(kubernetes), version }.to_string());
    versions.join(" || ")
}

/// Returns the value of the annotation `version` of a Cluster.
pub fn annotation(annotation: u32) -> String {
    format!("a{annotation}")
}

/// Returns the content of an object of the chart, or `None` if no placement has this content.
pub fn content(data: &BTreeMap<String, String>) -> Option<Content> {
    let number = |key: &str, prefix: &str| data.get(key)?.strip_prefix(prefix)?.parse().ok();
    let version = data.get("version")?;
    Some(Content {
        value: number("value", "v")?,
        version: PublishedVersion::all().find(|known| known.to_string() == *version)?,
        annotation: number("annotation", "a")?,
        kubernetes: data.get("kubernetes")?.parse().ok()?,
    })
}

/// Returns the hook that creates an object with this name, and its revision. `None` means that it is not an object of a hook.
pub fn hook(release: &str, object: &str) -> Option<(Hook, u32)> {
    let (name, revision) = object.strip_prefix(release)?.strip_prefix("-hook-")?.split_once('-')?;
    let hook = Hook::ALL.into_iter().find(|hook| hook.name() == name)?;
    Some((hook, revision.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_an_object_is_read() {
        let data = |value: &str, version: &str| {
            [("value", value), ("version", version), ("annotation", "a3"), ("kubernetes", "v1.35.4")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        };
        let expected = Content {
            value: 7,
            version: PublishedVersion::independent(ChartVersion::Second),
            annotation: 3,
            kubernetes: KubernetesVersion::V1_35,
        };
        assert_eq!(content(&data("v7", "1.1.0")), Some(expected));
        let version =
            PublishedVersion { kubernetes: Some(KubernetesVersion::V1_34), version: ChartVersion::Second };
        assert_eq!(content(&data("v7", "34.1.0")), Some(Content { version, ..expected }));
        assert_eq!(content(&data("manual", "1.1.0")), None);
        assert_eq!(content(&data("v7", "2.0.0")), None);
    }

    #[test]
    fn versions_of_extensions_follow_kubernetes() {
        let all: Vec<String> = PublishedVersion::all().map(|version| version.to_string()).collect();
        assert_eq!(all, ["1.0.0", "1.1.0", "34.0.0", "34.1.0", "35.0.0", "35.1.0"]);
        assert_eq!(version_range(ChartVersion::Second), "34.1.0 || 35.1.0");
        let installed =
            |kind| PublishedVersion::installed_by(kind, ChartVersion::First, KubernetesVersion::V1_35);
        assert_eq!(installed(PlacementKind::HelmChartProxy).to_string(), "1.0.0");
        assert_eq!(installed(PlacementKind::ExtensionInstance).to_string(), "35.0.0");
    }

    #[test]
    fn objects_of_hooks_name_their_revision() {
        assert_eq!(hook("run-1-p1", "run-1-p1-hook-post-12"), Some((Hook::Post, 12)));
        for other in ["run-1-p1-0", "run-1-p1-hook-post", "run-1-p1-hook-test-1", "run-1-p2-hook-pre-1"] {
            assert_eq!(hook("run-1-p1", other), None, "{other}");
        }
    }
}
