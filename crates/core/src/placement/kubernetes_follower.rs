//! The add-ons whose versions follow the Kubernetes version of their cluster, and what a Kubernetes upgrade waits for because
//! of them.

use std::fmt;

use chandler_api::{capi::PAUSED_ANNOTATION, extensions::UpgradeMoment, reasons::ReleaseReason};
use kube_core::ResourceExt as _;
use semver::Version;

use super::{KubernetesVersions, KubernetesVersionsError, PlacementKind};
use crate::{
    extension::{UpgradeSteps, next_step},
    inventory::ReleaseStatus,
    release::{ReleaseKind, Strategy},
    resolution::{VersionName, moment_text},
    version::choose,
};

/// An add-on of a cluster whose version follows the Kubernetes version of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesFollower {
    /// The name of its placement.
    pub name: String,
    pub versions: Result<KubernetesVersions, KubernetesVersionsError>,
    /// The version that its release object requests. `None` means that there is no release object.
    pub requested: Option<String>,
    /// Whether the requested version is deployed.
    pub deployed: bool,
    /// Why it keeps its version, if it does.
    pub kept: Option<Kept>,
}

/// Why an add-on keeps its version during Kubernetes upgrades, which do not wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its placement or its release object is paused.
    Paused,
    /// It has been installed, and is never changed again.
    InstallOnce,
}

/// What the first step of a Kubernetes upgrade does to an add-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerOutcome<'a> {
    Stays,
    /// It keeps its version, although there is another one for the new Kubernetes version, or none.
    Kept(Kept),
    Moves {
        to: &'a str,
        when: UpgradeMoment,
    },
    /// It has no version for a step of the upgrade.
    Blocks(String),
}

/// What followers answer before a step of a Kubernetes upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeAnswer {
    Proceed,
    /// These have to move first.
    Wait(String),
    /// These have no version.
    Block(String),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "it is paused",
            Self::InstallOnce => "it is installed once and never upgraded",
        })
    }
}

impl KubernetesFollower {
    /// Returns the add-on of a placement on a cluster, or `None` if its version does not follow Kubernetes. `release` is the
    /// release object of the placement on this cluster.
    pub fn new<P: PlacementKind>(
        placement: &P,
        release: Option<&P::Release>,
        cluster_uid: Option<&str>,
    ) -> Option<Self> {
        let versions = placement.kubernetes_versions()?;
        let requested = release.and_then(|release| release.desired().ok()?.package.version);
        let deployed = release
            .zip(requested.as_deref())
            .is_some_and(|(release, requested)| release.is_deployed() || is_settled_with(release, requested));
        let kept = kept(placement, release, cluster_uid);
        if kept.is_some() && versions.is_err() {
            // Invalid annotations do not matter to a release that is left unchanged.
            return None;
        }
        Some(Self { name: placement.name_any(), versions, requested, deployed, kept })
    }

