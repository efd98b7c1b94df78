//! What a placement records on its release objects, and what they are updated to.

use std::fmt;

use chandler_api::extensions::ROLLOUT_ANNOTATION;
use jiff::Timestamp;
use kube_core::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Checked;
use crate::{digest::Digest, release::ReleaseKind};

/// Number of hexadecimal digits of a digest. They distinguish the few targets of one placement.
const DIGITS: usize = 12;

/// The annotation of a release object: what its placement shared between its clusters when the object got its spec, how the
/// object got there, and what a rollout has to remember of its release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// Digest of the shared part of the placement's spec and of the shared parameters.
    pub spec: String,
    /// Digest of the default parameters of the package's version. Empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub defaults: String,
    /// When the object got its spec.
    pub at: Timestamp,
    /// The revision that was deployed before, if a rollout has updated the object; `0` if that is not known. Otherwise the object
    /// does not count for rollouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The Kubernetes version of the cluster for which the version of the package was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// When the release was ready after the update for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Timestamp>,
    /// Whether the release counted as ready although the health of its objects was not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// When the release has failed, unless it was ready since. A failure counts although its cluster is unreachable or paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    /// When the release became unhealthy after it was ready, while that counted. It counts until it has been ready for the
    /// timeout of the rollout, or until a user resumes the rollout: what crashes again and again is ready in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<Timestamp>,
    /// When the cluster was lost for the first time after the release was ready, while that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Timestamp>,
    /// Whether a user had paused or suspended the release when it was seen last, before it was ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unavailable: bool,
    /// When it was available again: the time to become ready begins then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Timestamp>,
}

impl RolloutRecord {
    /// Returns the record of a release object. `None` if it has none, or if a user has changed it.
    pub fn of(release: &impl Resource) -> Option<Self> {
        serde_json::from_str(release.annotations().get(ROLLOUT_ANNOTATION)?).ok()
    }

    /// Writes the record to a release object.
    pub fn set(&self, release: &mut impl Resource) {
        if let Some(text) = self.to_annotation() {
            release.annotations_mut().insert(ROLLOUT_ANNOTATION.to_owned(), text);
        }
    }

    /// Returns what was checked of a release that is ready.
    pub fn checked(&self) -> Checked {
        if self.unchecked { Checked::ResultOnly } else { Checked::Health }
    }

    /// Returns the value of the annotation.
    pub fn to_annotation(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }
}

/// What a release object is updated to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RolloutTarget {
    /// Digest of what the placement shares between clusters: see [`RolloutRecord::spec`].
    pub spec: String,
    /// Digest of the default parameters of the version: see [`RolloutRecord::defaults`]. Another version may have others, which is
    /// no change of the placement.
    pub defaults: String,
    /// Identifies the package of the release object.
    pub package: String,
    /// The Kubernetes version of the cluster, if the version of the package depends on it.
    pub kubernetes: Option<String>,
}

impl RolloutTarget {
    /// Returns whether both are the same, for whichever Kubernetes version.
    pub fn is_same_update(&self, other: &Self) -> bool {
        self.update_key() == other.update_key()
    }

    /// Returns what distinguishes the target from others, for whichever Kubernetes version.
    pub fn update_key(&self) -> (&str, &str, &str) {
        (&self.spec, &self.defaults, &self.package)
    }
}

/// Identifies the target for users.
impl fmt::Display for RolloutTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, defaults, package, .. } = self;
        let package =
            if defaults.is_empty() { short(package) } else { short(&format!("{package}\n{defaults}")) };
        write!(f, "{spec}-{package}")
    }
}

/// Returns the target that a release object has. `None` if it has no record.
pub fn target_of<R: ReleaseKind>(release: &R) -> Option<RolloutTarget> {
    let RolloutRecord { spec, defaults, kubernetes, .. } = RolloutRecord::of(release)?;
    Some(RolloutTarget { spec, defaults, package: release.package_key(), kubernetes })
}

/// Returns the digest of what a placement shares between its clusters: a part of its spec, and parameters from elsewhere.
pub fn shared_digest(spec: &Value, parameters: &str) -> String {
    short(&format!("{spec}\n{parameters}"))
}

fn short(text: &str) -> String {
    Digest::of(text).hex().chars().take(DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_read_back() {
        let mut release: HelmReleaseProxy = serde_json::from_value(json!({
            "metadata": {"name": "hello-blue"},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example", "version": "1.0.0"},
        }))
        .unwrap();
        assert_eq!(RolloutRecord::of(&release), None);
        assert_eq!(target_of(&release), None);
        let record = RolloutRecord { spec: "a1".to_owned(), from: Some(3), ..RolloutRecord::default() };
        record.set(&mut release);
        assert_eq!(RolloutRecord::of(&release), Some(record));
        assert_eq!(
            release.annotations()[ROLLOUT_ANNOTATION],
            r#"{"spec":"a1","at":"1970-01-01T00:00:00Z","from":3}"#
        );
        let target = target_of(&release).unwrap();
        assert_eq!((&*target.spec, &*target.package), ("a1", "1.0.0"));
        release.annotations_mut().insert(ROLLOUT_ANNOTATION.to_owned(), "yes".to_owned());
        assert_eq!(RolloutRecord::of(&release), None, "what a user has written");
    }

    #[test]
    fn a_target_depends_on_spec_package_and_defaults() {
        let target = |spec: &str, defaults: &str, package: &str| RolloutTarget {
            spec: spec.to_owned(),
            defaults: defaults.to_owned(),
            package: package.to_owned(),
            kubernetes: Some("1.35".to_owned()),
        };
        let one = target("a1", "", "1.0.0");
        let other_kubernetes = RolloutTarget { kubernetes: None, ..one.clone() };
        assert!(one.is_same_update(&other_kubernetes));
        assert_eq!(one.to_string(), other_kubernetes.to_string());
        for other in [target("b2", "", "1.0.0"), target("a1", "d", "1.0.0"), target("a1", "", "2.0.0")] {
            assert!(!one.is_same_update(&other), "{other:?}");
            assert_ne!(one.to_string(), other.to_string());
        }
    }

    #[test]
    fn the_digest_depends_on_the_spec_and_on_the_parameters() {
        let of = |spec: Value, parameters: &str| shared_digest(&spec, parameters);
        let one = of(json!({"a": 1}), "");
        assert_eq!(one.len(), DIGITS);
        assert_eq!(one, of(json!({"a": 1}), ""));
        assert_ne!(one, of(json!({"a": 2}), ""));
        assert_ne!(one, of(json!({"a": 1}), "b"));
    }
}
