//! The extension versions that a chart of a catalog publishes without an Extension object.

use std::collections::BTreeMap;

use chandler_api::extensions::Dependency;
use serde::{Deserialize, Serialize};

use crate::resolution::{Candidate, Published, RangeError, Requirement, VersionName, requirement};

/// Prefix of the chart annotations that Chandler reads.
pub const ANNOTATIONS: &str = "chandler.dev/";
/// Chart annotation: the extensions that a version depends on, as a YAML list of `{extension, range, optional}`.
pub const DEPENDENCIES: &str = "chandler.dev/dependencies";
/// Chart annotation: the channel of a version. A version without it is in all channels.
pub const CHANNEL: &str = "chandler.dev/channel";

/// One version of a chart in a catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Entry {
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// The chart's `kubeVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_version: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Annotations with the prefix [`ANNOTATIONS`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Set if the catalog is a folder of a Source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<EntryFolder>,
}

/// A chart that is a folder of a Source, as the catalog has read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryFolder {
    /// Relative to the root of the Source. Empty for the root.
    pub path: String,
    pub revision: String,
    /// `sha256:…` of the package that was made of the folder.
    pub digest: String,
}

/// Returns the versions that the entries of one chart publish.
///
/// A version with an invalid annotation or `kubeVersion` is included with its defect, so that conflicts can name it.
pub fn published_entries(entries: &[Entry]) -> Published {
    Published { versions: entries.iter().filter_map(candidate).collect(), ..Published::default() }
}

fn candidate(entry: &Entry) -> Option<Candidate> {
    let mut candidate = Candidate::new(VersionName::parse(&entry.version)?);
    candidate.deprecated = entry.deprecated;
    candidate.channel = annotation(entry, CHANNEL).map(str::to_owned);
    let kubernetes = entry.kube_version.as_deref().map(str::parse).transpose();
    match kubernetes {
        Ok(kubernetes) => candidate.kubernetes = kubernetes,
        Err(error) => candidate.defect = Some(format!("its kubeVersion is invalid: {error}")),
    }
    match dependencies(entry) {
        Ok(dependencies) => candidate.dependencies = dependencies,
        Err(error) => candidate.defect = Some(format!("its annotation {DEPENDENCIES} is invalid: {error}")),
    }
    Some(candidate)
}

/// An error in the dependencies annotation of a chart.
#[derive(Debug, thiserror::Error)]
enum DependenciesError {
    #[error("it is not a list of {{extension, range, optional}}: {0}")]
    NotAList(String),
    #[error(transparent)]
    Range(#[from] RangeError),
}

fn dependencies(entry: &Entry) -> Result<Vec<Requirement>, DependenciesError> {
    let Some(text) = annotation(entry, DEPENDENCIES) else { return Ok(Vec::new()) };
    let listed: Vec<Dependency> = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.to_string();
        DependenciesError::NotAList(error.lines().next().unwrap_or_default().to_owned())
    })?;
    Ok(listed.iter().map(requirement).collect::<Result<_, _>>()?)
}

fn annotation<'a>(entry: &'a Entry, key: &str) -> Option<&'a str> {
    entry.annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use semver::Version;
    use serde_json::json;

    use super::*;
    use crate::resolution::{Cluster, Universe, VersionRequest, resolve};

    fn entries(rows: serde_json::Value) -> Vec<Entry> {
        serde_json::from_value(rows).unwrap()
    }

    #[test]
    fn annotations_and_kube_version_are_read() {
        let needs = "- extension: cert-manager\n  range: ^1.14\n- {extension: metrics, optional: true}\n";
        let read = published_entries(&entries(json!([
            {"version": "2.0.0", "kubeVersion": ">= 1.30.0-0", "annotations": {
                DEPENDENCIES: needs, CHANNEL: " edge\n",
            }},
            {"version": "1.0.0", "deprecated": true, "annotations": {DEPENDENCIES: "", CHANNEL: ""}},
            {"version": "1.24.3", "annotations": {CHANNEL: "1.24"}},
            {"version": "nightly"},
        ])));
        assert_eq!(read.versions.len(), 3, "an invalid version is left out");
        let [new, old, line] = &*read.versions else { unreachable!() };
        assert!(new.kubernetes.as_ref().unwrap().contains(&Version::new(1, 34, 2)));
        assert!(!new.kubernetes.as_ref().unwrap().contains(&Version::new(1, 29, 9)));
        let needed: Vec<_> = new
            .dependencies
            .iter()
            .map(|one| (&*one.extension, one.range.to_string(), one.optional))
            .collect();
        assert_eq!(needed[0], ("cert-manager", "^1.14".to_owned(), false));
        assert_eq!((needed[1].0, needed[1].2), ("metrics", true));
        assert_eq!((new.channel.as_deref(), new.deprecated, &new.defect), (Some("edge"), false, &None));
        assert_eq!((old.channel.as_deref(), old.deprecated, &old.defect), (None, true, &None));
        assert!(old.kubernetes.is_none() && old.dependencies.is_empty());
        assert_eq!((line.channel.as_deref(), &line.kubernetes), (Some("1.24"), &None), "a product line");
    }

    #[test]
    fn invalid_metadata_is_reported_as_a_defect() {
        let rows = [
            (json!({"version": "1.0.0", "kubeVersion": "soon"}), "its kubeVersion is invalid"),
            (
                json!({"version": "1.0.0", "annotations": {DEPENDENCIES: "cert-manager"}}),
                "its annotation chandler.dev/dependencies is invalid: it is not a list of",
            ),
            (json!({"version": "1.0.0", "annotations": {DEPENDENCIES: "[{range: 1.x}]"}}), "extension"),
            (
                json!({"version": "1.0.0", "annotations": {DEPENDENCIES: "[{extension: a, range: soon}]"}}),
                "unexpected `soon`",
            ),
            (json!({"version": "1.0.0", "annotations": {DEPENDENCIES: "a: &a [*a]"}}), "it is not a list of"),
        ];
        for (row, hint) in rows {
            let read = published_entries(&entries(json!([row])));
            let defect = read.versions[0].defect.as_ref().unwrap();
            assert!(defect.contains(hint) && !defect.contains('\n'), "{defect}");
        }
    }

    #[test]
    fn versions_of_catalogs_resolve_like_those_of_extensions() {
        let chart = |rows| published_entries(&entries(rows));
        let universe = Universe {
            extensions: [
                (
                    "web".to_owned(),
                    chart(json!([
                        {"version": "2.0.0", "kubeVersion": ">=1.35.0-0"},
                        {"version": "1.1.0", "kubeVersion": ">=1.30.0-0", "annotations": {
                            DEPENDENCIES: "[{extension: certs, range: 1.x}]",
                        }},
                    ])),
                ),
                ("certs".to_owned(), chart(json!([{"version": "2.0.0"}, {"version": "1.5.0"}]))),
            ]
            .into(),
        };
        let request = VersionRequest {
            extension: "web".to_owned(),
            range: crate::resolution::Range::any(),
            channel: None,
            install_dependencies: true,
        };
        let cluster =
            Cluster { kubernetes: Version::new(1, 34, 0), platform: None, running: BTreeMap::new() };
        let resolved = resolve(&universe, &[request], &cluster).unwrap();
        let chosen: Vec<_> =
            resolved.choices.iter().map(|choice| (&*choice.extension, &*choice.version.text)).collect();
        assert_eq!(chosen, [("certs", "1.5.0"), ("web", "1.1.0")]);
    }
}
