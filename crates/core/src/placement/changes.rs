//! Compares the desired release objects of a placement with the existing ones.

use std::{collections::BTreeMap, sync::Arc};

use kube_core::Resource as _;

use super::PlacementKind;
use crate::{
    identity::ClusterKey,
    release::{ReleaseKind, Strategy},
};

/// A change to a release object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<R> {
    /// Create this object or, if it has a uid, update the one with that uid.
    Apply(Box<R>),
    /// Delete this object.
    Delete(Arc<R>),
    /// Delete this object, because its cluster is no longer selected.
    Unselect(Arc<R>),
}

/// Returns the changes that turn the existing release objects into the desired ones.
///
/// `desired` maps each selected cluster to its object. `None` means that the object could not be composed, for example
/// because its template failed; the existing object is left unchanged then. A release whose identity changes is deleted
/// first and created again once it is gone. Objects of clusters that are no longer selected are deleted, except with
/// [`Strategy::InstallOnce`]; whether their release is removed too, or left in place by a policy, is decided for the deleted
/// object. `uid_of` returns the uid of a Cluster: another one with the same name is a new cluster.
pub fn changes<P: PlacementKind>(
    desired: &BTreeMap<ClusterKey, Option<P::Release>>,
    existing: &[Arc<P::Release>],
    strategy: Strategy,
    uid_of: impl Fn(&ClusterKey) -> Option<String>,
) -> Vec<Change<P::Release>> {
    let mut changes = Vec::new();
    let mut by_cluster = BTreeMap::new();
    for release in existing {
        if let Some(cluster) = P::cluster_of(release) {
            by_cluster.entry(cluster).or_insert(release);
        }
    }
    for (cluster, object) in desired {
        let Some(object) = object else { continue };
        match by_cluster.get(cluster) {
            Some(old) if old.meta().deletion_timestamp.is_some() || P::same_request(old, object) => {}
            Some(old)
                if strategy == Strategy::InstallOnce
                    && old.is_marked_installed(uid_of(cluster).as_deref()) => {}
            Some(old) if !P::same_identity(old, object) => {
                changes.push(Change::Delete(Arc::clone(old)));
            }
            old => {
                let mut object = object.clone();
                let old = old.filter(|old| old.meta().name == object.meta().name);
                object.meta_mut().uid = old.and_then(|old| old.meta().uid.clone());
                changes.push(Change::Apply(Box::new(object)));
            }
        }
    }
    let unselected = existing.iter().filter(|release| {
        release.meta().deletion_timestamp.is_none()
            && strategy != Strategy::InstallOnce
            && P::cluster_of(release).is_none_or(|cluster| !desired.contains_key(&cluster))
    });
    changes.extend(unselected.map(|release| Change::Unselect(Arc::clone(release))));
    changes
}

