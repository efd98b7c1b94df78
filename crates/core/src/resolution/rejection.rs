//! Rejects versions that cannot be chosen regardless of other extensions.

use chandler_api::extensions::{Lifecycle, STABLE_CHANNEL};
use semver::Version;

use super::{
    Range,
    universe::{Candidate, Cluster},
};

/// Why a version cannot be chosen.
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
        requested: String,
    },
    /// Its channel is for clusters of another Kubernetes minor version.
    ChannelOfMinor {
        of: String,
        has: Version,
    },
    NeedsItself,
    /// It depends on an extension that would have to be requested explicitly.
    DependencyNotRequested {
        dependency: String,
    },
    Defect(String),
    /// Its source does not offer it.
    NotOffered(String),
}

/// The constraints that apply to all versions of an extension.
pub(super) struct Constraints<'a> {
    pub extension: &'a str,
    pub lifecycle: Lifecycle,
    pub cluster: &'a Cluster,
    /// The requested channel. `None` means the stable one.
    pub channel: Option<&'a str>,
    /// Returns whether an extension is requested. Set if all dependencies have to be requested explicitly.
    pub is_requested: Option<&'a dyn Fn(&str) -> bool>,
}

/// Returns why a version cannot be chosen. Channel, withdrawal and what its source offers do not apply to the
/// running version.
pub(super) fn rejection(
    candidate: &Candidate,
    is_running: bool,
    constraints: &Constraints<'_>,
) -> Option<Rejection> {
    if let Some(defect) = &candidate.defect {
        return Some(Rejection::Defect(defect.clone()));
    }
    if let Some(range) = outside(candidate.kubernetes.as_ref(), Some(&constraints.cluster.kubernetes)) {
        return Some(Rejection::Kubernetes { needs: range, has: constraints.cluster.kubernetes.clone() });
    }
    if constraints.lifecycle == Lifecycle::Platform
        && let Some(range) = outside(candidate.platform.as_ref(), constraints.cluster.platform.as_ref())
    {
        return Some(Rejection::Platform { needs: range, has: constraints.cluster.platform.clone() });
    }
    let mut required = candidate.dependencies.iter().filter(|dependency| !dependency.optional);
    if candidate.dependencies.iter().any(|dependency| dependency.extension == constraints.extension) {
        return Some(Rejection::NeedsItself);
    }
    if let Some(is_requested) = constraints.is_requested
        && let Some(missing) = required.find(|dependency| !is_requested(&dependency.extension))
    {
        return Some(Rejection::DependencyNotRequested { dependency: missing.extension.clone() });
    }
    if is_running { None } else { rejection_of_new(candidate, constraints) }
}

fn rejection_of_new(candidate: &Candidate, constraints: &Constraints<'_>) -> Option<Rejection> {
    if candidate.withdrawn {
        return Some(Rejection::Withdrawn);
    }
    if let Some(why) = &candidate.not_offered {
        return Some(Rejection::NotOffered(why.clone()));
    }
    let requested = constraints.channel.unwrap_or(STABLE_CHANNEL);
    let of = candidate.channel.as_deref().filter(|of| *of != requested)?;
    let has = &constraints.cluster.kubernetes;
    match minor_of_channel(of) {
        Some(minor) if requested == STABLE_CHANNEL => {
            let is_of_cluster = minor == (has.major, has.minor);
            (!is_of_cluster).then(|| Rejection::ChannelOfMinor { of: of.to_owned(), has: has.clone() })
        }
        _ => Some(Rejection::Channel { of: of.to_owned(), requested: requested.to_owned() }),
    }
}

/// Returns the Kubernetes minor version that a channel is named like: `1.35`, `v1.35`. Such a channel is offered to clusters of
/// that minor version. It can also be a product line, so it says nothing about the versions that run, nor if it is requested
/// by name.
fn minor_of_channel(channel: &str) -> Option<(u64, u64)> {
    let (major, minor) = channel.strip_prefix('v').unwrap_or(channel).split_once('.')?;
    let number = |text: &str| text.parse().ok().filter(|_| text.chars().all(|c| c.is_ascii_digit()));
    number(major).zip(number(minor))
}

/// Returns the range if it is set and does not contain the version.
fn outside(range: Option<&Range>, version: Option<&Version>) -> Option<String> {
    let range = range?;
    (!version.is_some_and(|version| range.contains(version))).then(|| range.to_string())
}

impl Rejection {
    /// Returns the predicate of a sentence about one version or several.
    pub fn describe(&self, several: bool) -> String {
        let need = if several { "need" } else { "needs" };
        let are = if several { "are" } else { "is" };
        match self {
            Self::Kubernetes { needs, has } => {
                format!("{need} Kubernetes {needs}, the cluster has {has}")
            }
            Self::Platform { needs, has: Some(has) } => {
                format!("{need} platform {needs}, the platform has {has}")
            }
            Self::Platform { needs, has: None } => {
                format!("{need} platform {needs}, but the version of the platform is not configured")
            }
            Self::Withdrawn => format!("{are} withdrawn"),
            Self::Channel { of, requested } => format!("{are} in channel {of}, but {requested} is requested"),
            Self::ChannelOfMinor { of, has } => {
                format!("{are} in channel {of}, which is for another minor version, the cluster has {has}")
            }
            Self::NeedsItself => format!("{need} the extension itself"),
            Self::DependencyNotRequested { dependency } => format!(
                "{need} {dependency}, which is not requested: add an ExtensionInstance for it, \
                 or set dependencies: Install"
            ),
            Self::Defect(defect) => format!("cannot be used: {defect}"),
            Self::NotOffered(why) => format!("{are} not offered: {why}"),
        }
    }
}
