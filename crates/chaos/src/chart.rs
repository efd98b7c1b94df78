//! The chart that the sequences install: three ConfigMaps with everything that the model predicts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use chandler_sandbox::chart;

use crate::{action::ChartVersion, model::Content};

pub const NAME: &str = "chaos";

const FILES: [(&str, &str); 3] = [
    ("Chart.yaml", "apiVersion: v2\nname: chaos\nversion: 0.0.0\n"),
    ("values.yaml", "value: none\nannotation: none\n"),
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
{{- end }}
",
    ),
];

/// Writes the chart to a folder.
pub fn write(folder: &Path) -> Result<PathBuf> {
    chart::write(folder, &FILES).with_context(|| format!("writing {}", folder.display()))
}

/// Returns the value template of a placement.
pub fn values_template(value: u32) -> String {
    format!("value: v{value}\nannotation: {{{{ .Cluster.metadata.annotations.version }}}}\n")
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
        version: ChartVersion::ALL.into_iter().find(|known| known.as_str() == version)?,
        annotation: number("annotation", "a")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_an_object_is_read() {
        let data = |value: &str, version: &str| {
            [("value", value), ("version", version), ("annotation", "a3"), ("note", "edited by hand")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        };
        let expected = Content { value: 7, version: ChartVersion::Second, annotation: 3 };
        assert_eq!(content(&data("v7", "1.1.0")), Some(expected));
        assert_eq!(content(&data("manual", "1.1.0")), None);
        assert_eq!(content(&data("v7", "2.0.0")), None);
    }
}
