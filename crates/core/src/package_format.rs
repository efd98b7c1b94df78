//! The format of a package, which selects the package tool.

use std::fmt;

/// A package format, as an OCI artifact type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackageFormat(String);

impl PackageFormat {
    /// The artifact type of Helm charts: the media type of their configuration.
    pub const HELM_CHART: &'static str = "application/vnd.cncf.helm.config.v1+json";
    /// The artifact type of bundles, `manifests/v1` for short: a gzip-compressed tar archive of YAML and JSON files.
    pub const MANIFESTS: &'static str = "application/vnd.chandler.manifests.v1.tar+gzip";

    pub fn new(artifact_type: impl Into<String>) -> Self {
        Self(artifact_type.into())
    }

    /// Returns the format of bundles.
    pub fn manifests() -> Self {
        Self::new(Self::MANIFESTS)
    }

    pub fn is_helm_chart(&self) -> bool {
        self.0 == Self::HELM_CHART
    }

    pub fn is_manifests(&self) -> bool {
        self.0 == Self::MANIFESTS
    }

    /// Returns whether packages of this format are gzip-compressed tar archives, which are validated before they are stored.
    pub fn is_archive(&self) -> bool {
        self.is_helm_chart() || self.is_manifests()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the format that a status stores; a stored `None` stands for a Helm chart.
    pub fn stored(text: Option<&str>) -> Self {
        text.map_or_else(Self::default, Self::new)
    }

    /// Returns what a status stores: `None` for a Helm chart.
    pub fn to_stored(&self) -> Option<String> {
        (!self.is_helm_chart()).then(|| self.0.clone())
    }
}

impl Default for PackageFormat {
    /// Helm chart.
    fn default() -> Self {
        Self::new(Self::HELM_CHART)
    }
}

impl fmt::Display for PackageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_and_bundles_are_archives() {
        let rows = [
            (PackageFormat::default(), true, false, true, None),
            (PackageFormat::manifests(), false, true, true, Some(PackageFormat::MANIFESTS)),
            (PackageFormat::new("text/yaml"), false, false, false, Some("text/yaml")),
        ];
        for (format, chart, manifests, archive, stored) in rows {
            assert_eq!(
                (format.is_helm_chart(), format.is_manifests(), format.is_archive()),
                (chart, manifests, archive)
            );
            assert_eq!(format.to_stored().as_deref(), stored);
            assert_eq!(PackageFormat::stored(stored), format);
        }
    }
}
