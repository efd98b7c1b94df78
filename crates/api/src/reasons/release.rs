use super::Reason;
use crate::words::words;

words! {
    /// Why a condition of a release object is as it is: `Ready`, `ClusterAvailable`, or the one of the release itself.
    pub enum ReleaseReason {
        /// The release is as the spec asks.
        Ready = "Ready",
        /// The workload cluster can be used.
        Available = "Available",
        /// The Cluster does not exist.
        GetClusterFailed = "GetClusterFailed",
        ClusterDeleting = "ClusterDeleting",
        /// The control plane of the Cluster is not initialized.
        NotAvailable = "NotAvailable",
        /// The releases of the workload cluster are being listed.
        Connecting = "Connecting",
        /// The Secret with the kubeconfig cannot be used.
        GetKubeconfigFailed = "GetKubeconfigFailed",
        ClusterUnreachable = "ClusterUnreachable",
        ClusterUnauthorized = "ClusterUnauthorized",
        ClusterForbidden = "ClusterForbidden",
        /// The Secret with the credentials of the source cannot be used.
        GetCredentialsFailed = "GetCredentialsFailed",
        /// The Secret with the certificate authority of the source cannot be used.
        GetCaCertificateFailed = "GetCACertificateFailed",
        /// The spec of the release object cannot be used.
        InvalidSpec = "InvalidSpec",
        /// A required signature of the package is missing or is not a valid one.
        VerificationFailed = "VerificationFailed",
        /// Another object claims the same release.
        ReleaseCollision = "ReleaseCollision",
        /// Releases that must be ready first are not.
        WaitingForDependencies = "WaitingForDependencies",
        /// The release is to be removed, but others depend on it.
        StillNeeded = "StillNeeded",
        /// Package and values are being resolved.
        Preparing = "Preparing",
        /// An operation is queued or running.
        Pending = "Pending",
        ApplyFailed = "ApplyFailed",
        ReadFailed = "ReadFailed",
        RemovalFailed = "RemovalFailed",
        Removing = "Removing",
        Removed = "Removed",
        /// Stored by no controller: commands show it for a status that they cannot read.
        StatusUnreadable = "StatusUnreadable",
    }
}

/// How a kind of release object words its conditions and reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseVocabulary {
    HelmReleaseProxy,
    AddonRelease,
}

impl ReleaseVocabulary {
    pub const ALL: [Self; 2] = [Self::HelmReleaseProxy, Self::AddonRelease];

    /// Type of the condition that reports on the release itself.
    pub const fn release_ready(self) -> &'static str {
        match self {
            Self::HelmReleaseProxy => "HelmReleaseReady",
            Self::AddonRelease => "ReleaseReady",
        }
    }
}

impl ReleaseReason {
    /// As objects of a kind write it.
    pub const fn spelled(self, vocabulary: ReleaseVocabulary) -> Reason {
        Reason(match vocabulary {
            ReleaseVocabulary::HelmReleaseProxy => self.caaph(),
            ReleaseVocabulary::AddonRelease => self.as_str(),
        })
    }

    /// Reads a reason as any kind writes it. Returns `None` for a word that this version does not write.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| [reason.as_str(), reason.caaph()].contains(&word))
    }

    /// HelmReleaseProxy keeps the reasons that users of the Cluster API add-on provider for Helm know.
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
