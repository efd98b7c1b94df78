//! A rollback that a user has asked for with an annotation of a release object, or that follows from an aborted rollout.

use chandler_api::extensions::ROLLBACK_ANNOTATION;
use kube_core::{Resource, ResourceExt as _};

use crate::digest::InputDigest;

/// A revision to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedRollback {
    pub revision: u32,
    pub origin: RollbackOrigin,
}

/// Why a revision is restored although nothing has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollbackOrigin {
    /// A user has asked for it, when the release had these inputs.
    User { replaces: InputDigest },
    /// The rollout that has updated the release was aborted.
    AbortedRollout,
}

impl RequestedRollback {
    /// Returns the request that follows from an aborted rollout.
    pub fn of_aborted_rollout(revision: u32) -> Self {
        Self { revision, origin: RollbackOrigin::AbortedRollout }
    }
}

/// The annotation of a release object: `REVISION.INPUTS`, or `REVISION.INPUTS.GENERATION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackRequest {
    pub revision: u32,
    /// The inputs that the revision replaces.
    inputs: InputDigest,
    /// The generation of the release object. It stays while a newer version of the package is found, which changes the inputs.
    generation: Option<i64>,
}

impl RollbackRequest {
    /// Returns the request of a release object. `None` if there is none, or if it is invalid.
    pub fn of(release: &impl Resource) -> Option<Self> {
        let mut parts = release.annotations().get(ROLLBACK_ANNOTATION)?.splitn(3, '.');
        let revision = parts.next()?.parse().ok()?;
        let inputs = InputDigest::parse(parts.next()?)?;
        let generation = parts.next().map(str::parse).transpose().ok()?;
        Some(Self { revision, inputs, generation })
    }

    /// Returns the request of a release object, if it is still about its spec and these inputs: neither has changed since, or only
    /// one of them.
    pub fn current(release: &impl Resource, inputs: &InputDigest) -> Option<RequestedRollback> {
        let Self { revision, inputs: replaces, generation } = Self::of(release)?;
        let is_current = replaces == *inputs
            || generation.is_some_and(|generation| release.meta().generation == Some(generation));
        is_current.then_some(RequestedRollback { revision, origin: RollbackOrigin::User { replaces } })
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::HelmReleaseProxy;
    use serde_json::json;

    use super::*;

    fn release(rollback_to: Option<&str>) -> HelmReleaseProxy {
        let annotations = rollback_to.map(|text| json!({ROLLBACK_ANNOTATION: text}));
        serde_json::from_value(json!({
            "metadata": {"name": "hello-blue", "generation": 7, "annotations": annotations},
            "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        }))
        .unwrap()
    }

    #[test]
    fn a_request_ends_when_spec_and_inputs_have_changed() {
        let (own, other) = ("c".repeat(40), "d".repeat(40));
        let inputs = InputDigest::parse(&own).unwrap();
        let rows = [
            (format!("3.{own}"), true, "the same inputs"),
            (format!("3.{other}"), false, "other inputs"),
            (format!("3.{own}.7"), true, "nothing has changed"),
            (format!("3.{own}.6"), true, "the spec has changed, but no input"),
            (format!("3.{other}.7"), true, "a newer version was found"),
            (format!("3.{other}.6"), false, "the spec has changed"),
        ];
        for (text, is_current, why) in rows {
            let release = release(Some(&text));
            assert_eq!(RollbackRequest::of(&release).map(|request| request.revision), Some(3), "{why}");
            assert_eq!(RollbackRequest::current(&release, &inputs).is_some(), is_current, "{why}");
        }
    }

    #[test]
    fn an_invalid_request_is_none() {
        let inputs = "c".repeat(40);
        for bad in ["3", "", "x.y", "3.", &format!("3.{inputs}."), &format!("3.{inputs}.x")] {
            assert_eq!(RollbackRequest::of(&release(Some(bad))), None, "{bad}");
        }
        assert_eq!(RollbackRequest::of(&release(None)), None);
    }
}