#[cfg(test)]
mod tests {
    use chandler_api::{
        addons::{HelmChartProxy, HelmChartProxySpec, HelmReleaseProxy, RELEASE_NAME_GENERATED_ANNOTATION},
        extensions::INSTALLED_ON_ANNOTATION,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube_core::ResourceExt as _;

    use super::*;
    use crate::placement::release_object;

    fn placement() -> HelmChartProxy {
        let spec: HelmChartProxySpec = serde_json::from_value(serde_json::json!({
            "clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example",
        }))
        .unwrap();
        let mut object = HelmChartProxy::new("hello", spec);
        object.metadata.namespace = Some("fleet".to_owned());
        object.metadata.uid = Some("uid".to_owned());
        object
    }

    fn release(cluster: &str, values: &str, existing: Option<&HelmReleaseProxy>) -> HelmReleaseProxy {
        let key = ClusterKey::new("fleet", cluster);
        release_object(&placement(), &key, values.to_owned(), existing)
    }

    fn desired(
        objects: Vec<(&str, Option<HelmReleaseProxy>)>,
    ) -> BTreeMap<ClusterKey, Option<HelmReleaseProxy>> {
        objects.into_iter().map(|(cluster, object)| (ClusterKey::new("fleet", cluster), object)).collect()
    }

    fn compare(
        desired: &BTreeMap<ClusterKey, Option<HelmReleaseProxy>>,
        existing: Vec<HelmReleaseProxy>,
        strategy: Strategy,
    ) -> Vec<Change<HelmReleaseProxy>> {
        let existing: Vec<_> = existing.into_iter().map(Arc::new).collect();
        changes::<HelmChartProxy>(desired, &existing, strategy, |_| Some("uid-2".to_owned()))
    }

    #[test]
    fn new_changed_unchanged_and_unselected_clusters() {
        let (new, changed, same) =
            (release("new", "", None), release("changed", "a: 2", None), release("same", "", None));
        let desired = desired(vec![
            ("new", Some(new.clone())),
            ("changed", Some(changed.clone())),
            ("same", Some(same.clone())),
        ]);
        let gone = release("gone", "", None);
        let existing = vec![release("changed", "a: 1", None), same, gone.clone()];
        assert_eq!(
            compare(&desired, existing, Strategy::Continuous),
            [
                Change::Apply(Box::new(changed)),
                Change::Apply(Box::new(new)),
                Change::Unselect(Arc::new(gone))
            ]
        );
    }

    #[test]
    fn an_update_is_one_of_the_same_object() {
        let mut existing = release("blue", "a: 1", None);
        existing.metadata.uid = Some("uid-1".to_owned());
        let desired = desired(vec![
            ("blue", Some(release("blue", "a: 2", Some(&existing)))),
            ("green", Some(release("green", "", None))),
        ]);
        let changes = compare(&desired, vec![existing], Strategy::Continuous);
        let uids = changes.iter().map(|change| match change {
            Change::Apply(object) => object.metadata.uid.as_deref(),
            Change::Delete(_) | Change::Unselect(_) => panic!("{change:?}"),
        });
        assert_eq!(uids.collect::<Vec<_>>(), [Some("uid-1"), None]);
    }

    #[test]
    fn a_failed_template_leaves_its_release_unchanged() {
        let desired = desired(vec![("blue", None)]);
        assert_eq!(compare(&desired, vec![release("blue", "", None)], Strategy::Continuous), []);
    }

    #[test]
    fn install_once_leaves_installed_releases_unchanged() {
        let mut existing = release("blue", "a: 1", None);
        let desired = desired(vec![("blue", Some(release("blue", "a: 2", None)))]);
        assert_eq!(compare(&desired, vec![existing.clone()], Strategy::InstallOnce).len(), 1);
        existing
            .annotations_mut()
            .insert(HelmReleaseProxy::INSTALLED_ANNOTATION.to_owned(), "true".to_owned());
        assert_eq!(compare(&desired, vec![existing.clone()], Strategy::InstallOnce), []);
        existing.annotations_mut().insert(INSTALLED_ON_ANNOTATION.to_owned(), "uid-2".to_owned());
        assert_eq!(compare(&desired, vec![existing.clone()], Strategy::InstallOnce), []);
        existing.annotations_mut().insert(INSTALLED_ON_ANNOTATION.to_owned(), "uid-1".to_owned());
        let changes = compare(&desired, vec![existing], Strategy::InstallOnce);
        assert_eq!(changes.len(), 1, "a Cluster that was created again is a new one");
    }

    #[test]
    fn install_once_keeps_unselected_releases() {
        assert_eq!(compare(&desired(vec![]), vec![release("blue", "", None)], Strategy::InstallOnce), []);
    }

    #[test]
    fn objects_that_are_being_deleted_are_left_unchanged() {
        let mut deleting = release("blue", "a: 1", None);
        deleting.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let desired = desired(vec![("blue", Some(release("blue", "a: 2", None)))]);
        assert_eq!(compare(&desired, vec![deleting], Strategy::Continuous), []);
    }

    #[test]
    fn a_release_with_a_new_identity_is_deleted_first() {
        let existing = release("blue", "", None);
        let mut moved = existing.clone();
        moved.spec.release_namespace = "elsewhere".to_owned();
        let desired = desired(vec![("blue", Some(moved))]);
        assert_eq!(
            compare(&desired, vec![existing.clone()], Strategy::Continuous),
            [Change::Delete(Arc::new(existing))]
        );
    }

    #[test]
    fn a_release_name_that_is_unset_again_is_generated() {
        let mut named = release("blue", "", None);
        named.spec.release_name = "chosen".to_owned();
        named.annotations_mut().remove(RELEASE_NAME_GENERATED_ANNOTATION);
        let unnamed = release("blue", "", Some(&named));
        assert_ne!(unnamed.spec.release_name, "chosen");
        let desired = desired(vec![("blue", Some(unnamed))]);
        assert_eq!(
            compare(&desired, vec![named.clone()], Strategy::Continuous),
            [Change::Delete(Arc::new(named))]
        );
    }

    #[test]
    fn existing_names_are_kept() {
        let mut existing = release("blue", "", None);
        existing.metadata.name = Some("hello-x7k2p".to_owned());
        existing.spec.release_name = "hello-1700000000".to_owned();
        let next = release("blue", "a: 1", Some(&existing));
        assert_eq!(
            (next.name_any(), next.spec.release_name),
            ("hello-x7k2p".into(), "hello-1700000000".into())
        );
    }
}
