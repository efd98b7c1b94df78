//! Pins the stored reasons. If a test here fails, stored conditions change, and scripts and alerts that match them break.

use super::*;
use crate::failure::Category;

fn sorted(reasons: impl IntoIterator<Item = Reason>) -> Vec<&'static str> {
    let mut texts: Vec<_> = reasons.into_iter().map(Reason::as_str).collect();
    texts.sort_unstable();
    texts
}

/// The categories, which catalogs, Extensions and Syncs use as reasons.
const CATEGORIES: [&str; 22] = [
    "Cancelled",
    "Conflict",
    "Forbidden",
    "GetCACertificateFailed",
    "GetCredentialsFailed",
    "HookFailed",
    "Internal",
    "InvalidPackage",
    "InvalidSpec",
    "InvalidValues",
    "NotAllowed",
    "NotReady",
    "PackageNotFound",
    "QuotaExceeded",
    "Rejected",
    "SourceUnavailable",
    "Timeout",
    "ToolCrashed",
    "ToolUnavailable",
    "Unauthorized",
    "Unreachable",
    "VerificationFailed",
];

fn with_categories(others: &[&'static str]) -> Vec<&'static str> {
    let mut texts = [&CATEGORIES[..], others].concat();
    texts.sort_unstable();
    texts
}

#[test]
fn reasons_of_release_objects_are_stable() {
    let of = |vocabulary| sorted(ReleaseReason::ALL.iter().map(|reason| reason.in_vocabulary(vocabulary)));
    assert_eq!(
        of(ReleaseVocabulary::HelmReleaseProxy),
        [
            "Accepted",
            "Available",
            "ClusterDeleting",
            "ClusterForbidden",
            "ClusterUnauthorized",
            "ClusterUnreachable",
            "Connecting",
            "DriftUnknown",
            "Drifted",
            "GetCACertificateFailed",
            "GetClusterFailed",
            "GetCredentialsFailed",
            "GetKubeconfigFailed",
            "HealthUnknown",
            "Healthy",
            "HelmInstallOrUpgradeFailed",
            "HelmReleaseDeleted",
            "HelmReleaseDeleting",
            "HelmReleaseDeletionFailed",
            "HelmReleaseGetFailed",
            "HelmReleasePending",
            "InSync",
            "InvalidSpec",
            "NotAllowed",
            "NotAvailable",
            "PolicyConflict",
            "PolicyInvalid",
            "PolicyNotFound",
            "PreparingToHelmInstall",
            "QuotaExceeded",
            "Ready",
            "ReleaseCollision",
            "RetriesExhausted",
            "RolledBack",
            "Stalled",
            "StatusUnreadable",
            "StillNeeded",
            "Suspended",
            "TestsFailed",
            "TestsSucceeded",
            "TestsUnknown",
            "Unhealthy",
            "VerificationFailed",
            "WaitingForDependencies",
        ]
    );
    assert_eq!(
        of(ReleaseVocabulary::AddonRelease),
        [
            "Accepted",
            "ApplyFailed",
            "Available",
            "ClusterDeleting",
            "ClusterForbidden",
            "ClusterUnauthorized",
            "ClusterUnreachable",
            "Connecting",
            "DriftUnknown",
            "Drifted",
            "GetCACertificateFailed",
            "GetClusterFailed",
            "GetCredentialsFailed",
            "GetKubeconfigFailed",
            "HealthUnknown",
            "Healthy",
            "InSync",
            "InvalidSpec",
            "NotAllowed",
            "NotAvailable",
            "Pending",
            "PolicyConflict",
            "PolicyInvalid",
            "PolicyNotFound",
            "Preparing",
            "QuotaExceeded",
            "ReadFailed",
            "Ready",
            "ReleaseCollision",
            "RemovalFailed",
            "Removed",
            "Removing",
            "RetriesExhausted",
            "RolledBack",
            "Stalled",
            "StatusUnreadable",
            "StillNeeded",
            "Suspended",
            "TestsFailed",
            "TestsSucceeded",
            "TestsUnknown",
            "Unhealthy",
            "VerificationFailed",
            "WaitingForDependencies",
        ]
    );
}

#[test]
fn the_type_of_the_condition_of_a_release_is_stable() {
    assert_eq!(
        ReleaseVocabulary::ALL.map(ReleaseVocabulary::release_ready),
        ["HelmReleaseReady", "ReleaseReady"]
    );
}

#[test]
fn reasons_of_placements_are_stable() {
    let of = |vocabulary| sorted(PlacementReason::ALL.iter().map(|reason| reason.in_vocabulary(vocabulary)));
    assert_eq!(
        of(PlacementVocabulary::HelmChartProxy),
        [
            "AllReady",
            "ClusterSelectionFailed",
            "HelmReleaseProxyCreationFailed",
            "HelmReleaseProxyDeletionFailed",
            "HelmReleaseProxyReinstalling",
            "HelmReleaseProxySpecsUpdating",
            "NotAllReady",
            "Ready",
            "RolledOut",
            "RollingOut",
            "RolloutAborted",
            "RolloutPaused",
            "RolloutSoaking",
            "RolloutStopped",
            "StatusUnreadable",
            "StillNeeded",
            "UpToDate",
            "ValueParsingFailed",
        ]
    );
    assert_eq!(
        of(PlacementVocabulary::ExtensionInstance),
        [
            "AllReady",
            "ClusterSelectionFailed",
            "DeletionFailed",
            "NotAllReady",
            "Ready",
            "Reinstalling",
            "ResolutionFailed",
            "RolledOut",
            "RollingOut",
            "RolloutAborted",
            "RolloutPaused",
            "RolloutSoaking",
            "RolloutStopped",
            "StatusUnreadable",
            "StillNeeded",
            "UpToDate",
            "Updating",
            "WriteFailed",
        ]
    );
    let types = PlacementVocabulary::ALL.map(|one| [one.specs_up_to_date(), one.releases_ready()]);
    assert_eq!(
        types,
        [["HelmReleaseProxySpecsUpToDate", "HelmReleaseProxiesReady"], ["Placed", "ReleasesReady"]]
    );
}

#[test]
fn reasons_of_catalogs_sources_extensions_syncs_and_clusters_are_stable() {
    let categories = Category::ALL.iter().map(|category| category.as_str());
    let mut categories: Vec<_> = categories.collect();
    categories.sort_unstable();
    assert_eq!(categories, CATEGORIES);
    let catalogs = sorted(CatalogReason::all().map(Reason::from));
    assert_eq!(catalogs, with_categories(&["Ready", "VerificationUnavailable"]));
    let sources = sorted(SourceReason::all().map(Reason::from));
    assert_eq!(sources, with_categories(&["Ready", "Suspended"]));
    let extensions = sorted(ExtensionReason::all().map(Reason::from));
    assert_eq!(extensions, with_categories(&["InvalidVersion", "NoAvailableVersion", "Published"]));
    let syncs = sorted(SyncReason::all().map(Reason::from));
    let own = [
        "Applied",
        "ClusterMissing",
        "ClusterPaused",
        "Held",
        "Moving",
        "NotMoving",
        "NothingHeld",
        "Progressing",
        "PruneDisabled",
        "Suspended",
        "WaitingForDependencies",
    ];
    assert_eq!(syncs, with_categories(&own));
    let clusters = sorted(ClusterReason::ALL.iter().copied().map(Reason::from));
    assert_eq!(clusters, ["Blocked", "NotReady", "Ready", "TunnelNotConnected", "Upgradable"]);
}

#[test]
fn reasons_of_the_fleet_config_are_stable() {
    let reasons = sorted(FleetReason::ALL.iter().copied().map(Reason::from));
    assert_eq!(reasons, ["FleetNotInstalled", "InvalidSpec", "NotSupported", "Ready"]);
}

#[test]
fn reasons_of_tunnels_are_stable() {
    let reasons = sorted(TunnelReason::ALL.iter().copied().map(Reason::from));
    let expected = [
        "ClusterMissing",
        "Connected",
        "DuplicateId",
        "InvalidKeys",
        "Joined",
        "KubeconfigRefused",
        "NotConnected",
        "NotJoined",
        "Proxied",
        "Ready",
        "SecretConflict",
        "WaitingForEndpoint",
        "WaitingForKubeconfig",
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn stored_reasons_of_every_kind_parse_to_the_same_reason() {
    for reason in ReleaseReason::ALL.iter().copied() {
        for vocabulary in ReleaseVocabulary::ALL {
            assert_eq!(
                ReleaseReason::parse(reason.in_vocabulary(vocabulary).as_str()),
                Some(reason),
                "{reason} of {vocabulary:?}"
            );
        }
    }
    for reason in PlacementReason::ALL.iter().copied() {
        for vocabulary in PlacementVocabulary::ALL {
            assert_eq!(
                PlacementReason::parse(reason.in_vocabulary(vocabulary).as_str()),
                Some(reason),
                "{reason} of {vocabulary:?}"
            );
        }
    }
    for category in Category::ALL.iter().copied() {
        assert_eq!(Category::parse(category.as_str()), category);
    }
    assert_eq!(ReleaseReason::parse("Unknown"), None);
    assert_eq!(Category::parse("Unknown"), Category::Internal);
}
