//! The version of Kubernetes that an upgrade check is about. Pure.

use std::{fmt, str::FromStr};

use chandler_core::{
    extension::{Kubernetes, ResolutionInput},
    resolution::parse_kubernetes_version,
};
use semver::Version;

/// A version of Kubernetes, or a minor version such as `1.35`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetVersion {
    version: Version,
    /// The patch version is not given; any matches.
    minor_only: bool,
}

/// An upgrade from one version of Kubernetes to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePath {
    pub from: Version,
    pub to: Version,
    /// The target version for display, possibly without a patch version.
    pub target: String,
}

/// A text is not a version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a version such as 1.35 or v1.35.2")]
pub struct InvalidVersion;

impl FromStr for TargetVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let parts = numbers.split(['-', '+']).next().unwrap_or_default().split('.').count();
        let version = parse_kubernetes_version(text).filter(|_| parts == 2 || parts == 3);
        let version = version.ok_or(InvalidVersion)?;
        Ok(Self { version, minor_only: parts == 2 })
    }
}

impl fmt::Display for TargetVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { major, minor, .. } = self.version;
        if self.minor_only { write!(f, "{major}.{minor}") } else { self.version.fmt(f) }
    }
}

impl TargetVersion {
    /// Returns the upgrade to this version. Returns `None` if the cluster already runs it or a newer one.
    pub fn path_from(&self, from: &Kubernetes) -> Option<UpgradePath> {
        let Kubernetes { current, upgrade } = from;
        let is_reached = |version: &Version| {
            if self.minor_only {
                (version.major, version.minor) >= (self.version.major, self.version.minor)
            } else {
                *version >= self.version
            }
        };
        // The upgrade is not finished while workers still run the old version.
        let start = upgrade.as_ref().map_or(current, |upgrade| &upgrade.from);
        (!is_reached(start)).then(|| UpgradePath {
            from: if is_reached(current) { start.clone() } else { current.clone() },
            to: self.version.clone(),
            target: self.to_string(),
        })
    }
}

impl UpgradePath {
    /// Returns the pending upgrade of a cluster, or the upgrade to the next minor version if none is pending.
    pub fn next(input: &ResolutionInput) -> Self {
        let (from, to) = input.next_upgrade();
        let pending = input.kubernetes.upgrade.is_some();
        let target = TargetVersion { version: to.clone(), minor_only: !pending }.to_string();
        Self { from, to, target }
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::UpgradeMoment;
    use chandler_core::extension::Upgrade;

    use super::*;

    #[test]
    fn versions_are_parsed() {
        for (text, expected) in
            [("1.35", "1.35"), ("v1.35", "1.35"), ("v1.35.2", "1.35.2"), ("1.35.0", "1.35.0")]
        {
            assert_eq!(text.parse::<TargetVersion>().unwrap().to_string(), expected);
        }
        for text in ["", "1", "next", "1.x", "1.35.2.1", ">=1.35"] {
            assert!(text.parse::<TargetVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_path_starts_at_the_version_of_the_cluster() {
        let version = |text: &str| parse_kubernetes_version(text).unwrap();
        let stable = |current: &str| Kubernetes { current: version(current), upgrade: None };
        let upgrade = Upgrade {
            from: version("1.34.0"),
            to: version("1.35.4"),
            reached: UpgradeMoment::AfterControlPlane,
            next: None,
        };
        let workers_pending = Kubernetes { current: version("1.35.4"), upgrade: Some(upgrade) };
        let rows = [
            ("1.35", stable("1.34.4"), Some(("1.34.4", "1.35.0"))),
            ("1.35.4", stable("1.35.2"), Some(("1.35.2", "1.35.4"))),
            ("1.35", stable("1.35.2"), None),
            ("1.35", stable("1.36.0"), None),
            ("1.35.4", stable("1.35.4"), None),
            ("1.35", workers_pending.clone(), Some(("1.34.0", "1.35.0"))),
            ("1.36", workers_pending, Some(("1.35.4", "1.36.0"))),
        ];
        for (to, from, expected) in rows {
            let path = to.parse::<TargetVersion>().unwrap().path_from(&from).map(|path| (path.from, path.to));
            assert_eq!(path, expected.map(|(from, to)| (version(from), version(to))), "{to} {from:?}");
        }
    }
}
