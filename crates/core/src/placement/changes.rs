//! From the release objects that should be and those that are, to what has to be written. Pure.

use std::collections::BTreeMap;

use kube_core::{Resource as _, ResourceExt as _};

use super::PlacementKind;
use crate::{
    identity::ClusterKey,
    release::{ReleaseKind, Strategy},
};

/// Something to write.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<R> {
    /// Create or update this object.
    Apply(Box<R>),
    /// Delete the object of this name.
    Delete(String),
}

/// What to write so that the release objects are as wanted.
///
/// `wanted` maps each selected cluster to its object, or to None where the object could not be made (its template
/// failed): then what is there stays as it is. A release whose identity changes is deleted first and made anew once it
/// is gone. Objects of clusters that are not selected any more are deleted, except
/// under [`Strategy::InstallOnce`], which leaves them.
pub fn changes<P: PlacementKind>(
    wanted: &BTreeMap<ClusterKey, Option<P::Release>>,
    existing: &[impl AsRef<P::Release>],
    strategy: Strategy,
) -> Vec<Change<P::Release>> {
    let mut changes = Vec::new();
    let mut by_cluster = BTreeMap::new();
    for release in existing.iter().map(AsRef::as_ref) {
        if let Some(cluster) = P::cluster_of(release) {
            by_cluster.entry(cluster).or_insert(release);
        }
    }
    for (cluster, object) in wanted {
        let Some(object) = object else { continue };
        match by_cluster.get(cluster) {
            Some(there) if there.meta().deletion_timestamp.is_some() || P::same_request(there, object) => {}
            Some(there) if strategy == Strategy::InstallOnce && there.is_marked_installed() => {}
            Some(there) if !P::same_identity(there, object) => changes.push(Change::Delete(there.name_any())),
            _ => changes.push(Change::Apply(Box::new(object.clone()))),
        }
    }
    let unselected = existing.iter().map(AsRef::as_ref).filter(|release| {
        release.meta().deletion_timestamp.is_none()
            && strategy != Strategy::InstallOnce
            && P::cluster_of(release).is_none_or(|cluster| !wanted.contains_key(&cluster))
    });
    changes.extend(unselected.map(|release| Change::Delete(release.name_any())));
    changes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chandler_api::addons::{
        HelmChartProxy, HelmChartProxySpec, HelmReleaseProxy, RELEASE_NAME_GENERATED_ANNOTATION,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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

    fn wanted(
        objects: Vec<(&str, Option<HelmReleaseProxy>)>,
    ) -> BTreeMap<ClusterKey, Option<HelmReleaseProxy>> {
        objects.into_iter().map(|(cluster, object)| (ClusterKey::new("fleet", cluster), object)).collect()
    }

    fn planned(
        wanted: &BTreeMap<ClusterKey, Option<HelmReleaseProxy>>,
        existing: Vec<HelmReleaseProxy>,
        strategy: Strategy,
    ) -> Vec<Change<HelmReleaseProxy>> {
        let existing: Vec<_> = existing.into_iter().map(Arc::new).collect();
        changes::<HelmChartProxy>(wanted, &existing, strategy)
    }

    #[test]
    fn new_changed_same_and_unselected() {
        let (new, changed, same) =
            (release("new", "", None), release("changed", "a: 2", None), release("same", "", None));
        let wanted = wanted(vec![
            ("new", Some(new.clone())),
            ("changed", Some(changed.clone())),
            ("same", Some(same.clone())),
        ]);
        let gone = release("gone", "", None);
        let existing = vec![release("changed", "a: 1", None), same, gone.clone()];
        assert_eq!(
            planned(&wanted, existing, Strategy::Continuous),
            [Change::Apply(Box::new(changed)), Change::Apply(Box::new(new)), Change::Delete(gone.name_any())]
        );
    }

    #[test]
    fn a_failed_template_leaves_its_release_alone() {
        let wanted = wanted(vec![("blue", None)]);
        assert_eq!(planned(&wanted, vec![release("blue", "", None)], Strategy::Continuous), []);
    }

    #[test]
    fn install_once_leaves_what_is_installed() {
        let mut there = release("blue", "a: 1", None);
        let wanted = wanted(vec![("blue", Some(release("blue", "a: 2", None)))]);
        assert_eq!(planned(&wanted, vec![there.clone()], Strategy::InstallOnce).len(), 1);
        there.annotations_mut().insert(HelmReleaseProxy::INSTALLED_ANNOTATION.to_owned(), "true".to_owned());
        assert_eq!(planned(&wanted, vec![there], Strategy::InstallOnce), []);
    }

    #[test]
    fn install_once_leaves_unselected_releases() {
        assert_eq!(planned(&wanted(vec![]), vec![release("blue", "", None)], Strategy::InstallOnce), []);
    }

    #[test]
    fn objects_that_are_going_are_let_go() {
        let mut deleting = release("blue", "a: 1", None);
        deleting.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let wanted = wanted(vec![("blue", Some(release("blue", "a: 2", None)))]);
        assert_eq!(planned(&wanted, vec![deleting], Strategy::Continuous), []);
    }

    #[test]
    fn a_new_identity_deletes_before_it_installs() {
        let there = release("blue", "", None);
        let mut moved = there.clone();
        moved.spec.release_namespace = "elsewhere".to_owned();
        let wanted = wanted(vec![("blue", Some(moved))]);
        assert_eq!(
            planned(&wanted, vec![there.clone()], Strategy::Continuous),
            [Change::Delete(there.name_any())]
        );
    }

    #[test]
    fn a_name_that_was_given_and_is_taken_back_is_chosen_anew() {
        let mut named = release("blue", "", None);
        named.spec.release_name = "given".to_owned();
        named.annotations_mut().remove(RELEASE_NAME_GENERATED_ANNOTATION);
        let unnamed = release("blue", "", Some(&named));
        assert_ne!(unnamed.spec.release_name, "given");
        let wanted = wanted(vec![("blue", Some(unnamed))]);
        let name = named.name_any();
        assert_eq!(planned(&wanted, vec![named], Strategy::Continuous), [Change::Delete(name)]);
    }

    #[test]
    fn names_that_are_there_are_kept() {
        let mut made_elsewhere = release("blue", "", None);
        made_elsewhere.metadata.name = Some("hello-x7k2p".to_owned());
        made_elsewhere.spec.release_name = "hello-1700000000".to_owned();
        let next = release("blue", "a: 1", Some(&made_elsewhere));
        assert_eq!(
            (next.name_any(), next.spec.release_name),
            ("hello-x7k2p".into(), "hello-1700000000".into())
        );
    }
}
