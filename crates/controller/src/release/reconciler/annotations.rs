//! The annotations of a release object that outlive its placement or its policy.

use std::collections::BTreeMap;

use chandler_api::extensions::{
    ON_CLUSTER_DELETE_ANNOTATION, PLATFORM_INPUTS_ANNOTATION, ROLLBACK_ANNOTATION, UNSELECTED_ANNOTATION,
};
use chandler_core::{
    digest::InputDigest,
    policy::{is_marked_unselected, last_on_cluster_delete},
    release::{Desired, ReleaseKind, RollbackRequest},
};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::{Reconciler, View};
use crate::{ManagementError, error::write_result, release::PlacementState, status};

/// Changes of annotations. `None` removes one.
pub(super) type Annotations = BTreeMap<&'static str, Option<String>>;

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Returns the annotations to change that depend on the placement, its policy and the inputs: what the policy says about the
    /// deletion of the Cluster is recorded for the case that the policy is deleted before, a request for a rollback of an earlier
    /// spec is removed, and which inputs were installed as an Extension of the platform is recorded for their removal.
    pub(super) async fn outdated_annotations(&self, desired: &Desired, view: &View) -> Annotations {
        if self.deleting() || view.facts.paused || status::is_paused(&*self.object) {
            return Annotations::new();
        }
        let inputs = self.known_inputs(desired, view);
        let inputs = inputs.as_ref().map(|inputs| &inputs.digest);
        let mut changes = changes(&*self.object, &self.placement, inputs);
        let newest = self.context.releases.by_reference(&ObjectRef::from_obj(&*self.object));
        let request = |release: &R| release.annotations().get(ROLLBACK_ANNOTATION).cloned();
        if newest.is_some_and(|newest| request(&newest) != request(&self.object)) {
            // It was requested since this reconcile began.
            changes.remove(ROLLBACK_ANNOTATION);
        }
        let platform = desired.recorded.new_platform_inputs(inputs, self.installed.as_ref());
        // A release that is restricted is removed with its restrictions.
        if let Some(platform) = platform.filter(|_| self.context.tenancies.restrict_releases())
            && self.context.is_unrestricted(desired).await
        {
            changes.insert(PLATFORM_INPUTS_ANNOTATION, Some(platform));
        }
        changes
    }

    /// Changes annotations of the object, if it still exists.
    pub(super) async fn annotate(&self, annotations: &Annotations) -> Result<(), ManagementError> {
        if annotations.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": annotations}});
        let name = self.object.name_any();
        let api = status::api(&self.context.client, &*self.object);
        let result = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        write_result(status::kind::<R>(), name, result).map(drop)
    }
}

/// Returns the annotations of a release object that differ from the state of its placement.
fn changes<R: ReleaseKind>(
    release: &R,
    placement: &PlacementState,
    inputs: Option<&InputDigest>,
) -> Annotations {
    let mut changes = Annotations::new();
    let is_outdated = |inputs| RollbackRequest::current(release, inputs).is_none();
    if RollbackRequest::of(release).is_some() && inputs.is_some_and(is_outdated) {
        changes.insert(ROLLBACK_ANNOTATION, None);
    }
    if last_on_cluster_delete(release) != placement.on_cluster_delete {
        let value = placement.on_cluster_delete.map(|on_delete| on_delete.as_str().to_owned());
        changes.insert(ON_CLUSTER_DELETE_ANNOTATION, value);
    }
    // The Cluster was selected again before the object was deleted.
    if is_marked_unselected(release) && !placement.is_unselected {
        changes.insert(UNSELECTED_ANNOTATION, None);
    }
    changes
}

#[cfg(test)]
mod tests {
    use chandler_api::{addons::HelmReleaseProxy, extensions::OnClusterDelete};

    use super::*;

    #[test]
    fn annotations_follow_the_placement_and_its_policy() {
        use OnClusterDelete::{Skip, Uninstall};
        let state = |on_cluster_delete, is_unselected| PlacementState {
            is_unselected,
            on_cluster_delete,
            ..PlacementState::default()
        };
        let on_cluster_delete =
            |value: Option<&'static str>| vec![(ON_CLUSTER_DELETE_ANNOTATION, value.map(str::to_owned))];
        let current = InputDigest::parse(&"a".repeat(40)).unwrap();
        let rollback = |inputs: &str, generation: &str| json!({ROLLBACK_ANNOTATION: format!("3.{}{generation}", inputs.repeat(40))});
        let rows = [
            (rollback("a", ""), state(None, false), vec![]),
            (rollback("b", ""), state(None, false), vec![(ROLLBACK_ANNOTATION, None)]),
            (rollback("b", ".2"), state(None, false), vec![]),
            (rollback("b", ".1"), state(None, false), vec![(ROLLBACK_ANNOTATION, None)]),
            (json!({}), state(None, false), vec![]),
            (json!({}), state(Some(Uninstall), false), on_cluster_delete(Some("Uninstall"))),
            (json!({ON_CLUSTER_DELETE_ANNOTATION: "Uninstall"}), state(Some(Uninstall), false), vec![]),
            (
                json!({ON_CLUSTER_DELETE_ANNOTATION: "Uninstall"}),
                state(Some(Skip), false),
                on_cluster_delete(Some("Skip")),
            ),
            (json!({ON_CLUSTER_DELETE_ANNOTATION: "Uninstall"}), state(None, false), on_cluster_delete(None)),
            (json!({UNSELECTED_ANNOTATION: "true"}), state(None, true), vec![]),
            (json!({UNSELECTED_ANNOTATION: "true"}), state(None, false), vec![(UNSELECTED_ANNOTATION, None)]),
        ];
        for (annotations, placement, expected) in rows {
            let release: HelmReleaseProxy = serde_json::from_value(json!({
                "metadata": {"name": "hello-blue", "generation": 2, "annotations": annotations},
                "spec": {"clusterRef": {}, "chartName": "hello", "repoURL": "https://charts.example"},
            }))
            .unwrap();
            let changes: Vec<_> = changes(&release, &placement, Some(&current)).into_iter().collect();
            assert_eq!(changes, expected, "{annotations} {placement:?}");
        }
    }
}