    /// Returns what an upgrade does to this add-on: whether it blocks any step, and else what the first step does.
    pub fn outcome(&self, from: &Version, to: &Version) -> FollowerOutcome<'_> {
        let versions = match &self.versions {
            Ok(versions) => versions,
            Err(error) => return FollowerOutcome::Blocks(error.to_string()),
        };
        let next = next_step(from, to);
        if let Some(kept) = self.kept {
            let changes = self.changes(from, &next);
            return if changes { FollowerOutcome::Kept(kept) } else { FollowerOutcome::Stays };
        }
        if from < to
            && let Err(because) = check_each_step(versions, from, to)
        {
            return FollowerOutcome::Blocks(because);
        }
        match versions.at(&next) {
            Ok(version) if self.changes(from, &next) => {
                FollowerOutcome::Moves { to: version, when: versions.when }
            }
            _ => FollowerOutcome::Stays,
        }
    }

    /// Returns why this add-on blocks an upgrade, minor version by minor version.
    pub fn blocks(&self, from: &Version, to: &Version) -> Option<String> {
        match self.outcome(from, to) {
            FollowerOutcome::Blocks(because) => Some(format!("{} blocks: {because}", self.name)),
            _ => None,
        }
    }

    /// Returns how this add-on moves during the first step of an upgrade, or why it does not although it has another version.
    pub fn moves(&self, from: &Version, to: &Version) -> Option<String> {
        let versions = self.versions.as_ref().ok()?;
        match self.outcome(from, to) {
            FollowerOutcome::Moves { to, when } => {
                let old = versions.at(from).ok();
                let (before, after) = (old.and_then(exact), exact(to));
                let to = after.map_or_else(|| to.to_owned(), |after| after.as_target(before.as_ref()));
                Some(format!("{} moves to {to} {}", self.with_version(old), moment_text(when)))
            }
            FollowerOutcome::Kept(kept) => {
                Some(format!("{} stays, because {kept}", self.with_version(self.requested.as_deref())))
            }
            FollowerOutcome::Stays | FollowerOutcome::Blocks(_) => None,
        }
    }

    fn with_version(&self, version: Option<&str>) -> String {
        version.map_or_else(|| self.name.clone(), |version| format!("{} {version}", self.name))
    }

    /// Returns whether this add-on has other versions for these Kubernetes versions.
    fn changes(&self, from: &Version, to: &Version) -> bool {
        self.versions.as_ref().is_ok_and(|versions| versions.at(from).ok() != versions.at(to).ok())
    }

    /// Returns the version to which this add-on has to move at a moment, unless it is deployed with it.
    fn pending(&self, at: &Version, when: UpgradeMoment) -> Option<String> {
        let versions = self.versions.as_ref().ok()?;
        let moves = self.kept.is_none() && versions.when == when;
        let version = versions.at(at).ok().filter(|_| moves)?;
        let is_done = self.deployed && self.requested.as_deref() == Some(version);
        (!is_done).then(|| format!("{} to {version}", self.name))
    }
}

/// Returns why an upgrade cannot be made: no version is named for one of its steps, or there are too
/// many.
fn check_each_step(versions: &KubernetesVersions, from: &Version, to: &Version) -> Result<(), String> {
    let upgrade = UpgradeSteps::new(from, to).map_err(|error| error.to_string())?;
    let named = upgrade.versions().iter().try_for_each(|step| versions.at(step).map(drop));
    named.map_err(|error| error.to_string())
}

/// Returns a version of three numbers. Fewer are a range, as in Helm, and ranges have no order.
fn exact(text: &str) -> Option<VersionName> {
    let numbers = text.split(['-', '+']).next()?;
    VersionName::parse(text).filter(|_| numbers.split('.').count() == 3)
}

/// Returns why the release object of a placement gets no other version, or why its release is not upgraded to it.
fn kept<P: PlacementKind>(
    placement: &P,
    release: Option<&P::Release>,
    cluster_uid: Option<&str>,
) -> Option<Kept> {
    let is_paused = placement.annotations().contains_key(PAUSED_ANNOTATION)
        || release.is_some_and(|release| release.annotations().contains_key(PAUSED_ANNOTATION));
    let is_final = placement.strategy() == Strategy::InstallOnce
        && release.is_some_and(|release| release.is_marked_installed(cluster_uid));
    if is_final { Some(Kept::InstallOnce) } else { is_paused.then_some(Kept::Paused) }
}

/// Returns whether the deployed revision of a release has the requested version, and no operation is pending. Its release
/// object need not be ready: it may be suspended, or other changes of it may have failed. It does not move for a Kubernetes
/// upgrade.
fn is_settled_with<R: ReleaseKind>(release: &R, requested: &str) -> bool {
    let Some(status) = release.current_status() else { return false };
    let reason = release.readiness().and_then(|ready| ReleaseReason::parse(&ready.reason));
    let is_pending = matches!(reason, None | Some(ReleaseReason::Preparing | ReleaseReason::Pending))
        || ReleaseStatus::parse(&status.status).is_interrupted_or_running();
    let is_deployed = |status: &str| ReleaseStatus::parse(status) == ReleaseStatus::Deployed;
    let deployed = status.history.iter().find(|revision| is_deployed(&revision.status));
    let version = deployed.and_then(|revision| revision.version.as_deref());
    !is_pending && version.is_some_and(|version| choose(Some(requested), [version]).is_some())
}

