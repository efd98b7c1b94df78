//! The versions of a chart that a HelmChartProxy names for Kubernetes versions, and what a Kubernetes upgrade waits for
//! because of them.

use std::{collections::BTreeMap, fmt};

use chandler_api::extensions::{
    KUBERNETES_UPGRADE_ANNOTATION, KUBERNETES_VERSIONS_ANNOTATION, UpgradeMoment,
};
use semver::Version;

use crate::extension::{Kubernetes, next_step};

/// A minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor {
    major: u64,
    minor: u64,
}

impl Minor {
    fn of(version: &Version) -> Self {
        Self { major: version.major, minor: version.minor }
    }

    /// Parses for example `1.34`.
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        let number =
            |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The versions of a package by Kubernetes version, and when a cluster moves from one to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesVersions {
    by_minor: BTreeMap<Minor, String>,
    /// The version for all other Kubernetes versions.
    default: Option<String>,
    when: UpgradeMoment,
}

/// Why the annotations of a placement are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubernetesVersionsError {
    #[error(
        "annotation {KUBERNETES_VERSIONS_ANNOTATION} is not a JSON object such as \
         {{\"1.34\": \"1.2.x\", \"1.35\": \"1.3.x\"}}: {0}"
    )]
    NotAnObject(String),
    #[error(
        "annotation {KUBERNETES_VERSIONS_ANNOTATION}: `{0}` is not a Kubernetes minor version such as 1.34"
    )]
    Minor(String),
    #[error("annotation {KUBERNETES_VERSIONS_ANNOTATION}: the version for Kubernetes {0} is empty")]
    Empty(String),
    #[error(
        "annotation {KUBERNETES_UPGRADE_ANNOTATION}: `{0}` is none of BeforeControlPlane, AfterControlPlane and \
         AfterCluster"
    )]
    Moment(String),
}

/// There is no version for a Kubernetes version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {KUBERNETES_VERSIONS_ANNOTATION} names no version for Kubernetes {0}, and spec.version is not set"
)]
pub struct NoVersion(Minor);

impl KubernetesVersions {
    /// Reads the annotations of a placement. `default` is the version in its spec, which may be empty. Returns `None` if its
    /// version does not depend on Kubernetes.
    pub fn parse(
        annotations: &BTreeMap<String, String>,
        default: &str,
    ) -> Option<Result<Self, KubernetesVersionsError>> {
        let versions = annotations.get(KUBERNETES_VERSIONS_ANNOTATION)?;
        let when = annotations.get(KUBERNETES_UPGRADE_ANNOTATION).map(String::as_str);
        Some(Self::parse_texts(versions, when, default))
    }

    fn parse_texts(
        versions: &str,
        when: Option<&str>,
        default: &str,
    ) -> Result<Self, KubernetesVersionsError> {
        let entries: BTreeMap<String, String> = serde_json::from_str(versions)
            .map_err(|error| KubernetesVersionsError::NotAnObject(error.to_string()))?;
        let mut by_minor = BTreeMap::new();
        for (minor, version) in entries {
            let Some(parsed) = Minor::parse(&minor) else {
                return Err(KubernetesVersionsError::Minor(minor));
            };
            if version.trim().is_empty() {
                return Err(KubernetesVersionsError::Empty(minor));
            }
            by_minor.insert(parsed, version);
        }
        let when = match when {
            None => UpgradeMoment::default(),
            Some("BeforeControlPlane") => UpgradeMoment::BeforeControlPlane,
            Some("AfterControlPlane") => UpgradeMoment::AfterControlPlane,
            Some("AfterCluster") => UpgradeMoment::AfterCluster,
            Some(other) => return Err(KubernetesVersionsError::Moment(other.to_owned())),
        };
        Ok(Self { by_minor, default: Some(default.to_owned()).filter(|text| !text.is_empty()), when })
    }

