//! Which changes of a release object belong to a rollout.

use chandler_api::reasons::ReleaseReason;
use jiff::Timestamp;
use kube_core::Resource as _;

use super::{RolloutRecord, RolloutTarget};
use crate::{
    inventory::ReleaseStatus,
    placement::PlacementKind,
    release::{ReleaseKind, State},
};

/// Part of [`Kubernetes::minors`](crate::extension::Kubernetes::minors) during an upgrade.
const UPGRADE: &str = " to ";

/// How the desired release object of a cluster differs from the existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Nothing is installed yet.
    FirstInstall,
    /// It has the desired spec already.
    Unchanged,
    /// Only the data of its own Cluster has changed.
    ClusterOnly,
    /// Another version is needed for the Kubernetes version of its cluster.
    KubernetesUpgrade,
    /// Something has changed that the clusters of the placement share. Only these changes are rolled out.
    Shared,
}

/// Returns how the release object of a cluster changes. `desired` has no record yet.
pub fn change_kind<P: PlacementKind>(
    existing: Option<&P::Release>,
    desired: &P::Release,
    target: &RolloutTarget,
) -> ChangeKind {
    let Some(existing) = existing.filter(|existing| existing.meta().deletion_timestamp.is_none()) else {
        return ChangeKind::FirstInstall;
    };
    if P::same_request(existing, desired) {
        return ChangeKind::Unchanged;
    }
    if was_never_installed(existing) {
        return ChangeKind::FirstInstall;
    }
    if existing.has_same_spec(desired) && existing.values_secret() == desired.values_secret() {
        // Only what is recorded with the spec differs, such as an account. That changes no release.
        return ChangeKind::ClusterOnly;
    }
    let Some(record) = RolloutRecord::of(existing) else {
        // The object has been written without a rollout. If it was to follow the newest version, it is pinned to it now.
        let is_pinned = existing.follows_newest_version() && has_package_of(existing, desired);
        return if is_pinned { ChangeKind::Unchanged } else { ChangeKind::Shared };
    };
    let same_package = existing.package_key() == target.package;
    let same_spec = record.spec == target.spec && P::same_identity(existing, desired);
    let same_defaults = record.defaults == target.defaults;
    let upgraded = record.kubernetes.as_ref().zip(target.kubernetes.as_ref()).is_some_and(|(a, b)| a != b);
    // A step of an upgrade may need another version later than it begins.
    let is_upgrading = same_spec && target.kubernetes.as_ref().is_some_and(|minors| minors.contains(UPGRADE));
    if same_spec && same_defaults && (same_package || desired.has_other_folder_of_cluster(existing)) {
        ChangeKind::ClusterOnly
    } else if (upgraded || is_upgrading) && !same_package {
        ChangeKind::KubernetesUpgrade
    } else {
        ChangeKind::Shared
    }
}

/// Returns whether only the version in the spec differs, and the installed one is the desired one.
fn has_package_of<R: ReleaseKind>(existing: &R, desired: &R) -> bool {
    let installed = existing.current_status().and_then(|status| status.package.as_ref());
    installed.is_some_and(|installed| {
        let mut pinned = existing.clone();
        pinned.set_version(&installed.version);
        pinned.package_key() == desired.package_key() && pinned.has_same_spec(desired)
    })
}

/// Returns whether it is certain that nothing is installed for a release object. Its status may be missing although something
/// is, for example after `clusterctl move`.
fn was_never_installed<R: ReleaseKind>(release: &R) -> bool {
    let Some(status) = release.current_status().filter(|status| status.revision.is_none()) else {
        return false;
    };
    let reason = release.readiness().and_then(|ready| ReleaseReason::parse(&ready.reason));
    let is_known = match reason {
        Some(
            ReleaseReason::NotAvailable | ReleaseReason::WaitingForDependencies | ReleaseReason::Pending,
        ) => true,
        Some(ReleaseReason::ApplyFailed | ReleaseReason::RetriesExhausted | ReleaseReason::Stalled) => {
            status.last_failure.is_some()
        }
        _ => false,
    };
    is_known && State::of(release) != State::Unreachable
}

