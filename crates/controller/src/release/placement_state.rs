//! What release objects depend on of their placement and its policy.

use chandler_api::extensions::{OnClusterDelete, OnFailure, OnUnselect};
use chandler_core::{
    digest::InputDigest,
    policy::{PolicyState, ReleasePolicy, is_marked_unselected, is_suspended},
    release::{Desired, ReleaseKind, RequestedRollback, RollbackRequest, retry_requested_at},
};
use jiff::Timestamp;

/// The state of a placement, as far as its release objects depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementState {
    /// Whether the release object names a placement that the cache does not contain, although this manager watches it. All other
    /// fields are then those of an object without a placement.
    pub is_uncached: bool,
    pub paused: bool,
    /// Whether its release objects reflect its current spec.
    pub is_applied: bool,
    /// Whether its annotation suspends operations.
    pub suspended: bool,
    /// Whether it exists, is not being deleted, and does not select the existing Cluster of the release object.
    pub is_unselected: bool,
    /// Whether its annotation allows replacing and deleting CRDs even if that could lose data.
    pub replace_unsafe_crds: bool,
    pub policy: PolicyState,
    /// What the policy says about the deletion of the Cluster, or what it has said last if it is not known.
    pub on_cluster_delete: Option<OnClusterDelete>,
    /// The revision that was deployed before a rollout that was aborted has updated the release.
    pub aborted_from: Option<u32>,
}

/// The state for a release object without a placement.
impl Default for PlacementState {
    fn default() -> Self {
        Self {
            is_uncached: false,
            paused: false,
            is_applied: true,
            suspended: false,
            is_unselected: false,
            replace_unsafe_crds: false,
            policy: PolicyState::None,
            on_cluster_delete: None,
            aborted_from: None,
        }
    }
}

impl PlacementState {
    /// Returns the desired release under the policy.
    pub fn apply_to(&self, desired: Desired) -> Desired {
        let policy =
            ReleasePolicy { on_cluster_delete: self.on_cluster_delete, ..self.policy.effective().clone() };
        let mut desired = desired.with_policy(&policy);
        desired.execution.replace_unsafe_crds |= self.replace_unsafe_crds;
        desired
    }

    /// Returns whether the placement, its policy or the release object itself suspends operations.
    pub fn suspends<R: ReleaseKind>(&self, release: &R) -> bool {
        self.suspended || self.policy.effective().suspend || is_suspended(release)
    }

    /// Returns whether an operation of a release object may start. Only a removal may do so while the object is being deleted.
    pub fn allows<R: ReleaseKind>(&self, release: &R) -> bool {
        let deleting = release.meta().deletion_timestamp.is_some();
        !self.suspends(release)
            && self.policy.missing().is_none()
            && !self.orphans(release)
            && (deleting || !self.paused && self.is_applied)
    }

    /// Returns whether the release of a release object stays on the cluster when the object is deleted. It does not depend on the
    /// current selection, which may change again before the object is gone.
    pub fn orphans<R: ReleaseKind>(&self, release: &R) -> bool {
        release.meta().deletion_timestamp.is_some()
            && is_marked_unselected(release)
            && self.policy.effective().on_unselect == OnUnselect::Orphan
    }

    /// Returns the revision that a user wants to restore instead of these inputs, or that was deployed before an aborted rollout.
    pub fn requested_rollback<R: ReleaseKind>(
        &self,
        release: &R,
        inputs: &InputDigest,
    ) -> Option<RequestedRollback> {
        let of_rollout = || self.aborted_from.map(RequestedRollback::of_aborted_rollout);
        RollbackRequest::current(release, inputs).or_else(of_rollout)
    }