    /// Returns the version for a Kubernetes version.
    fn at(&self, kubernetes: &Version) -> Result<&str, NoVersion> {
        let minor = Minor::of(kubernetes);
        let version = self.by_minor.get(&minor).or(self.default.as_ref());
        version.map(String::as_str).ok_or(NoVersion(minor))
    }

    /// Returns the version that a cluster should have now. `existing` is the one that its release object requests.
    ///
    /// After the control plane, until the moment of the move, the existing version is kept: it is not known for certain which
    /// version the workers have, and a rollout of workers need not be an upgrade.
    pub fn version<'a>(
        &'a self,
        kubernetes: &Kubernetes,
        existing: Option<&'a str>,
    ) -> Result<&'a str, NoVersion> {
        match &kubernetes.upgrade {
            Some(upgrade) if self.when <= upgrade.reached => self.at(&upgrade.to),
            Some(upgrade) if upgrade.reached > UpgradeMoment::BeforeControlPlane => {
                existing.map_or_else(|| self.at(&kubernetes.current), Ok)
            }
            _ => self.at(&kubernetes.current),
        }
    }
}

/// An add-on of a cluster whose version follows the Kubernetes version of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesFollower {
    /// The name of its placement.
    pub name: String,
    pub versions: Result<KubernetesVersions, KubernetesVersionsError>,
    /// The version that its release object requests. `None` means that there is no release object.
    pub requested: Option<String>,
    /// Whether the release is deployed as requested.
    pub deployed: bool,
}

/// What followers answer before a step of a Kubernetes upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeAnswer {
    Proceed,
    /// These have to move first.
    Wait(String),
    /// These have no version.
    Block(String),
}

impl KubernetesFollower {
    /// Returns why this add-on blocks an upgrade, minor version by minor version.
    pub fn blocks(&self, from: &Version, to: &Version) -> Option<String> {
        let versions = match &self.versions {
            Ok(versions) => versions,
            Err(error) => return Some(format!("{} blocks: {error}", self.name)),
        };
        let mut step = from.clone();
        while step < *to {
            step = next_step(&step, to);
            if let Err(error) = versions.at(&step) {
                return Some(format!("{} blocks: {error}", self.name));
            }
        }
        None
    }

    /// Returns how this add-on moves during the first step of an upgrade.
    pub fn moves(&self, from: &Version, to: &Version) -> Option<String> {
        let versions = self.versions.as_ref().ok()?;
        let (old, new) = (versions.at(from).ok()?, versions.at(&next_step(from, to)).ok()?);
        let when = match versions.when {
            UpgradeMoment::BeforeControlPlane => "before the control plane",
            UpgradeMoment::AfterControlPlane => "after the control plane",
            UpgradeMoment::AfterCluster => "after the cluster",
        };
        (old != new).then(|| format!("{} {old} moves to {new} {when}", self.name))
    }

    /// Returns whether this add-on has other versions for these Kubernetes versions.
    fn changes(&self, from: &Version, to: &Version) -> bool {
        self.versions.as_ref().is_ok_and(|versions| versions.at(from).ok() != versions.at(to).ok())
    }

    /// Returns the version to which this add-on has to move at a moment, unless it is deployed with it.
    fn pending(&self, at: &Version, when: UpgradeMoment) -> Option<String> {
        let versions = self.versions.as_ref().ok().filter(|versions| versions.when == when)?;
        let version = versions.at(at).ok()?;
        let is_done = self.deployed && self.requested.as_deref() == Some(version);
        (!is_done).then(|| format!("{} to {version}", self.name))
    }
}

/// Answers before Kubernetes is upgraded, or before the next step of an upgrade.
pub fn before_upgrade(followers: &[KubernetesFollower], from: &Version, to: &Version) -> UpgradeAnswer {
    let blocks: Vec<_> = followers.iter().filter_map(|follower| follower.blocks(from, to)).collect();
    if !blocks.is_empty() {
        return UpgradeAnswer::Block(blocks.join("; "));
    }
    let step = next_step(from, to);
    let moving = followers.iter().filter(|follower| follower.changes(from, &step));
    wait_for(moving.filter_map(|one| one.pending(&step, UpgradeMoment::BeforeControlPlane)))
}

