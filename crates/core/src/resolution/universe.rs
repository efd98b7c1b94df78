//! What there is to choose from, and for whom.

use std::collections::BTreeMap;

use chandler_api::extensions::{KubernetesUpgrade, Lifecycle};
use semver::Version;

use super::{Range, parse_version};

/// Every extension that may be chosen, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Universe {
    pub extensions: BTreeMap<String, Published>,
}

/// An extension and its versions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    pub lifecycle: Lifecycle,
    pub upgrade: KubernetesUpgrade,
    /// In any order.
    pub versions: Vec<Candidate>,
}

/// A version that may be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub name: VersionName,
    pub kubernetes: Option<Range>,
    pub platform: Option<Range>,
    pub dependencies: Vec<Needed>,
    pub channel: Option<String>,
    pub deprecated: bool,
    pub withdrawn: bool,
    /// What makes the version unusable wherever it is, for example a range that cannot be read.
    pub defect: Option<String>,
}

/// An extension that a version needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Needed {
    pub extension: String,
    pub range: Range,
    pub optional: bool,
}

/// A version, as published and as compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionName {
    pub version: Version,
    /// As it was written: packages are fetched by this name.
    pub text: String,
}

impl VersionName {
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self { version: parse_version(text)?, text: text.to_owned() })
    }
}

impl std::fmt::Display for VersionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Candidate {
    /// A version that fits everywhere and needs nothing.
    pub fn new(name: VersionName) -> Self {
        Self {
            name,
            kubernetes: None,
            platform: None,
            dependencies: Vec::new(),
            channel: None,
            deprecated: false,
            withdrawn: false,
            defect: None,
        }
    }
}

/// Somebody wants an extension on the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub extension: String,
    pub range: Range,
    /// None: the stable one.
    pub channel: Option<String>,
    /// Whether what it needs is installed along with it, or has to be wanted as well.
    pub install_dependencies: bool,
}

/// The cluster that versions are chosen for.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Without what vendors append, see [`super::parse_kubernetes_version`].
    pub kubernetes: Version,
    /// None: no version of the platform is known.
    pub platform: Option<Version>,
    /// Extensions that run, by name.
    pub running: BTreeMap<String, VersionName>,
}