    /// Returns whether this is still what happens after the last retry, which has failed at `failed_at`: the policy still has this
    /// `onFailure`, and no user has asked to try again since.
    pub fn remediates<R: ReleaseKind>(
        &self,
        release: &R,
        on_failure: OnFailure,
        failed_at: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let remediation = self.policy.effective().remediation;
        let requested = retry_requested_at(release).filter(|requested| *requested <= now);
        remediation.is_some_and(|remediation| remediation.on_failure == on_failure)
            && requested.is_none_or(|requested| failed_at.is_some_and(|failed_at| requested <= failed_at))
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::{
        addons::HelmReleaseProxy,
        extensions::{FieldConflicts, Remediation},
    };
    use serde_json::{Value, json};

    use super::*;

    fn release(metadata: &Value) -> HelmReleaseProxy {
        let mut object = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy", "metadata": metadata,
            "spec": {
                "clusterRef": {"name": "blue", "namespace": "fleet"}, "chartName": "hello", "releaseName": "hello",
                "repoURL": "https://charts.example",
            },
        });
        object["metadata"]["namespace"] = json!("fleet");
        serde_json::from_value(object).unwrap()
    }

    fn with(policy: ReleasePolicy) -> PlacementState {
        let policy = PolicyState::Known { policy: policy.into(), conflict: None };
        PlacementState { policy, ..PlacementState::default() }
    }

    #[test]
    fn an_operation_starts_unless_something_holds_it() {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let suspended = |value: &str| json!({"annotations": {"chandler.dev/suspend": value}});
        let unselected = || json!({"annotations": {"chandler.dev/unselected": "true"}});
        let none = PlacementState::default;
        let orphan = || {
            let policy = ReleasePolicy { on_unselect: OnUnselect::Orphan, ..ReleasePolicy::default() };
            with(policy)
        };
        let missing = PlacementState { policy: PolicyState::Missing("AddonPolicy a/b".to_owned()), ..none() };
        // What holds it, placement, release object; whether an operation starts, and whether a removal does.
        let rows = [
            ("nothing", none(), json!({}), true, true),
            ("the placement is paused", PlacementState { paused: true, ..none() }, json!({}), false, true),
            ("it is changing", PlacementState { is_applied: false, ..none() }, json!({}), false, true),
            ("it is suspended", PlacementState { suspended: true, ..none() }, json!({}), false, false),
            ("the object is suspended", none(), suspended("true"), false, false),
            ("the object is resumed", none(), suspended("false"), true, true),
            (
                "the policy suspends",
                with(ReleasePolicy { suspend: true, ..ReleasePolicy::default() }),
                json!({}),
                false,
                false,
            ),
            ("the policy does not exist", missing, json!({}), false, false),
            ("the policy orphans, but the cluster was selected", orphan(), json!({}), true, true),
            ("the cluster was not selected", none(), unselected(), true, true),
            ("the release is orphaned", orphan(), unselected(), true, false),
            (
                "the object was deleted for another reason, and the cluster is not selected now",
                PlacementState { is_unselected: true, ..orphan() },
                json!({}),
                true,
                true,
            ),
        ];
        for (what, placement, metadata, starts, removes) in rows {
            assert_eq!(placement.allows(&release(&metadata)), starts, "{what}");
            let mut deleting = metadata.clone();
            deleting["deletionTimestamp"] = deleted["deletionTimestamp"].clone();
            assert_eq!(placement.allows(&release(&deleting)), removes, "{what}, and the object is deleted");
        }
    }

    #[test]
    fn policy_and_annotation_of_the_placement_apply_to_the_release() {
        let desired = release(&json!({})).desired().unwrap();
        assert_eq!(PlacementState::default().apply_to(desired.clone()), desired);
        let policy = ReleasePolicy { conflicts: FieldConflicts::Force, ..ReleasePolicy::default() };
        let placement = PlacementState { replace_unsafe_crds: true, ..with(policy) };
        let applied = placement.apply_to(desired);
        assert_eq!(applied.execution.conflicts, FieldConflicts::Force);
        assert!(applied.execution.replace_unsafe_crds);
        let annotated = json!({"annotations": {"chandler.dev/replace-unsafe-crds": "true"}});
        let of_object = PlacementState::default().apply_to(release(&annotated).desired().unwrap());
        assert!(of_object.execution.replace_unsafe_crds, "the annotation of the object is kept");
        let missing = PlacementState {
            policy: PolicyState::Missing("AddonPolicy a/b".to_owned()),
            on_cluster_delete: Some(OnClusterDelete::Uninstall),
            ..PlacementState::default()
        };
        let kept = missing.apply_to(release(&json!({})).desired().unwrap());
        assert!(kept.remove_with_cluster, "what the policy has said last counts");
    }

    #[test]
    fn a_remediation_starts_unless_the_policy_or_a_retry_prevents_it() {
        use OnFailure::{Keep, Rollback, Uninstall};
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let policy = |on_failure| {
            let remediation = Some(Remediation { retries: 0, on_failure });
            with(ReleasePolicy { remediation, ..ReleasePolicy::default() })
        };
        // The policy, the operation, when the failure was, when a retry is requested; whether the operation starts.
        let rows = [
            (policy(Rollback), Rollback, Some(5), None, true),
            (policy(Uninstall), Uninstall, Some(5), None, true),
            (policy(Keep), Uninstall, Some(5), None, false),
            (policy(Rollback), Uninstall, Some(5), None, false),
            (PlacementState::default(), Uninstall, Some(5), None, false),
            (policy(Uninstall), Uninstall, Some(5), Some(5), true),
            (policy(Uninstall), Uninstall, Some(5), Some(6), false),
            (policy(Uninstall), Uninstall, Some(5), Some(10), false),
            (policy(Uninstall), Uninstall, Some(5), Some(11), true),
            (policy(Uninstall), Uninstall, None, Some(5), false),
            (policy(Uninstall), Uninstall, None, None, true),
        ];
        for (placement, on_failure, failed_at, requested, expected) in rows {
            let mut metadata = json!({});
            if let Some(requested) = requested {
                metadata["annotations"] = json!({"chandler.dev/retry-at": at(requested).to_string()});
            }
            let remediates = placement.remediates(&release(&metadata), on_failure, failed_at.map(at), at(10));
            assert_eq!(remediates, expected, "{on_failure:?} {failed_at:?} {requested:?} {placement:?}");
        }
    }
}
