//! The input of a resolution: published extensions, requests and the cluster.

use std::collections::BTreeMap;

use chandler_api::extensions::{KubernetesUpgrade, Lifecycle};
use semver::Version;

use super::{Range, parse_version};
use crate::failure::Failure;

/// All extensions that can be chosen, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Universe {
    pub extensions: BTreeMap<String, Published>,
}

/// A published extension and its versions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    pub lifecycle: Lifecycle,
    pub upgrade: KubernetesUpgrade,
    /// In any order.
    pub versions: Vec<Candidate>,
    /// Whether sources of the Extension cannot be read: versions may be missing, and those that are known may not be compatible.
    pub is_unread: bool,
}

impl Published {
    /// Marks versions that their sources do not offer, with the failures by published version.
    #[must_use]
    pub fn without(mut self, refused: &BTreeMap<String, Failure>) -> Self {
        for version in &mut self.versions {
            version.not_offered = refused.get(&version.name.text).map(ToString::to_string);
        }
        self
    }
}

/// A version of an extension.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub name: VersionName,
    pub kubernetes: Option<Range>,
    pub platform: Option<Range>,
    pub dependencies: Vec<Requirement>,
    pub channel: Option<String>,
    pub deprecated: bool,
    pub withdrawn: bool,
    /// Why the version cannot be used on any cluster, for example because of an invalid range.
    pub defect: Option<String>,
    /// Why the source of the version does not offer it. It stays where it runs, and is not chosen elsewhere.
    pub not_offered: Option<String>,
}

/// A dependency of a version on another extension.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    pub extension: String,
    pub range: Range,
    pub optional: bool,
}

/// A version and its published spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionName {
    pub version: Version,
    /// The version as published. Packages are fetched by this name.
    pub text: String,
}

impl VersionName {
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self { version: parse_version(text)?, text: text.to_owned() })
    }

    /// Returns whether this version is older than another one.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.version.cmp_precedence(&other.version).is_lt()
    }

    /// Returns the text for a move from `running` to this version. It names this version as the older one if it is, because a move
    /// is not expected to go back.
    pub(crate) fn as_target(&self, running: Option<&Self>) -> String {
        let is_older = running.is_some_and(|running| self.is_older_than(running));
        if is_older { format!("the older version {self}") } else { self.to_string() }
    }
}

impl std::fmt::Display for VersionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Candidate {
    /// Returns whether it can be chosen on some cluster.
    pub fn is_usable(&self) -> bool {
        !self.withdrawn && self.defect.is_none() && self.not_offered.is_none()
    }

    /// Creates a version without constraints and dependencies.
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
            not_offered: None,
        }
    }
}

/// A request for an extension on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRequest {
    pub extension: String,
    pub range: Range,
    /// `None` means the stable channel.
    pub channel: Option<String>,
    /// Whether dependencies are installed automatically. If not, they have to be requested too.
    pub install_dependencies: bool,
}

/// The cluster that versions are chosen for.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Without vendor suffixes, see [`super::parse_kubernetes_version`].
    pub kubernetes: Version,
    /// `None` means that the version of the platform is unknown.
    pub platform: Option<Version>,
    /// The running version of each extension, by name.
    pub running: BTreeMap<String, VersionName>,
}