/// Returns the record of a release object that gets the desired spec now.
pub fn next_record<R: ReleaseKind>(
    kind: ChangeKind,
    existing: Option<&R>,
    target: &RolloutTarget,
    now: Timestamp,
) -> RolloutRecord {
    let RolloutTarget { spec, defaults, kubernetes, .. } = target.clone();
    let old = existing.and_then(RolloutRecord::of);
    match (kind, old) {
        (ChangeKind::Unchanged | ChangeKind::ClusterOnly, Some(old)) => {
            RolloutRecord { spec, defaults, kubernetes, ..old }
        }
        // The update to the shared spec still has to be ready.
        (ChangeKind::KubernetesUpgrade, Some(old)) if old.spec == spec && old.ready.is_none() => {
            RolloutRecord { spec, defaults, kubernetes, ..old }
        }
        (ChangeKind::Shared, old) => {
            // An update that has never succeeded is replaced.
            let earlier = old.filter(|old| old.ready.is_none()).and_then(|old| old.from);
            let from = existing.and_then(deployed_revision).or(earlier).unwrap_or(0);
            RolloutRecord {
                spec,
                defaults,
                kubernetes,
                at: now,
                from: Some(from),
                ..RolloutRecord::default()
            }
        }
        // A replaced release whose successor was never installed is still an update.
        (ChangeKind::FirstInstall, Some(RolloutRecord { from: from @ Some(_), ready: None, .. })) => {
            RolloutRecord { spec, defaults, kubernetes, at: now, from, ..RolloutRecord::default() }
        }
        _ => RolloutRecord { spec, defaults, kubernetes, at: now, ..RolloutRecord::default() },
    }
}

