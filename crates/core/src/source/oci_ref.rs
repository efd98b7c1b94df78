//! Selects the artifact of an OCI repository that a Source asks for.

use chandler_api::extensions::{OciArtifact, OciReference};

use super::git_ref::shown;
use crate::{
    failure::{Category, Failure},
    resolution::Range,
    version,
};

/// The tag of a Source without `spec.oci.ref`.
const DEFAULT_TAG: &str = "latest";

/// How the artifact of a Source is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactSelector<'a> {
    /// A digest. The content never changes.
    Digest(&'a str),
    Tag(&'a str),
    /// A range of versions, for which the tags have to be listed.
    Range(&'a str),
}

impl<'a> ArtifactSelector<'a> {
    pub fn of(oci: &'a OciArtifact) -> Self {
        match oci.reference.as_ref() {
            Some(OciReference { digest: Some(digest), .. }) => Self::Digest(digest),
            Some(OciReference { tag: Some(tag), .. }) => Self::Tag(tag),
            Some(OciReference { semver: Some(range), .. }) => Self::Range(range),
            _ => Self::Tag(DEFAULT_TAG),
        }
    }
}

/// Returns the tag with the newest version in a range. Tags cannot contain a plus sign, so an underscore stands for it.
pub fn select_tag<'a>(oci: &OciArtifact, range: &str, tags: &'a [String]) -> Result<&'a str, Failure> {
    range.parse::<Range>().map_err(|error| {
        Failure::new(Category::InvalidSpec, format!("spec.oci.ref.semver is invalid: {error}"))
    })?;
    let versions: Vec<_> = tags.iter().map(|tag| tag.replace('_', "+")).collect();
    let chosen = version::choose(Some(range), versions.iter().map(String::as_str));
    let position = chosen.and_then(|chosen| versions.iter().position(|version| version == chosen));
    position.map(|position| tags[position].as_str()).ok_or_else(|| {
        let (url, others) = (&oci.url, shown(tags.iter().map(String::as_str)));
        let why =
            format!("{url} has no tag with a version in {range}; it has {others}; check spec.oci.ref.semver");
        Failure::new(Category::PackageNotFound, why)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn oci(reference: &Value) -> OciArtifact {
        serde_json::from_value(json!({"url": "oci://registry.example/fleet", "ref": reference})).unwrap()
    }

    #[test]
    fn the_reference_selects_an_artifact() {
        let rows = [
            (json!(null), ArtifactSelector::Tag("latest")),
            (json!({"tag": "main"}), ArtifactSelector::Tag("main")),
            (json!({"semver": "1.x"}), ArtifactSelector::Range("1.x")),
            (json!({"digest": "sha256:00"}), ArtifactSelector::Digest("sha256:00")),
        ];
        for (reference, expected) in rows {
            assert_eq!(ArtifactSelector::of(&oci(&reference)), expected, "{reference}");
        }
    }

    #[test]
    fn the_newest_version_in_the_range_is_selected() {
        let tags = ["v1.2.0", "1.10.0_build.3", "2.0.0-rc.1", "latest"].map(str::to_owned);
        let oci = oci(&json!(null));
        assert_eq!(select_tag(&oci, "1.x", &tags).unwrap(), "1.10.0_build.3");
        assert_eq!(select_tag(&oci, "~1.2", &tags).unwrap(), "v1.2.0");
        let missing = select_tag(&oci, "3.x", &tags).unwrap_err();
        assert_eq!(missing.category, Category::PackageNotFound);
        assert!(missing.message.contains("no tag with a version in 3.x; it has v1.2.0, "), "{missing}");
        assert_eq!(select_tag(&oci, "newest", &tags).unwrap_err().category, Category::InvalidSpec);
    }
}
