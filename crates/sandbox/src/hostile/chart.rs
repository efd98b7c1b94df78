//! Charts that use all memory or all CPU time.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::chart;

/// The chart whose value `attack` decides what it does: `memory`, `cpu`, `hook`, or nothing.
pub const BALLOON: &str = "balloon";
/// The chart whose schema takes exponential time.
pub const SCHEMA_BOMB: &str = "schema-bomb";

/// Doubles a text 40 times, counts to a trillion, or has a hook that does not end, unless it is only a ConfigMap.
const BALLOON_TEMPLATE: &str = r#"
{{- if eq .Values.attack "memory" }}
{{- $text := "0123456789abcdef" }}
{{- range until 40 }}{{ $text = print $text $text }}{{ end }}
{{- else if eq .Values.attack "cpu" }}
{{- range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}
{{- else if eq .Values.attack "hook" }}
apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}, annotations: {"helm.sh/hook": pre-install}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: hook, image: none}]}}}
---
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
"#;

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n";

/// How often the definitions of [`doubling_schema`] double.
const DOUBLINGS: usize = 40;

/// Writes the chart [`BALLOON`] to a folder.
pub fn write_balloon(folder: &Path) -> io::Result<PathBuf> {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: balloon\nversion: 1.0.0\n"),
        ("values.yaml", "attack: none\n"),
        ("templates/all.yaml", BALLOON_TEMPLATE),
    ];
    chart::write(folder, &files)
}

/// Writes the chart [`SCHEMA_BOMB`] to a folder.
pub fn write_schema_bomb(folder: &Path) -> io::Result<PathBuf> {
    let schema = doubling_schema().to_string();
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: schema-bomb\nversion: 1.0.0\n"),
        ("values.yaml", "a: 1\n"),
        ("values.schema.json", schema.as_str()),
        ("templates/all.yaml", CONFIG_MAP),
    ];
    chart::write(folder, &files)
}

/// Returns a JSON schema with definitions that each refer twice to the next one. A program that follows all references never
/// ends.
pub fn doubling_schema() -> Value {
    let definitions: serde_json::Map<_, _> = (0..DOUBLINGS)
        .map(|number| {
            let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
            (format!("d{number}"), json!({"allOf": [next, next]}))
        })
        .chain([(format!("d{DOUBLINGS}"), json!({"type": "object"}))])
        .collect();
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_of_the_schema_exists() {
        let schema = doubling_schema();
        let definitions = schema["$defs"].as_object().unwrap();
        assert_eq!(definitions.len(), DOUBLINGS + 1);
        for definition in definitions.values() {
            for reference in definition["allOf"].as_array().into_iter().flatten() {
                let name = reference["$ref"].as_str().unwrap().trim_start_matches("#/$defs/");
                assert!(definitions.contains_key(name), "{name}");
            }
        }
    }
}
