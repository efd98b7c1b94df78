//! What the files at a path of a Source are: a chart, a kustomization or plain manifests.

use crate::failure::{Category, Failure};

/// The file that makes a folder a chart.
const CHART: &str = "Chart.yaml";
/// The files that make a folder a kustomization, as in kustomize.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
const MANIFEST_EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// What the files at a path are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// A Helm chart, which is packed and installed as one.
    Chart,
    /// A kustomization, whose objects kustomize builds.
    Kustomization,
    /// Objects in YAML and JSON files.
    Manifests,
}

/// Returns what the files are. `paths` are relative to the path of the package, with `/` between folders. Only the files in the
/// top folder make it a chart or a kustomization; manifests may be in any folder below.
pub fn content_of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Content, Failure> {
    let (mut chart, mut kustomizations, mut manifests) = (false, Vec::new(), false);
    for path in paths {
        chart |= path == CHART;
        if KUSTOMIZATIONS.contains(&path) {
            kustomizations.push(path);
        }
        manifests |= is_manifest(path);
    }
    let invalid = |message: String| Failure::new(Category::InvalidPackage, message);
    match kustomizations[..] {
        _ if chart => Ok(Content::Chart),
        [_] => Ok(Content::Kustomization),
        [one, two, ..] => Err(invalid(format!("the folder has both {one} and {two}: delete one of them"))),
        [] if manifests => Ok(Content::Manifests),
        [] => Err(invalid(format!(
            "the folder has neither a {CHART}, nor a {}, nor a file with the extension .yaml, .yml or .json",
            KUSTOMIZATIONS[0]
        ))),
    }
}

/// Returns whether a file contains manifests, by its name. Files and folders that start with a dot are configuration of other
/// programs, for example of CI.
pub fn is_manifest(path: &str) -> bool {
    let hidden = path.split('/').any(|part| part.starts_with('.'));
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    !hidden && extension.is_some_and(|extension| MANIFEST_EXTENSIONS.contains(&extension))
}

/// Returns whether there is anything to build or apply.
pub fn has_content<'a>(paths: impl IntoIterator<Item = &'a str>) -> bool {
    paths.into_iter().any(|path| is_manifest(path) || KUSTOMIZATIONS.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_folder_decides() {
        let rows: [(&[&str], Option<Content>); 14] = [
            (&["Chart.yaml"], Some(Content::Chart)),
            (&["Chart.yaml", "templates/a.yaml", "values.yaml"], Some(Content::Chart)),
            (&["Chart.yaml", "kustomization.yaml"], Some(Content::Chart)),
            (&["kustomization.yaml", "a.yaml"], Some(Content::Kustomization)),
            (&["kustomization.yml"], Some(Content::Kustomization)),
            (&["Kustomization"], Some(Content::Kustomization)),
            (&["a.yaml"], Some(Content::Manifests)),
            (&["deep/folder/a.json"], Some(Content::Manifests)),
            (&["app/Chart.yaml", "app/kustomization.yaml"], Some(Content::Manifests)),
            (&["README.md", "a.yml"], Some(Content::Manifests)),
            (&["kustomization.yaml", "Kustomization"], None),
            (&["README.md"], None),
            (&[".github/workflows/ci.yaml", ".hidden.yaml"], None),
            (&[], None),
        ];
        for (paths, expected) in rows {
            assert_eq!(content_of(paths.iter().copied()).ok(), expected, "{paths:?}");
        }
    }

    #[test]
    fn failures_name_the_files() {
        let message = |paths: &[&str]| {
            let failure = content_of(paths.iter().copied()).unwrap_err();
            assert_eq!(failure.category, Category::InvalidPackage);
            failure.message
        };
        assert!(message(&["README.md"]).contains("neither a Chart.yaml, nor a kustomization.yaml"));
        assert!(
            message(&["kustomization.yaml", "Kustomization"])
                .contains("both kustomization.yaml and Kustomization")
        );
    }
}
