//! What a placement records on its release objects, and what they move to.

use std::fmt;

use chandler_api::extensions::ROLLOUT_ANNOTATION;
use jiff::Timestamp;
use kube_core::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{digest::Digest, release::ReleaseKind};

/// Number of hexadecimal digits of a digest. They distinguish the few targets of one placement.
const DIGITS: usize = 12;

/// The annotation of a release object: what its placement shared between its clusters when the object got its spec, and how the
/// object was moved there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Digest of the shared part of the placement's spec and of the shared parameters.
    pub spec: String,
    /// When the object got its spec.
    pub at: Timestamp,
    /// The revision that was deployed before, if a rollout has moved the object. Otherwise it does not count for rollouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The Kubernetes version of the cluster for which the version of the package was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
}

impl Mark {
    /// Returns the mark of a release object. `None` if it has none, or if a user has changed it.
    pub fn of(release: &impl Resource) -> Option<Self> {
        serde_json::from_str(release.annotations().get(ROLLOUT_ANNOTATION)?).ok()
    }

    /// Writes the mark to a release object.
    pub fn set(&self, release: &mut impl Resource) {
        if let Ok(text) = serde_json::to_string(self) {
            release.annotations_mut().insert(ROLLOUT_ANNOTATION.to_owned(), text);
        }
    }
}

/// What a release object moves to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Digest of what the placement shares between clusters: see [`Mark::spec`].
    pub spec: String,
    /// Identifies the package of the release object.
    pub package: String,
    /// The Kubernetes version of the cluster, if the version of the package depends on it.
    pub kubernetes: Option<String>,
}

/// Identifies the target for users.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.spec, short(&self.package))
    }
}

/// Returns the target that a release object has. `None` if it has no mark.
pub fn target_of<R: ReleaseKind>(release: &R) -> Option<Target> {
    let Mark { spec, kubernetes, .. } = Mark::of(release)?;
    Some(Target { spec, package: release.package_key(), kubernetes })
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
    fn a_mark_is_read_back() {
        let mut release: HelmReleaseProxy = serde_json::from_value(json!({
            "metadata": {"name": "hello-blue"},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example", "version": "1.0.0"},
        }))
        .unwrap();
        assert_eq!(Mark::of(&release), None);
        assert_eq!(target_of(&release), None);
        let mark = Mark { spec: "a1".to_owned(), at: Timestamp::UNIX_EPOCH, from: Some(3), kubernetes: None };
        mark.set(&mut release);
        assert_eq!(Mark::of(&release), Some(mark));
        assert_eq!(
            release.annotations()[ROLLOUT_ANNOTATION],
            r#"{"spec":"a1","at":"1970-01-01T00:00:00Z","from":3}"#
        );
        let target = target_of(&release).unwrap();
        assert_eq!((&*target.spec, &*target.package), ("a1", "1.0.0"));
        release.annotations_mut().insert(ROLLOUT_ANNOTATION.to_owned(), "yes".to_owned());
        assert_eq!(Mark::of(&release), None, "what a user has written");
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