/// Answers after the control plane was upgraded to a version, before the workers.
pub fn after_control_plane(followers: &[KubernetesFollower], version: &Version) -> UpgradeAnswer {
    let before = Version::new(version.major, version.minor.saturating_sub(1), 0);
    let moving = followers.iter().filter(|follower| follower.changes(&before, version));
    wait_for(moving.filter_map(|one| one.pending(version, UpgradeMoment::AfterControlPlane)))
}

fn wait_for(pending: impl Iterator<Item = String>) -> UpgradeAnswer {
    let pending: Vec<_> = pending.collect();
    if pending.is_empty() {
        UpgradeAnswer::Proceed
    } else {
        UpgradeAnswer::Wait(format!("moving {} first", pending.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::Upgrade;

    const BOTH: &str = r#"{"1.34": "1.2.x", "1.35": "1.3.x"}"#;

    fn parse(versions: &str, when: Option<&str>, default: &str) -> Result<KubernetesVersions, String> {
        let annotations: BTreeMap<_, _> =
            [(KUBERNETES_VERSIONS_ANNOTATION, Some(versions)), (KUBERNETES_UPGRADE_ANNOTATION, when)]
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                .collect();
        KubernetesVersions::parse(&annotations, default).unwrap().map_err(|error| error.to_string())
    }

    fn minor(minor: u64) -> Version {
        Version::new(1, minor, 4)
    }

    fn kubernetes(current: u64, upgrade: Option<(u64, u64, UpgradeMoment)>) -> Kubernetes {
        let upgrade =
            upgrade.map(|(from, to, reached)| Upgrade { from: minor(from), to: minor(to), reached });
        Kubernetes { current: minor(current), upgrade }
    }

    #[test]
    fn annotations_are_validated() {
        assert!(KubernetesVersions::parse(&BTreeMap::new(), "1.0.0").is_none());
        assert!(parse(BOTH, Some("AfterCluster"), "").is_ok());
        for (versions, when, expected) in [
            ("1.34: 1.2.x", None, "is not a JSON object"),
            (r#"{"1.34": 1}"#, None, "is not a JSON object"),
            (r#"{"v1.34": "1"}"#, None, "`v1.34` is not a Kubernetes minor version"),
            (r#"{"1.34.1": "1"}"#, None, "`1.34.1` is not a Kubernetes minor version"),
            (r#"{"1.+3": "1"}"#, None, "`1.+3` is not a Kubernetes minor version"),
            (r#"{"1.34": " "}"#, None, "the version for Kubernetes 1.34 is empty"),
            (BOTH, Some("Later"), "`Later` is none of BeforeControlPlane"),
        ] {
            let error = parse(versions, when, "").unwrap_err();
            assert!(error.contains(expected), "{versions} {when:?}: {error}");
        }
    }

    #[test]
    fn the_version_moves_at_its_moment() {
        use UpgradeMoment::{AfterCluster, AfterControlPlane, BeforeControlPlane};
        let (before, after) = (Some((34, 35, BeforeControlPlane)), Some((34, 35, AfterControlPlane)));
        let (old, new) = ("1.2.x", "1.3.x");
        let rows = [
            ("not upgraded", None, 34, None, Some(new), old),
            ("upgraded", None, 35, None, Some(old), new),
            ("default moment, before", None, 34, before, Some(old), old),
            ("default moment, after", None, 35, after, Some(old), new),
            ("before", Some(BeforeControlPlane), 34, before, Some(old), new),
            ("after the control plane, before", Some(AfterControlPlane), 34, before, Some(old), old),
            ("after the control plane", Some(AfterControlPlane), 35, after, Some(old), new),
            ("after the cluster, workers outdated", Some(AfterCluster), 35, after, Some(old), old),
            ("after the cluster, workers roll out", Some(AfterCluster), 35, after, Some(new), new),
            ("after the cluster, new release", Some(AfterCluster), 35, after, None, new),
            ("after the cluster, done", Some(AfterCluster), 35, None, Some(old), new),
        ];
        for (name, when, current, upgrade, existing, expected) in rows {
            let when = when.map(|when| format!("{when:?}"));
            let versions = parse(BOTH, when.as_deref(), "").unwrap();
            assert_eq!(versions.version(&kubernetes(current, upgrade), existing), Ok(expected), "{name}");
        }
    }

    #[test]
    fn the_version_of_the_spec_is_for_all_other_kubernetes_versions() {
        let other = kubernetes(36, None);
        assert_eq!(parse(BOTH, None, "1.4.0").unwrap().version(&other, None), Ok("1.4.0"));
        let missing = parse(BOTH, None, "").unwrap().version(&other, Some("1.3.x")).unwrap_err();
        assert!(missing.to_string().contains("names no version for Kubernetes 1.36"), "{missing}");
    }

    #[test]
    fn an_upgrade_waits_for_moves_and_is_blocked_without_a_version() {
        let follower = |when: &str, requested: Option<&str>, deployed| KubernetesFollower {
            name: "cni".to_owned(),
            versions: Ok(parse(BOTH, Some(when), "").unwrap()),
            requested: requested.map(str::to_owned),
            deployed,
        };
        let (old, new) = (Some("1.2.x"), Some("1.3.x"));
        let waits = || UpgradeAnswer::Wait("moving cni to 1.3.x first".to_owned());
        let before = |follower: KubernetesFollower, to| before_upgrade(&[follower], &minor(34), &minor(to));
        let rows = [
            ("moves before", follower("BeforeControlPlane", old, true), waits()),
            ("is moving", follower("BeforeControlPlane", new, false), waits()),
            ("not installed yet", follower("BeforeControlPlane", None, false), waits()),
            ("has moved", follower("BeforeControlPlane", new, true), UpgradeAnswer::Proceed),
            ("moves later", follower("AfterControlPlane", old, true), UpgradeAnswer::Proceed),
        ];
        for (name, follower, expected) in rows {
            assert_eq!(before(follower, 35), expected, "{name}");
        }
        let UpgradeAnswer::Block(message) = before(follower("AfterControlPlane", old, true), 36) else {
            panic!("the second step has no version")
        };
        assert!(message.contains("cni blocks") && message.contains("Kubernetes 1.36"), "{message}");
        let invalid = KubernetesFollower {
            versions: Err(KubernetesVersionsError::Moment("Later".to_owned())),
            ..follower("AfterCluster", old, true)
        };
        assert!(matches!(before(invalid, 35), UpgradeAnswer::Block(_)));

        let after = |follower: KubernetesFollower, version| after_control_plane(&[follower], &minor(version));
        let rows = [
            ("moves", follower("AfterControlPlane", old, true), 35, waits()),
            ("is moving", follower("AfterControlPlane", new, false), 35, waits()),
            ("has moved", follower("AfterControlPlane", new, true), 35, UpgradeAnswer::Proceed),
            ("moves later", follower("AfterCluster", old, true), 35, UpgradeAnswer::Proceed),
            ("no version", follower("AfterControlPlane", new, true), 36, UpgradeAnswer::Proceed),
        ];
        for (name, follower, version, expected) in rows {
            assert_eq!(after(follower, version), expected, "{name}");
        }
    }

    #[test]
    fn moves_are_described() {
        let follower = KubernetesFollower {
            name: "cni".to_owned(),
            versions: Ok(parse(BOTH, None, "1.2.x").unwrap()),
            requested: None,
            deployed: false,
        };
        let expected = "cni 1.2.x moves to 1.3.x after the control plane";
        assert_eq!(follower.moves(&minor(34), &minor(35)).as_deref(), Some(expected));
        assert_eq!(follower.moves(&minor(33), &minor(34)), None, "the version stays the same");
    }
}
