//! The Kubernetes that is asked about. Pure.

use std::{fmt, str::FromStr};

use chandler_core::{
    extension::{Kubernetes, Question},
    resolution::parse_kubernetes_version,
};
use semver::Version;

/// A version, or a minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    version: Version,
    /// Any patch of it will do.
    minor: bool,
}

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub from: Version,
    pub to: Version,
    /// What it is called.
    pub name: String,
}

/// A text is neither a Kubernetes version nor a minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it like 1.35 or v1.35.2")]
pub struct NotAVersion;

impl FromStr for Target {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let parts = numbers.split(['-', '+']).next().unwrap_or_default().split('.').count();
        let version = parse_kubernetes_version(text).filter(|_| parts == 2 || parts == 3);
        let version = version.ok_or(NotAVersion)?;
        Ok(Self { version, minor: parts == 2 })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { major, minor, .. } = self.version;
        if self.minor { write!(f, "{major}.{minor}") } else { self.version.fmt(f) }
    }
}

impl Target {
    /// The upgrade that leads there. None: the cluster is there, or beyond.
    pub fn way(&self, from: &Kubernetes) -> Option<Way> {
        let Kubernetes { current: runs, upgrade } = from;
        let is_there = |at: &Version| {
            if self.minor {
                (at.major, at.minor) >= (self.version.major, self.version.minor)
            } else {
                *at >= self.version
            }
        };
        // While workers follow, the upgrade is not over.
        let start = upgrade.as_ref().map_or(runs, |upgrade| &upgrade.from);
        (!is_there(start)).then(|| Way {
            from: if is_there(runs) { start.clone() } else { runs.clone() },
            to: self.version.clone(),
            name: self.to_string(),
        })
    }
}

/// The upgrade that nobody needs to name.
pub fn next(question: &Question) -> Way {
    let (from, to) = question.next_upgrade();
    let announced = question.kubernetes.upgrade.is_some();
    let name = Target { version: to.clone(), minor: !announced }.to_string();
    Way { from, to, name }
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::UpgradeMoment;
    use chandler_core::extension::Upgrade;

    use super::*;

    #[test]
    fn versions_are_written_in_many_ways() {
        for (text, shown) in
            [("1.35", "1.35"), ("v1.35", "1.35"), ("v1.35.2", "1.35.2"), ("1.35.0", "1.35.0")]
        {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
        }
        for text in ["", "1", "next", "1.x", "1.35.2.1", ">=1.35"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_upgrade_leads_from_where_the_cluster_is() {
        let version = |text: &str| parse_kubernetes_version(text).unwrap();
        let calm = |runs: &str| Kubernetes { current: version(runs), upgrade: None };
        let upgrade = Upgrade {
            from: version("1.34.0"),
            to: version("1.35.4"),
            reached: UpgradeMoment::AfterControlPlane,
        };
        let workers_follow = Kubernetes { current: version("1.35.4"), upgrade: Some(upgrade) };
        let rows = [
            ("1.35", calm("1.34.4"), Some(("1.34.4", "1.35.0"))),
            ("1.35.4", calm("1.35.2"), Some(("1.35.2", "1.35.4"))),
            ("1.35", calm("1.35.2"), None),
            ("1.35", calm("1.36.0"), None),
            ("1.35.4", calm("1.35.4"), None),
            ("1.35", workers_follow.clone(), Some(("1.34.0", "1.35.0"))),
            ("1.36", workers_follow, Some(("1.35.4", "1.36.0"))),
        ];
        for (to, from, expected) in rows {
            let way = to.parse::<Target>().unwrap().way(&from).map(|way| (way.from, way.to));
            assert_eq!(way, expected.map(|(from, to)| (version(from), version(to))), "{to} {from:?}");
        }
    }
}
