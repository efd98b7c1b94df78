use super::Reason;
use crate::string_enum::string_enum;

string_enum! {
    /// The reason of a condition of a release object: of `Ready`, of `ClusterAvailable`, of `Healthy`, of `Drifted`, of
    /// `Tested`, of `PolicyAccepted`, or of the condition about the release itself.
    pub enum ReleaseReason {
        /// The release matches the spec.
        Ready = "Ready",
        /// The workload cluster is reachable.
        Available = "Available",
        /// The Cluster does not exist.
        GetClusterFailed = "GetClusterFailed",
        ClusterDeleting = "ClusterDeleting",
        /// The control plane of the Cluster is not initialized.
        NotAvailable = "NotAvailable",
        /// The releases of the workload cluster are being listed.
        Connecting = "Connecting",
        /// The Secret with the kubeconfig is missing or invalid.
        GetKubeconfigFailed = "GetKubeconfigFailed",
        ClusterUnreachable = "ClusterUnreachable",
        ClusterUnauthorized = "ClusterUnauthorized",
        ClusterForbidden = "ClusterForbidden",
        /// The Secret with the credentials of the source is missing or invalid.
        GetCredentialsFailed = "GetCredentialsFailed",
        /// The Secret with the certificate authority of the source is missing or invalid.
        GetCaCertificateFailed = "GetCACertificateFailed",
        /// The spec of the release object is invalid.
        InvalidSpec = "InvalidSpec",
        /// A required signature of the package is missing or invalid.
        VerificationFailed = "VerificationFailed",
        /// The namespace uses as much of a shared resource, such as the package store, as it may.
        QuotaExceeded = "QuotaExceeded",
        /// An AddonTenancy does not allow the source, the namespace, the account or an object of the release.
        NotAllowed = "NotAllowed",
        /// Another object claims the same release.
        ReleaseCollision = "ReleaseCollision",
        /// Releases that this one depends on are not ready.
        WaitingForDependencies = "WaitingForDependencies",
        /// The release should be removed, but other releases depend on it.
        StillNeeded = "StillNeeded",
        /// No operation is started, because the release, its placement or its policy is suspended.
        Suspended = "Suspended",
        /// The AddonPolicy of the placement does not exist.
        PolicyNotFound = "PolicyNotFound",
        /// `PolicyAccepted`: the policy contradicts an option of the placement, which wins.
        PolicyConflict = "PolicyConflict",
        /// `PolicyAccepted`: a part of the policy is invalid and ignored.
        PolicyInvalid = "PolicyInvalid",
        /// `PolicyAccepted`: the policy is used.
        Accepted = "Accepted",
        /// Package and values are being resolved.
        Preparing = "Preparing",
        /// An operation is queued or running, or waits until it is known whether AddonTenancies allow it.
        Pending = "Pending",
        ApplyFailed = "ApplyFailed",
        /// The last retry that the policy allows has failed.
        RetriesExhausted = "RetriesExhausted",
        /// The last retry has failed, and the release was rolled back.
        RolledBack = "RolledBack",
        /// The process of the package tool has ended several times in a row because of this release. It is not tried again.
        Stalled = "Stalled",
        /// `Healthy`: every object of the release exists and is healthy.
        Healthy = "Healthy",
        /// An object of the release is missing or not healthy.
        Unhealthy = "Unhealthy",
        /// `Healthy`: not all objects of the release have been observed.
        HealthUnknown = "HealthUnknown",
        /// `Drifted`: the objects of the release are as the package describes them.
        InSync = "InSync",
        /// `Drifted`: objects of the release were changed or deleted by others.
        Drifted = "Drifted",
        /// `Drifted`: not all objects could be compared.
        DriftUnknown = "DriftUnknown",
        /// `Tested`: the tests of the package have succeeded.
        TestsSucceeded = "TestsSucceeded",
        /// `Tested`: a test of the package has failed.
        TestsFailed = "TestsFailed",
        /// `Tested`: the tests of the newest revision have not ended.
        TestsUnknown = "TestsUnknown",
        ReadFailed = "ReadFailed",
        RemovalFailed = "RemovalFailed",
        Removing = "Removing",
        Removed = "Removed",
        /// Never stored: commands print it for a status that they cannot read.
        StatusUnreadable = "StatusUnreadable",
    }
}

/// The condition types and reasons of one kind of release object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseVocabulary {
    HelmReleaseProxy,
    AddonRelease,
}

impl ReleaseVocabulary {
    pub const ALL: [Self; 2] = [Self::HelmReleaseProxy, Self::AddonRelease];

    /// Returns the type of the condition about the release itself.
    pub const fn release_ready(self) -> &'static str {
        match self {
            Self::HelmReleaseProxy => "HelmReleaseReady",
            Self::AddonRelease => "ReleaseReady",
        }
    }
}

impl ReleaseReason {
    /// Returns the reason as objects of one kind store it.
    pub const fn in_vocabulary(self, vocabulary: ReleaseVocabulary) -> Reason {
        Reason(match vocabulary {
            ReleaseVocabulary::HelmReleaseProxy => self.caaph(),
            ReleaseVocabulary::AddonRelease => self.as_str(),
        })
    }

    /// Parses the stored reason of any kind. Returns `None` if this version does not write it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| [reason.as_str(), reason.caaph()].contains(&text))
    }

    /// Returns the reason that the Cluster API add-on provider for Helm uses. HelmReleaseProxy keeps it.
    const fn caaph(self) -> &'static str {
        match self {
            Self::Preparing => "PreparingToHelmInstall",
            Self::Pending => "HelmReleasePending",
            Self::ApplyFailed => "HelmInstallOrUpgradeFailed",
            Self::ReadFailed => "HelmReleaseGetFailed",
            Self::RemovalFailed => "HelmReleaseDeletionFailed",
            Self::Removing => "HelmReleaseDeleting",
            Self::Removed => "HelmReleaseDeleted",
            same => same.as_str(),
        }
    }
}
