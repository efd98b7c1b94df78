//! Why a version cannot be chosen, whatever else is.

use chandler_api::extensions::{Lifecycle, STABLE_CHANNEL};
use semver::Version;

use super::{
    Range,
    universe::{Candidate, Cluster},
};

/// Why a version cannot be chosen, whatever else is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    Kubernetes {
        needs: String,
        has: Version,
    },
    Platform {
        needs: String,
        has: Option<Version>,
    },
    Withdrawn,
    Channel {
        of: String,
        asked: String,
    },
    NeedsItself,
    /// It needs an extension that somebody would have to ask for.
    NobodyAsksFor {
        dependency: String,
    },
    Defect(String),
}

/// What decides about a version besides the version.
pub(super) struct Circumstances<'a> {
    pub extension: &'a str,
    pub lifecycle: Lifecycle,
    pub cluster: &'a Cluster,
    /// None: the stable one.
    pub channel: Option<&'a str>,
    /// Extensions somebody asks for, if all that is needed has to be among them.
    pub only: Option<&'a dyn Fn(&str) -> bool>,
}

/// Why a version cannot be chosen. What runs is not held to what only new choices are: channel and withdrawal.
pub(super) fn rejection(candidate: &Candidate, runs: bool, at: &Circumstances<'_>) -> Option<Rejection> {
    if let Some(defect) = &candidate.defect {
        return Some(Rejection::Defect(defect.clone()));
    }
    if let Some(range) = outside(candidate.kubernetes.as_ref(), Some(&at.cluster.kubernetes)) {
        return Some(Rejection::Kubernetes { needs: range, has: at.cluster.kubernetes.clone() });
    }
    if at.lifecycle == Lifecycle::Platform
        && let Some(range) = outside(candidate.platform.as_ref(), at.cluster.platform.as_ref())
    {
        return Some(Rejection::Platform { needs: range, has: at.cluster.platform.clone() });
    }
    let mut needed = candidate.dependencies.iter().filter(|needed| !needed.optional);
    if candidate.dependencies.iter().any(|needed| needed.extension == at.extension) {
        return Some(Rejection::NeedsItself);
    }
    if let Some(asked_for) = at.only
        && let Some(needed) = needed.find(|needed| !asked_for(&needed.extension))
    {
        return Some(Rejection::NobodyAsksFor { dependency: needed.extension.clone() });
    }
    if runs { None } else { newly_chosen(candidate, at) }
}

fn newly_chosen(candidate: &Candidate, at: &Circumstances<'_>) -> Option<Rejection> {
    if candidate.withdrawn {
        return Some(Rejection::Withdrawn);
    }
    let asked = at.channel.unwrap_or(STABLE_CHANNEL);
    match candidate.channel.as_deref() {
        Some(of) if of != asked => Some(Rejection::Channel { of: of.to_owned(), asked: asked.to_owned() }),
        _ => None,
    }
}

/// The range, if it is there and does not contain the version.
fn outside(range: Option<&Range>, version: Option<&Version>) -> Option<String> {
    let range = range?;
    (!version.is_some_and(|version| range.contains(version))).then(|| range.to_string())
}

impl Rejection {
    /// The predicate of a sentence about one version or several.
    pub fn describe(&self, several: bool) -> String {
        let need = if several { "need" } else { "needs" };
        let are = if several { "are" } else { "is" };
        match self {
            Self::Kubernetes { needs, has } => {
                format!("{need} Kubernetes {needs}, the cluster has {has}")
            }
            Self::Platform { needs, has: Some(has) } => {
                format!("{need} platform {needs}, this one is {has}")
            }
            Self::Platform { needs, has: None } => {
                format!("{need} platform {needs}, and the version of this one is not configured")
            }
            Self::Withdrawn => format!("{are} withdrawn"),
            Self::Channel { of, asked } => format!("{are} in channel {of}, asked for is {asked}"),
            Self::NeedsItself => format!("{need} the extension itself, which cannot be"),
            Self::NobodyAsksFor { dependency } => format!(
                "{need} {dependency}, which nobody asks for: add an ExtensionInstance of it, \
                 or set dependencies: Install"
            ),
            Self::Defect(defect) => format!("cannot be used: {defect}"),
        }
    }
}