/// Returns the newest revision that is deployed.
fn deployed_revision<R: ReleaseKind>(release: &R) -> Option<u32> {
    let history = &release.status()?.history;
    let deployed = history.iter().filter(|record| record.status == ReleaseStatus::Deployed.as_str());
    deployed.map(|record| record.revision).max()
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::{AddonRelease, ExtensionInstance, WORKLOAD_ACCOUNT_ANNOTATION};
    use serde_json::{Value, json};

    use super::*;

    const BEFORE: &str = "2026-01-01T00:00:00Z";

    fn release(spec: &Value, reason: &str, revision: Option<u32>) -> AddonRelease {
        let history = revision
            .map(|revision| vec![json!({"revision": revision, "status": "deployed", "at": BEFORE})])
            .unwrap_or_default();
        let mut all = json!({
            "cluster": "blue", "release": {"name": "web", "namespace": "web"}, "extension": "web", "version": "1.0.0",
            "source": {"repository": "https://charts.example", "chart": "web"},
        });
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "metadata": {"name": "web-blue", "namespace": "fleet", "generation": 1}, "spec": all,
            "status": {
                "observedGeneration": 1, "revision": revision, "history": history,
                "conditions": [{
                    "type": "Ready", "status": if reason == "Ready" { "True" } else { "False" }, "reason": reason,
                    "message": "", "lastTransitionTime": BEFORE,
                }],
            },
        }))
        .unwrap()
    }

    fn with_record(spec: &Value, record: &str, kubernetes: &str) -> AddonRelease {
        let mut release = release(spec, "Ready", Some(3));
        let record = RolloutRecord {
            spec: record.to_owned(),
            at: BEFORE.parse().unwrap(),
            from: Some(2),
            kubernetes: Some(kubernetes.to_owned()),
            failed: Some(BEFORE.parse().unwrap()),
            ..RolloutRecord::default()
        };
        record.set(&mut release);
        release
    }

    fn kind(existing: Option<&AddonRelease>, desired: &Value, spec: &str) -> (ChangeKind, RolloutRecord) {
        let desired = release(desired, "Ready", None);
        let target = RolloutTarget {
            spec: spec.to_owned(),
            package: desired.package_key(),
            kubernetes: Some("1.35".to_owned()),
            ..RolloutTarget::default()
        };
        let kind = change_kind::<ExtensionInstance>(existing, &desired, &target);
        (kind, next_record(kind, existing, &target, "2026-02-02T00:00:00Z".parse().unwrap()))
    }

    #[test]
    fn what_is_recorded_with_the_same_spec_is_not_rolled_out() {
        let mut desired = release(&json!({}), "Ready", None);
        let annotations = [(WORKLOAD_ACCOUNT_ANNOTATION.to_owned(), "deployer".to_owned())];
        desired.metadata.annotations = Some(annotations.into());
        let target = RolloutTarget { spec: "s1".to_owned(), ..RolloutTarget::default() };
        let without_record = release(&json!({}), "Ready", Some(3));
        for existing in [without_record, with_record(&json!({}), "s0", "1.35")] {
            let kind = change_kind::<ExtensionInstance>(Some(&existing), &desired, &target);
            assert_eq!(kind, ChangeKind::ClusterOnly);
        }
    }

    #[test]
    fn only_what_clusters_share_is_rolled_out() {
        use ChangeKind::{ClusterOnly, FirstInstall, KubernetesUpgrade, Shared, Unchanged};
        let none = json!({});
        let values = json!({"values": "a: 2"});
        let newer = json!({"version": "2.0.0"});
        let folder = |path: &str, digest: &str| {
            json!({
                "source": {"sourceRef": {"name": "apps"}, "path": path},
                "pinned": {"revision": digest, "digest": format!("sha256:{}", digest.repeat(32))},
            })
        };
        let waiting = release(&none, "WaitingForDependencies", None);
        let unreachable = release(&none, "ClusterUnreachable", None);
        let ready = release(&none, "Ready", Some(3));
        // What, the existing object, the desired spec and shared digest; the kind, and the revision before.
        let rows = [
            ("a new cluster", None, &none, "s1", FirstInstall, None),
            ("nothing is installed yet", Some(&waiting), &values, "s1", FirstInstall, None),
            ("that is not known", Some(&unreachable), &values, "s1", Shared, Some(0)),
            ("no record, same spec", Some(&ready), &none, "s1", Unchanged, None),
            ("no record, another spec", Some(&ready), &values, "s1", Shared, Some(3)),
            ("nothing", Some(&with_record(&none, "s1", "1.35")), &none, "s1", Unchanged, Some(2)),
            ("no effect", Some(&with_record(&none, "s0", "1.35")), &none, "s1", Unchanged, Some(2)),
            (
                "a label of the Cluster",
                Some(&with_record(&none, "s1", "1.35")),
                &values,
                "s1",
                ClusterOnly,
                Some(2),
            ),
            ("the spec", Some(&with_record(&none, "s0", "1.35")), &values, "s1", Shared, Some(3)),
            ("a newer version", Some(&with_record(&none, "s1", "1.35")), &newer, "s1", Shared, Some(3)),
            (
                "an upgrade of Kubernetes",
                Some(&with_record(&none, "s1", "1.34")),
                &newer,
                "s1",
                KubernetesUpgrade,
                Some(2),
            ),
            (
                "that needs no version",
                Some(&with_record(&none, "s0", "1.34")),
                &values,
                "s1",
                Shared,
                Some(3),
            ),
            (
                "a revision of the Source",
                Some(&with_record(&folder("a", "c1"), "s1", "1.35")),
                &folder("a", "c2"),
                "s1",
                Shared,
                Some(3),
            ),
            (
                "a label that is part of the path",
                Some(&with_record(&folder("a", "c1"), "s1", "1.35")),
                &folder("b", "c2"),
                "s1",
                ClusterOnly,
                Some(2),
            ),
            (
                "the name of the release",
                Some(&with_record(&none, "s0", "1.35")),
                &json!({"release": {"name": "other", "namespace": "web"}}),
                "s1",
                Shared,
                Some(3),
            ),
        ];
        for (what, existing, desired, spec, expected, from) in rows {
            let (kind, record) = kind(existing, desired, spec);
            assert_eq!((kind, record.from), (expected, from), "{what}");
            let is_kept = kind != Shared && from.is_some();
            assert_eq!(record.failed.is_some(), is_kept, "{what}: an update forgets failures");
            assert_eq!((&*record.spec, record.kubernetes.as_deref()), (spec, Some("1.35")), "{what}");
        }
    }

    #[test]
    fn an_update_without_a_deployed_revision_counts() {
        let mut failing = with_record(&json!({}), "s1", "1.35");
        failing.status.as_mut().unwrap().history.clear();
        let values = json!({"values": "a: 2"});
        let from = |existing: &AddonRelease| kind(Some(existing), &values, "s2").1.from;
        assert_eq!(from(&failing), Some(2), "the update before has never succeeded");
        let mut record = RolloutRecord::of(&failing).unwrap();
        record.ready = Some(record.at);
        record.set(&mut failing);
        assert_eq!(from(&failing), Some(0), "the revision is not known");
    }

    #[test]
    fn defaults_of_another_version_are_no_change_of_the_placement() {
        let existing = with_record(&json!({}), "s1", "1.34");
        let kind = |desired: &Value, kubernetes: &str| {
            let desired = release(desired, "Ready", None);
            let target = RolloutTarget {
                spec: "s1".to_owned(),
                defaults: "d2".to_owned(),
                package: desired.package_key(),
                kubernetes: Some(kubernetes.to_owned()),
            };
            change_kind::<ExtensionInstance>(Some(&existing), &desired, &target)
        };
        let newer = json!({"version": "2.0.0", "values": "a: 2"});
        assert_eq!(kind(&newer, "1.34 to 1.35"), ChangeKind::KubernetesUpgrade);
        assert_eq!(kind(&newer, "1.34"), ChangeKind::Shared);
        assert_eq!(kind(&json!({"values": "a: 2"}), "1.34"), ChangeKind::Shared, "of the same version");
    }

    #[test]
    fn during_an_upgrade_of_kubernetes_versions_follow_it() {
        let kubernetes = "1.34 to 1.35".to_owned();
        let existing = with_record(&json!({}), "s1", &kubernetes);
        let kind = |desired: &Value, spec: &str| {
            let desired = release(desired, "Ready", None);
            let (spec, package) = (spec.to_owned(), desired.package_key());
            let target = RolloutTarget {
                spec,
                package,
                kubernetes: Some(kubernetes.clone()),
                ..RolloutTarget::default()
            };
            change_kind::<ExtensionInstance>(Some(&existing), &desired, &target)
        };
        assert_eq!(kind(&json!({"version": "2.0.0"}), "s1"), ChangeKind::KubernetesUpgrade);
        assert_eq!(kind(&json!({"version": "2.0.0"}), "s2"), ChangeKind::Shared, "the spec has changed, too");
        assert_eq!(kind(&json!({"values": "a: 2"}), "s2"), ChangeKind::Shared);
    }

    #[test]
    fn a_release_without_a_version_is_pinned_to_the_installed_one() {
        let mut existing = release(&json!({}), "Ready", Some(3));
        let package = json!({"reference": "web", "version": "4.0.0", "digest": "sha256:00"});
        existing.status.as_mut().unwrap().package = serde_json::from_value(package).unwrap();
        let pinned = |version: &str| json!({"source": {"repository": "https://charts.example", "chart": "web", "version": version}});
        assert_eq!(kind(Some(&existing), &pinned("4.0.0"), "s1").0, ChangeKind::Unchanged);
        assert_eq!(kind(Some(&existing), &pinned("4.1.0"), "s1").0, ChangeKind::Shared);
        let mut other = pinned("4.0.0");
        other["values"] = json!("a: 2");
        assert_eq!(kind(Some(&existing), &other, "s1").0, ChangeKind::Shared);
    }

    #[test]
    fn what_replaces_a_release_is_still_an_update_if_it_was_never_installed() {
        let mut successor = release(&json!({}), "WaitingForDependencies", None);
        let record = |ready: Option<&str>| RolloutRecord {
            spec: "s1".to_owned(),
            at: BEFORE.parse().unwrap(),
            from: Some(0),
            ready: ready.map(|at| at.parse().unwrap()),
            ..RolloutRecord::default()
        };
        record(None).set(&mut successor);
        let (kind, next) = kind(Some(&successor), &json!({"values": "a: 1"}), "s2");
        assert_eq!((kind, next.from, &*next.spec), (ChangeKind::FirstInstall, Some(0), "s2"));
        let target = RolloutTarget { spec: "s2".to_owned(), ..RolloutTarget::default() };
        record(Some(BEFORE)).set(&mut successor);
        let next = next_record(ChangeKind::FirstInstall, Some(&successor), &target, next.at);
        assert_eq!(next.from, None);
    }

    #[test]
    fn a_deleted_object_is_installed_again() {
        let mut deleted = with_record(&json!({}), "s0", "1.35");
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!(BEFORE)).unwrap();
        assert_eq!(kind(Some(&deleted), &json!({}), "s1").0, ChangeKind::FirstInstall);
    }
}
