//! What follows from the version and the changelog.

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::{Context as _, Result, ensure};
use semver::Version;

/// The contract of Cluster API that Chandler keeps, in every series so far.
const CONTRACT: &str = "v1beta2";

/// A version as Cargo writes it; a leading `v`, as tags have it, is taken off.
pub fn of_release(text: &str) -> Result<Version> {
    let plain = text.strip_prefix('v').unwrap_or(text);
    Version::parse(plain).with_context(|| format!("{text} is not a version such as 1.2.3"))
}

/// `metadata.yaml` of clusterctl: each minor that was released, or is now, and the contract it keeps.
pub fn metadata(version: &Version, changelog: &str) -> Result<String> {
    let released = released(changelog);
    let section = if version.pre.is_empty() { version.to_string() } else { "Unreleased".to_owned() };
    ensure!(
        titles(changelog).any(|title| title == section),
        "CHANGELOG.md has no section `## {section}`: write down what is new in {version} first"
    );
    let series = released.iter().chain([version]).map(|version| (version.major, version.minor));
    let mut text = "# Made by `cargo xtask dist` from the changelog.\n\
                    apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n"
        .to_owned();
    for (major, minor) in series.collect::<BTreeSet<_>>() {
        writeln!(text, "  - major: {major}\n    minor: {minor}\n    contract: {CONTRACT}")?;
    }
    Ok(text)
}

/// Every version that has a section.
fn released(changelog: &str) -> Vec<Version> {
    titles(changelog).filter_map(|title| Version::parse(title).ok()).collect()
}

/// The first word of each section's title, which a date may follow.
fn titles(changelog: &str) -> impl Iterator<Item = &str> {
    changelog.lines().filter_map(|line| line.strip_prefix("## ")?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by failing")]

    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n## 0.2.1 (2027-01-01)\n\n## 0.1.0\n### Added\n";

    #[test]
    fn a_version_needs_its_section_and_brings_its_series() {
        let rows = [
            ("0.1.0", Some(vec![(0, 1), (0, 2)])),
            ("v0.2.1", Some(vec![(0, 1), (0, 2)])),
            ("1.0.0-dev", Some(vec![(0, 1), (0, 2), (1, 0)])),
            ("0.2.2", None),
        ];
        for (version, expected) in rows {
            let written = metadata(&of_release(version).unwrap(), CHANGELOG);
            let Some(expected) = expected else {
                let refusal = written.unwrap_err().to_string();
                assert!(refusal.contains("no section `## 0.2.2`"), "{refusal}");
                continue;
            };
            let written = written.unwrap();
            assert_eq!(written.matches("contract: v1beta2").count(), expected.len(), "{version}: {written}");
            for (major, minor) in expected {
                assert!(written.contains(&format!("major: {major}\n    minor: {minor}\n")), "{version}");
            }
        }
        assert!(metadata(&of_release("0.1.0-dev").unwrap(), "## 0.1.0").is_err());
        assert!(of_release("latest").is_err());
    }
}
