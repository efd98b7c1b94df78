//! Converts Extension objects to candidates.

use chandler_api::extensions::{Dependency, ExtensionSpec, ExtensionVersion};

use super::{
    Range, RangeError,
    universe::{Candidate, Published, Requirement, VersionName},
};

/// Returns the versions that an Extension publishes.
///
/// `package_range` returns the Kubernetes range in the package of a version, and `tags` are those of the repository
/// that the Extension follows. A version with an invalid range is included with its defect, so that conflicts can name
/// it.
pub fn published<'a>(
    extension: &ExtensionSpec,
    package_range: impl Fn(&ExtensionVersion) -> Option<String>,
    tags: impl IntoIterator<Item = &'a str>,
) -> Published {
    let listed =
        extension.versions.iter().filter_map(|version| candidate(version, package_range(version).as_deref()));
    let followed = tags.into_iter().filter_map(followed);
    Published {
        lifecycle: extension.lifecycle,
        upgrade: extension.kubernetes_upgrade,
        versions: listed.chain(followed).collect(),
        is_unread: false,
    }
}

/// Returns what is known of an Extension whose sources cannot be read.
pub fn unread(extension: &ExtensionSpec) -> Published {
    Published { is_unread: true, ..published(extension, |_| None, []) }
}

/// Returns the version of a tag that follows Kubernetes: `v1.34` or `1.34.7` is compatible with Kubernetes 1.34 only.
pub fn followed(tag: &str) -> Option<Candidate> {
    let name = VersionName::parse(tag)?;
    let kubernetes = format!("~{}.{}.0", name.version.major, name.version.minor).parse().ok()?;
    Some(Candidate { kubernetes: Some(kubernetes), ..Candidate::new(name) })
}

fn candidate(version: &ExtensionVersion, package_range: Option<&str>) -> Option<Candidate> {
    let name = VersionName::parse(&version.version)?;
    let ranges = ranges(version, package_range);
    let (kubernetes, platform, dependencies, defect) = match ranges {
        Ok((kubernetes, platform, dependencies)) => (kubernetes, platform, dependencies, None),
        Err(error) => (None, None, Vec::new(), Some(error.to_string())),
    };
    Some(Candidate {
        name,
        kubernetes,
        platform,
        dependencies,
        channel: version.channel.clone(),
        deprecated: version.deprecated,
        withdrawn: version.withdrawn,
        defect,
        not_offered: None,
    })
}

type Ranges = (Option<Range>, Option<Range>, Vec<Requirement>);

fn ranges(version: &ExtensionVersion, package_range: Option<&str>) -> Result<Ranges, RangeError> {
    let kubernetes = version.kubernetes.as_deref().or(package_range).map(str::parse).transpose()?;
    let platform = version.platform.as_deref().map(str::parse).transpose()?;
    let dependencies = version.dependencies.iter().map(requirement).collect::<Result<_, _>>()?;
    Ok((kubernetes, platform, dependencies))
}

pub(crate) fn requirement(dependency: &Dependency) -> Result<Requirement, RangeError> {
    Ok(Requirement {
        extension: dependency.extension.clone(),
        range: dependency.range.as_deref().map_or(Ok(Range::any()), str::parse)?,
        optional: dependency.optional,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_converted_with_their_ranges() {
        let source = json!({"repository": "https://charts.example", "chart": "hello"});
        let spec: ExtensionSpec = serde_json::from_value(json!({
            "followKubernetes": {"repository": "https://charts.example", "chart": "hello"},
            "versions": [
                {"version": "1.0.0", "source": source, "kubernetes": "<1.31", "dependencies": [{"extension": "other"}]},
                {"version": "1.1.0", "source": source, "platform": "2.x", "withdrawn": true, "channel": "edge"},
                {"version": "1.2.0", "source": source, "kubernetes": "soon"},
                {"version": "1.3.0", "source": source, "channel": "1.35"},
                {"version": "1.4.0", "source": source, "channel": "1.35", "kubernetes": ">=1.33"},
            ],
        }))
        .unwrap();
        let read = published(&spec, |_| Some(">=1.20".to_owned()), ["v1.34", "latest"]);
        let kubernetes: Vec<_> = read
            .versions
            .iter()
            .map(|version| version.kubernetes.as_ref().map(ToString::to_string))
            .collect();
        let expected = [Some("<1.31"), Some(">=1.20"), None, Some(">=1.20"), Some(">=1.33"), Some("~1.34.0")];
        assert_eq!(kubernetes, expected.map(|range| range.map(ToOwned::to_owned)));
        assert_eq!(read.versions[0].dependencies[0].range, Range::any());
        assert!(read.versions[1].withdrawn && read.versions[1].platform.is_some());
        assert!(read.versions[2].defect.as_ref().unwrap().contains("unexpected `soon`"));
        assert_eq!(read.versions[5].name.text, "v1.34");
    }

    #[test]
    fn tags_are_compatible_with_one_minor_version() {
        for (tag, compatible) in [("v1.34", true), ("1.34.7", true), ("v1.33", false), ("1.35.0", false)] {
            let range = followed(tag).unwrap().kubernetes.unwrap();
            assert_eq!(range.contains(&semver::Version::new(1, 34, 2)), compatible, "{tag}");
        }
        assert_eq!(followed("nightly"), None);
    }
}