/// Answers before Kubernetes is upgraded, or before the next step of an upgrade.
pub fn before_upgrade(followers: &[KubernetesFollower], from: &Version, to: &Version) -> UpgradeAnswer {
    let blocks: Vec<_> = followers.iter().filter_map(|follower| follower.blocks(from, to)).collect();
    if !blocks.is_empty() {
        return UpgradeAnswer::Block(blocks.join("; "));
    }
    let step = next_step(from, to);
    let moving = followers.iter().filter(|follower| follower.changes(from, &step));
    wait_for(moving.filter_map(|one| one.pending(&step, UpgradeMoment::BeforeControlPlane)))
}

/// Answers after the control plane was upgraded to a version, before the workers.
///
/// It is not known from which version: an upgrade to another patch version of the same minor version moves no add-on. An
/// add-on without a release object has nothing to move.
pub fn after_control_plane(followers: &[KubernetesFollower], version: &Version) -> UpgradeAnswer {
    let before = Version::new(version.major, version.minor.saturating_sub(1), 0);
    let moving = followers.iter().filter(|one| one.requested.is_some() && one.changes(&before, version));
    wait_for(moving.filter_map(|one| one.pending(version, UpgradeMoment::AfterControlPlane)))
}

fn wait_for(pending: impl Iterator<Item = String>) -> UpgradeAnswer {
    let pending: Vec<_> = pending.collect();
    if pending.is_empty() {
        UpgradeAnswer::Proceed
    } else {
        UpgradeAnswer::Wait(format!("moving {} first", pending.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
    use serde_json::{Value, json};

    use super::*;

    const BOTH: &str = r#"{"1.34": "1.2.x", "1.35": "1.3.x"}"#;
    const PAUSED: (&str, &str) = ("cluster.x-k8s.io/paused", "");

    fn minor(minor: u64) -> Version {
        Version::new(1, minor, 4)
    }

    fn with_annotations(mut object: Value, annotations: &[(&str, &str)]) -> Value {
        for (name, value) in annotations {
            object["metadata"]["annotations"][*name] = json!(value);
        }
        object
    }

    fn placement(when: &str, strategy: &str, annotations: &[(&str, &str)]) -> HelmChartProxy {
        let object = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "cni", "namespace": "fleet", "annotations": {
                "chandler.dev/kubernetes-versions": BOTH, "chandler.dev/kubernetes-upgrade": when,
            }},
            "spec": {
                "clusterSelector": {}, "chartName": "cni", "repoURL": "https://charts.example",
                "reconcileStrategy": strategy,
            },
        });
        serde_json::from_value(with_annotations(object, annotations)).unwrap()
    }

    /// Returns a release object that requests a version. `reason` is that of its condition `Ready`, and `deployed` the version
    /// of its deployed revision.
    fn release(
        requested: &str,
        reason: &str,
        deployed: &str,
        annotations: &[(&str, &str)],
    ) -> HelmReleaseProxy {
        let object = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {"name": "cni-blue", "namespace": "fleet", "generation": 2},
            "spec": {
                "clusterRef": {"name": "blue"}, "chartName": "cni", "repoURL": "https://charts.example",
                "releaseName": "cni", "version": requested,
            },
            "status": {
                "observedGeneration": 2, "status": "deployed",
                "conditions": [{
                    "type": "Ready", "status": if reason == "Ready" { "True" } else { "False" },
                    "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "history": [
                    {"revision": 2, "status": "failed", "version": "1.3.1", "at": "2026-01-01T00:00:00Z"},
                    {"revision": 1, "status": "deployed", "version": deployed, "at": "2026-01-01T00:00:00Z"},
                ],
            },
        });
        serde_json::from_value(with_annotations(object, annotations)).unwrap()
    }

    fn follower(placement: &HelmChartProxy, release: Option<&HelmReleaseProxy>) -> KubernetesFollower {
        KubernetesFollower::new(placement, release, Some("uid")).unwrap()
    }

    fn waits() -> UpgradeAnswer {
        UpgradeAnswer::Wait("moving cni to 1.3.x first".to_owned())
    }

    #[test]
    fn an_upgrade_waits_for_moves_before_the_control_plane() {
        let before = |when: &str, release: Option<HelmReleaseProxy>| {
            let placement = placement(when, "Continuous", &[]);
            before_upgrade(&[follower(&placement, release.as_ref())], &minor(34), &minor(35))
        };
        let (old, moved) = (release("1.2.x", "Ready", "1.2.5", &[]), release("1.3.x", "Ready", "1.3.0", &[]));
        let moving = release("1.3.x", "HelmReleasePending", "1.2.5", &[]);
        let rows = [
            ("moves", "BeforeControlPlane", Some(old.clone()), waits()),
            ("is moving", "BeforeControlPlane", Some(moving), waits()),
            ("not installed yet", "BeforeControlPlane", None, waits()),
            ("has moved", "BeforeControlPlane", Some(moved), UpgradeAnswer::Proceed),
            ("moves later", "AfterControlPlane", Some(old), UpgradeAnswer::Proceed),
        ];
        for (name, when, release, expected) in rows {
            assert_eq!(before(when, release), expected, "{name}");
        }
    }

    #[test]
    fn the_workers_wait_only_for_releases_that_have_to_move() {
        let after = |when: &str, release: Option<HelmReleaseProxy>, version| {
            let placement = placement(when, "Continuous", &[]);
            after_control_plane(&[follower(&placement, release.as_ref())], &minor(version))
        };
        let mut outdated = release("1.3.x", "Suspended", "1.3.0", &[]);
        outdated.metadata.generation = Some(3);
        let of = |requested: &str, reason: &str, deployed: &str| release(requested, reason, deployed, &[]);
        let rows = [
            ("moves", of("1.2.x", "Ready", "1.2.5"), waits()),
            ("is moving", of("1.3.x", "HelmReleasePending", "1.2.5"), waits()),
            ("an operation is pending", of("1.3.x", "HelmReleasePending", "1.3.0"), waits()),
            ("the status is outdated", outdated, waits()),
            ("the move is suspended", of("1.3.x", "Suspended", "1.2.5"), waits()),
            ("the move has failed", of("1.3.x", "RetriesExhausted", "1.2.5"), waits()),
            ("has moved", of("1.3.x", "Ready", "1.3.0"), UpgradeAnswer::Proceed),
            ("is unhealthy", of("1.3.x", "Unhealthy", "1.3.0"), UpgradeAnswer::Proceed),
            ("is suspended", of("1.3.x", "Suspended", "1.3.0"), UpgradeAnswer::Proceed),
            ("another change has failed", of("1.3.x", "RetriesExhausted", "1.3.0"), UpgradeAnswer::Proceed),
        ];
        for (name, release, expected) in rows {
            assert_eq!(after("AfterControlPlane", Some(release), 35), expected, "{name}");
        }
        let old = || Some(of("1.2.x", "Ready", "1.2.5"));
        assert_eq!(after("AfterControlPlane", None, 35), UpgradeAnswer::Proceed, "nothing to move");
        assert_eq!(after("AfterCluster", old(), 35), UpgradeAnswer::Proceed, "moves later");
        assert_eq!(after("AfterControlPlane", old(), 36), UpgradeAnswer::Proceed, "no version");
    }

    #[test]
    fn an_upgrade_does_not_wait_for_releases_that_keep_their_version() {
        let installed = |uid: &'static str| {
            [(HelmReleaseProxy::INSTALLED_ANNOTATION, "true"), ("chandler.dev/installed-on", uid)]
        };
        let old = |annotations: &[(&str, &str)]| release("1.2.x", "Ready", "1.2.5", annotations);
        let invalid = [PAUSED, ("chandler.dev/kubernetes-upgrade", "Later")];
        let rows = [
            ("paused", "Continuous", vec![PAUSED], old(&[]), Some(Kept::Paused)),
            ("release paused", "Continuous", vec![], old(&[PAUSED]), Some(Kept::Paused)),
            ("installed once", "InstallOnce", vec![], old(&installed("uid")), Some(Kept::InstallOnce)),
            ("installed on another Cluster", "InstallOnce", vec![], old(&installed("other")), None),
            ("not installed yet", "InstallOnce", vec![], old(&[]), None),
            ("continuous", "Continuous", vec![], old(&installed("uid")), None),
        ];
        for (name, strategy, annotations, release, expected) in rows {
            let before = follower(&placement("BeforeControlPlane", strategy, &annotations), Some(&release));
            let after = follower(&placement("AfterControlPlane", strategy, &annotations), Some(&release));
            let answers = [
                before_upgrade(&[before], &minor(34), &minor(35)),
                after_control_plane(std::slice::from_ref(&after), &minor(35)),
            ];
            // There is no version for 1.36.
            let blocks = after.blocks(&minor(34), &minor(36)).is_some();
            let message = after.moves(&minor(34), &minor(35)).unwrap();
            if let Some(kept) = expected {
                assert_eq!(answers, [UpgradeAnswer::Proceed, UpgradeAnswer::Proceed], "{name}");
                assert_eq!((blocks, message), (false, format!("cni 1.2.x stays, because {kept}")), "{name}");
            } else {
                assert_eq!(answers, [waits(), waits()], "{name}");
                assert!(blocks && message.contains("1.2.x moves to 1.3.x"), "{name}: {message}");
            }
        }
        let paused = placement("AfterControlPlane", "Continuous", &invalid);
        assert_eq!(KubernetesFollower::new(&paused, Some(&old(&[])), None), None);
    }

    #[test]
    fn an_upgrade_is_blocked_without_a_version() {
        let chart = placement("AfterControlPlane", "Continuous", &[]);
        let UpgradeAnswer::Block(message) = before_upgrade(&[follower(&chart, None)], &minor(34), &minor(36))
        else {
            panic!("the second step has no version")
        };
        assert!(message.contains("cni blocks") && message.contains("Kubernetes 1.36"), "{message}");
        let endless = before_upgrade(&[follower(&chart, None)], &minor(34), &minor(u64::MAX));
        assert!(
            matches!(endless, UpgradeAnswer::Block(text) if text.contains("more than 10 minor versions"))
        );
        let invalid = follower(&placement("Later", "Continuous", &[]), None);
        assert!(matches!(before_upgrade(&[invalid], &minor(34), &minor(35)), UpgradeAnswer::Block(_)));
    }

    #[test]
    fn moves_are_described() {
        let mut chart = placement("AfterControlPlane", "Continuous", &[]);
        chart.spec.version = "1.2.x".to_owned();
        let follower = follower(&chart, None);
        let expected = "cni 1.2.x moves to 1.3.x after the control plane";
        assert_eq!(follower.moves(&minor(34), &minor(35)).as_deref(), Some(expected));
        assert_eq!(follower.moves(&minor(33), &minor(34)), None, "the version stays the same");
    }

    #[test]
    fn moves_to_older_versions_are_described_as_such() {
        let versions = r#"{"1.34": "2.0.0", "1.35": "1.9.0", "1.36": "1.9.x", "1.37": "1.8", "1.38": "1.7.0", "1.39": "v1.6.0"}"#;
        let annotations = [("chandler.dev/kubernetes-versions", versions)];
        let follower = follower(&placement("AfterControlPlane", "Continuous", &annotations), None);
        let moves = |from, to| follower.moves(&minor(from), &minor(to)).unwrap();
        assert_eq!(moves(34, 35), "cni 2.0.0 moves to the older version 1.9.0 after the control plane");
        assert_eq!(moves(35, 36), "cni 1.9.0 moves to 1.9.x after the control plane");
        assert_eq!(moves(36, 37), "cni 1.9.x moves to 1.8 after the control plane", "ranges have no order");
        assert_eq!(moves(37, 38), "cni 1.8 moves to 1.7.0 after the control plane", "a range has no order");
        assert_eq!(moves(38, 39), "cni 1.7.0 moves to the older version v1.6.0 after the control plane");
    }
}
