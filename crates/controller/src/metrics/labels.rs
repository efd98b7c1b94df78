//! Label sets. Label values are constants, never names of objects.

use prometheus_client::encoding::EncodeLabelSet;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OperationLabels {
    pub kind: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct CallLabels {
    pub verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ChangeLabels {
    pub change: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabels {
    pub kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ScopeLabels {
    pub kind: &'static str,
    pub clusters: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StateLabels {
    pub kind: &'static str,
    pub state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct CategoryLabels {
    pub kind: &'static str,
    pub category: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ClusterLabels {
    pub state: &'static str,
    /// Category of the failure, or empty if there is none.
    pub category: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ClientLabels {
    pub client: &'static str,
    pub verb: &'static str,
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct CacheLabels {
    pub cache: &'static str,
    pub result: &'static str,
}

impl CacheLabels {
    pub fn new(cache: &'static str, hit: bool) -> Self {
        Self { cache, result: if hit { "hit" } else { "miss" } }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct QuotaLabels {
    pub quota: &'static str,
}

/// What a namespace has reached its share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Slots for operations.
    Operations,
    /// Reconciles that wait for repositories or clusters.
    Reconciles,
    /// Time for value templates.
    Templates,
    /// The timeout of an operation.
    Timeout,
}

impl Quota {
    /// All quotas.
    pub const ALL: [Self; 4] = [Self::Operations, Self::Reconciles, Self::Templates, Self::Timeout];

    /// Returns the value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Reconciles => "reconciles",
            Self::Templates => "templates",
            Self::Timeout => "timeout",
        }
    }
}
