//! The versions of a chart that a HelmChartProxy names for Kubernetes versions.

use std::{collections::BTreeMap, fmt};

use chandler_api::extensions::{
    KUBERNETES_UPGRADE_ANNOTATION, KUBERNETES_VERSIONS_ANNOTATION, UpgradeMoment,
};
use semver::Version;

use crate::extension::{Kubernetes, Upgrade};

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
    pub(super) when: UpgradeMoment,
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
        let default = Some(default.to_owned()).filter(|text| !text.is_empty());
        Ok(Self { by_minor, default, when })
    }

    /// Returns the version for a Kubernetes version.
    pub(super) fn at(&self, kubernetes: &Version) -> Result<&str, NoVersion> {
        let minor = Minor::of(kubernetes);
        let version = self.by_minor.get(&minor).or(self.default.as_ref());
        version.map(String::as_str).ok_or(NoVersion(minor))
    }

    /// Returns the version that a cluster should have now. `existing` is the one that its release object requests.
    ///
    /// After the control plane, until the moment of the move, the existing version is kept: it is not known for certain which
    /// version the workers have, and a rollout of workers need not be an upgrade. A version that has moved for the next step
    /// does not move back, see [`Upgrade::next`].
    pub fn version<'a>(
        &'a self,
        kubernetes: &Kubernetes,
        existing: Option<&'a str>,
    ) -> Result<&'a str, NoVersion> {
        match &kubernetes.upgrade {
            Some(Upgrade { to, next: Some(next), .. }) if self.has_moved(existing, to, next) => self.at(next),
            Some(upgrade) if self.when <= upgrade.reached => self.at(&upgrade.to),
            Some(upgrade) if upgrade.reached > UpgradeMoment::BeforeControlPlane => {
                existing.map_or_else(|| self.at(&kubernetes.current), Ok)
            }
            _ => self.at(&kubernetes.current),
        }
    }

    /// Returns whether the existing version is that of the next step of an upgrade and not that of this one. Only what moves
    /// before the control plane can have moved.
    fn has_moved(&self, existing: Option<&str>, this: &Version, next: &Version) -> bool {
        let is_existing = |version: &Version| self.at(version).ok() == existing;
        self.when == UpgradeMoment::BeforeControlPlane
            && existing.is_some()
            && is_existing(next)
            && !is_existing(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let upgrade = upgrade.map(|(from, to, reached)| Upgrade {
            from: minor(from),
            to: minor(to),
            reached,
            next: None,
        });
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

    /// At the start of the second step, the objects of Cluster API look for a moment as at the end of the first one.
    #[test]
    fn a_version_that_has_moved_for_the_next_step_does_not_move_back() {
        let all = r#"{"1.34": "1.2.x", "1.35": "1.3.x", "1.36": "1.4.x"}"#;
        let mut ended = kubernetes(35, Some((34, 35, UpgradeMoment::AfterControlPlane)));
        if let Some(upgrade) = &mut ended.upgrade {
            upgrade.next = Some(minor(36));
        }
        let rows = [
            ("BeforeControlPlane", Some("1.2.x"), "1.3.x"),
            ("BeforeControlPlane", Some("1.3.x"), "1.3.x"),
            ("BeforeControlPlane", Some("1.4.x"), "1.4.x"),
            ("BeforeControlPlane", None, "1.3.x"),
            ("AfterControlPlane", Some("1.3.x"), "1.3.x"),
            ("AfterControlPlane", Some("1.4.x"), "1.3.x"),
            ("AfterCluster", Some("1.2.x"), "1.2.x"),
        ];
        for (when, existing, expected) in rows {
            let versions = parse(all, Some(when), "").unwrap();
            assert_eq!(versions.version(&ended, existing), Ok(expected), "{when} {existing:?}");
        }
    }

    #[test]
    fn the_version_of_the_spec_is_for_all_other_kubernetes_versions() {
        let other = kubernetes(36, None);
        assert_eq!(parse(BOTH, None, "1.4.0").unwrap().version(&other, None), Ok("1.4.0"));
        let missing = parse(BOTH, None, "").unwrap().version(&other, Some("1.3.x")).unwrap_err();
        assert!(missing.to_string().contains("names no version for Kubernetes 1.36"), "{missing}");
    }
}
