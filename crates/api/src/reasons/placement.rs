use super::Reason;
use crate::words::words;

words! {
    /// Why a condition of a placement is as it is: `Ready`, the one of its release objects' specs, or the one of their
    /// readiness.
    pub enum PlacementReason {
        Ready = "Ready",
        /// Every release object has the spec that it should have.
        UpToDate = "UpToDate",
        AllReady = "AllReady",
        NotAllReady = "NotAllReady",
        ClusterSelectionFailed = "ClusterSelectionFailed",
        /// A release object could not be composed: its values could not be rendered, or no version fits.
        NotPossible = "NotPossible",
        WriteFailed = "WriteFailed",
        DeletionFailed = "DeletionFailed",
        /// Releases are to be removed, but others depend on them.
        StillNeeded = "StillNeeded",
        Reinstalling = "Reinstalling",
        Updating = "Updating",
        /// Stored by no controller: commands show it for a status that they cannot read.
        StatusUnreadable = "StatusUnreadable",
    }
}

/// How a kind of placement words its conditions and reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementVocabulary {
    HelmChartProxy,
    ExtensionInstance,
}

impl PlacementVocabulary {
    pub const ALL: [Self; 2] = [Self::HelmChartProxy, Self::ExtensionInstance];

    /// Type of the condition that reports on the specs of the release objects.
    pub const fn specs_up_to_date(self) -> &'static str {
        match self {
            Self::HelmChartProxy => "HelmReleaseProxySpecsUpToDate",
            Self::ExtensionInstance => "Placed",
        }
    }

    /// Type of the condition that reports on the readiness of the release objects.
    pub const fn releases_ready(self) -> &'static str {
        match self {
            Self::HelmChartProxy => "HelmReleaseProxiesReady",
            Self::ExtensionInstance => "ReleasesReady",
        }
    }
}

impl PlacementReason {
    /// As objects of a kind write it.
    pub const fn spelled(self, vocabulary: PlacementVocabulary) -> Reason {
        Reason(match vocabulary {
            PlacementVocabulary::HelmChartProxy => self.caaph(),
            PlacementVocabulary::ExtensionInstance => self.as_str(),
        })
    }

    /// Reads a reason as any kind writes it. Returns `None` for a word that this version does not write.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| [reason.as_str(), reason.caaph()].contains(&word))
    }

    /// Whether it stays until someone corrects something.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::ClusterSelectionFailed
            | Self::NotPossible
            | Self::WriteFailed
            | Self::DeletionFailed
            | Self::StatusUnreadable => true,
            Self::Ready
            | Self::UpToDate
            | Self::AllReady
            | Self::NotAllReady
            | Self::StillNeeded
            | Self::Reinstalling
            | Self::Updating => false,
        }
    }

    /// HelmChartProxy keeps the reasons that users of the Cluster API add-on provider for Helm know.
    const fn caaph(self) -> &'static str {
        match self {
            Self::NotPossible => "ValueParsingFailed",
            Self::WriteFailed => "HelmReleaseProxyCreationFailed",
            Self::DeletionFailed => "HelmReleaseProxyDeletionFailed",
            Self::Reinstalling => "HelmReleaseProxyReinstalling",
            Self::Updating => "HelmReleaseProxySpecsUpdating",
            same => same.as_str(),
        }
    }
}
