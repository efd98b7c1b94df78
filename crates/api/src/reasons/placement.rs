use super::Reason;
use crate::string_enum::string_enum;

string_enum! {
    /// The reason of a condition of a placement: of `Ready`, of the condition about the specs of its release objects, or of
    /// the condition about their readiness.
    pub enum PlacementReason {
        Ready = "Ready",
        /// Every release object has the desired spec.
        UpToDate = "UpToDate",
        AllReady = "AllReady",
        NotAllReady = "NotAllReady",
        ClusterSelectionFailed = "ClusterSelectionFailed",
        /// A release object could not be built: its values could not be rendered, or no version fits.
        ResolutionFailed = "ResolutionFailed",
        WriteFailed = "WriteFailed",
        DeletionFailed = "DeletionFailed",
        /// Releases should be removed, but other releases depend on them.
        StillNeeded = "StillNeeded",
        Reinstalling = "Reinstalling",
        Updating = "Updating",
        /// No reachable cluster that is not skipped waits for a change.
        RolledOut = "RolledOut",
        RollingOut = "RollingOut",
        /// The next wave of the rollout has to wait.
        RolloutSoaking = "RolloutSoaking",
        RolloutPaused = "RolloutPaused",
        /// Too many releases have failed.
        RolloutStopped = "RolloutStopped",
        RolloutAborted = "RolloutAborted",
        /// Never stored: commands print it for a status that they cannot read.
        StatusUnreadable = "StatusUnreadable",
    }
}

/// The condition types and reasons of one kind of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementVocabulary {
    HelmChartProxy,
    ExtensionInstance,
}

impl PlacementVocabulary {
    pub const ALL: [Self; 2] = [Self::HelmChartProxy, Self::ExtensionInstance];

    /// Returns the type of the condition about the specs of the release objects.
    pub const fn specs_up_to_date(self) -> &'static str {
        match self {
            Self::HelmChartProxy => "HelmReleaseProxySpecsUpToDate",
            Self::ExtensionInstance => "Placed",
        }
    }

    /// Returns the type of the condition about the readiness of the release objects.
    pub const fn releases_ready(self) -> &'static str {
        match self {
            Self::HelmChartProxy => "HelmReleaseProxiesReady",
            Self::ExtensionInstance => "ReleasesReady",
        }
    }
}

impl PlacementReason {
    /// Returns the reason as objects of one kind store it.
    pub const fn in_vocabulary(self, vocabulary: PlacementVocabulary) -> Reason {
        Reason(match vocabulary {
            PlacementVocabulary::HelmChartProxy => self.caaph(),
            PlacementVocabulary::ExtensionInstance => self.as_str(),
        })
    }

    /// Parses the stored reason of any kind. Returns `None` if this version does not write it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| [reason.as_str(), reason.caaph()].contains(&text))
    }

    /// Returns `true` if the reason persists until a user fixes its cause.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::ClusterSelectionFailed
            | Self::ResolutionFailed
            | Self::WriteFailed
            | Self::DeletionFailed
            | Self::RolloutStopped
            | Self::RolloutAborted
            | Self::StatusUnreadable => true,
            Self::Ready
            | Self::UpToDate
            | Self::AllReady
            | Self::NotAllReady
            | Self::StillNeeded
            | Self::Reinstalling
            | Self::Updating
            | Self::RolledOut
            | Self::RollingOut
            | Self::RolloutSoaking
            | Self::RolloutPaused => false,
        }
    }

    /// Returns the reason that the Cluster API add-on provider for Helm uses. HelmChartProxy keeps it.
    const fn caaph(self) -> &'static str {
        match self {
            Self::ResolutionFailed => "ValueParsingFailed",
            Self::WriteFailed => "HelmReleaseProxyCreationFailed",
            Self::DeletionFailed => "HelmReleaseProxyDeletionFailed",
            Self::Reinstalling => "HelmReleaseProxyReinstalling",
            Self::Updating => "HelmReleaseProxySpecsUpdating",
            same => same.as_str(),
        }
    }
}
