//! Which changes of a release object belong to a rollout.

use chandler_api::reasons::ReleaseReason;
use jiff::Timestamp;
use kube_core::Resource as _;

use super::{Mark, Target};
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
    Own,
    /// Another version is needed for the Kubernetes version of its cluster.
    LockStep,
    /// Something has changed that the clusters of the placement share. Only these changes are rolled out.
    Shared,
}

/// Returns how the release object of a cluster changes. `desired` has no mark yet.
pub fn change_kind<P: PlacementKind>(
    existing: Option<&P::Release>,
    desired: &P::Release,
    target: &Target,
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
    let Some(mark) = Mark::of(existing) else {
        // The object has been written without a rollout. If it was to follow the newest version, it is pinned to it now.
        let is_pinned = existing.follows_newest_version() && has_package_of(existing, desired);
        return if is_pinned { ChangeKind::Unchanged } else { ChangeKind::Shared };
    };
    let same_package = existing.package_key() == target.package;
    let same_spec = mark.spec == target.spec && P::same_identity(existing, desired);
    let upgraded = mark.kubernetes.as_ref().zip(target.kubernetes.as_ref()).is_some_and(|(a, b)| a != b);
    // A step of an upgrade may need another version later than it begins.
    let is_upgrading = same_spec && target.kubernetes.as_ref().is_some_and(|minors| minors.contains(UPGRADE));
    if same_spec && (same_package || desired.has_other_folder_of_cluster(existing)) {
        ChangeKind::Own
    } else if (upgraded || is_upgrading) && !same_package {
        ChangeKind::LockStep
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
        Some(ReleaseReason::ApplyFailed | ReleaseReason::RetriesExhausted) => status.last_failure.is_some(),
        _ => false,
    };
    is_known && State::of(release) != State::Unreachable
}

/// Returns the mark of a release object that gets the desired spec now.
pub fn next_mark<R: ReleaseKind>(
    kind: ChangeKind,
    existing: Option<&R>,
    target: &Target,
    now: Timestamp,
) -> Mark {
    let (spec, kubernetes) = (target.spec.clone(), target.kubernetes.clone());
    let new = |from| Mark { spec: spec.clone(), at: now, from, kubernetes: kubernetes.clone() };
    match (kind, existing.and_then(Mark::of)) {
        (ChangeKind::Unchanged | ChangeKind::Own, Some(old)) => Mark { spec, kubernetes, ..old },
        (ChangeKind::Shared, _) => new(existing.and_then(deployed_revision)),
        (ChangeKind::FirstInstall | ChangeKind::LockStep | ChangeKind::Unchanged | ChangeKind::Own, _) => {
            new(None)
        }
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
    use chandler_api::extensions::{AddonRelease, ExtensionInstance};
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

    fn marked(spec: &Value, mark: &str, kubernetes: &str) -> AddonRelease {
        let mut release = release(spec, "Ready", Some(3));
        let mark = Mark {
            spec: mark.to_owned(),
            at: BEFORE.parse().unwrap(),
            from: Some(2),
            kubernetes: Some(kubernetes.to_owned()),
        };
        mark.set(&mut release);
        release
    }

    fn kind(existing: Option<&AddonRelease>, desired: &Value, spec: &str) -> (ChangeKind, Mark) {
        let desired = release(desired, "Ready", None);
        let target = Target {
            spec: spec.to_owned(),
            package: desired.package_key(),
            kubernetes: Some("1.35".to_owned()),
        };
        let kind = change_kind::<ExtensionInstance>(existing, &desired, &target);
        (kind, next_mark(kind, existing, &target, "2026-02-02T00:00:00Z".parse().unwrap()))
    }

    #[test]
    fn only_what_clusters_share_is_rolled_out() {
        use ChangeKind::{FirstInstall, LockStep, Own, Shared, Unchanged};
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
            ("that is not known", Some(&unreachable), &values, "s1", Shared, None),
            ("no mark, same spec", Some(&ready), &none, "s1", Unchanged, None),
            ("no mark, another spec", Some(&ready), &values, "s1", Shared, Some(3)),
            ("nothing", Some(&marked(&none, "s1", "1.35")), &none, "s1", Unchanged, Some(2)),
            ("no effect", Some(&marked(&none, "s0", "1.35")), &none, "s1", Unchanged, Some(2)),
            ("a label of the Cluster", Some(&marked(&none, "s1", "1.35")), &values, "s1", Own, Some(2)),
            ("the spec", Some(&marked(&none, "s0", "1.35")), &values, "s1", Shared, Some(3)),
            ("a newer version", Some(&marked(&none, "s1", "1.35")), &newer, "s1", Shared, Some(3)),
            ("an upgrade of Kubernetes", Some(&marked(&none, "s1", "1.34")), &newer, "s1", LockStep, None),
            ("that needs no version", Some(&marked(&none, "s0", "1.34")), &values, "s1", Shared, Some(3)),
            (
                "a revision of the Source",
                Some(&marked(&folder("a", "c1"), "s1", "1.35")),
                &folder("a", "c2"),
                "s1",
                Shared,
                Some(3),
            ),
            (
                "a label that is part of the path",
                Some(&marked(&folder("a", "c1"), "s1", "1.35")),
                &folder("b", "c2"),
                "s1",
                Own,
                Some(2),
            ),
            (
                "the name of the release",
                Some(&marked(&none, "s0", "1.35")),
                &json!({"release": {"name": "other", "namespace": "web"}}),
                "s1",
                Shared,
                Some(3),
            ),
        ];
        for (what, existing, desired, spec, expected, from) in rows {
            let (kind, mark) = kind(existing, desired, spec);
            assert_eq!((kind, mark.from), (expected, from), "{what}");
            assert_eq!((&*mark.spec, mark.kubernetes.as_deref()), (spec, Some("1.35")), "{what}");
        }
    }

    #[test]
    fn during_an_upgrade_of_kubernetes_versions_move_with_it() {
        let kubernetes = "1.34 to 1.35".to_owned();
        let existing = marked(&json!({}), "s1", &kubernetes);
        let kind = |desired: &Value, spec: &str| {
            let desired = release(desired, "Ready", None);
            let (spec, package) = (spec.to_owned(), desired.package_key());
            let target = Target { spec, package, kubernetes: Some(kubernetes.clone()) };
            change_kind::<ExtensionInstance>(Some(&existing), &desired, &target)
        };
        assert_eq!(kind(&json!({"version": "2.0.0"}), "s1"), ChangeKind::LockStep);
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
    fn a_deleted_object_is_installed_again() {
        let mut deleted = marked(&json!({}), "s0", "1.35");
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!(BEFORE)).unwrap();
        assert_eq!(kind(Some(&deleted), &json!({}), "s1").0, ChangeKind::FirstInstall);
    }
}
