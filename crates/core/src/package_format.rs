//! The format of a package, which selects the package tool.

use std::fmt;

/// A package format, as an OCI artifact type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackageFormat(String);

impl PackageFormat {
    /// The artifact type of Helm charts: the media type of their configuration.
    pub const HELM_CHART: &'static str = "application/vnd.cncf.helm.config.v1+json";

    pub fn new(artifact_type: impl Into<String>) -> Self {
        Self(artifact_type.into())
    }

    pub fn is_helm_chart(&self) -> bool {
        self.0 == Self::HELM_CHART
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
