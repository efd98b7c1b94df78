//! Resolves the version of each extension of a cluster, also in the course of a Kubernetes upgrade.

use std::collections::BTreeMap;

use chandler_api::extensions::{AddonRelease, UpgradeMoment};
use kube_core::Resource as _;
use semver::Version;

use super::{
    Demand, InvalidRequest, Kubernetes, UpgradeSteps,
    kubernetes::Upgrade,
    unread::{keep_running_only, undecidable},
};
use crate::resolution::{
    BoundedResolver, Candidate, Cluster, Conflict, Range, Universe, UpgradeOutcome, UpgradePlan, VersionName,
    VersionRequest, plan_upgrade, unread_text,
};

/// Everything that determines the resolution of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolutionInput {
    pub universe: Universe,
    /// Oldest request first.
    pub requests: Vec<VersionRequest>,
    /// Extensions that are requested with an invalid range or whose versions are unknown, and the problem.
    pub invalid: BTreeMap<String, String>,
    /// The version of the platform, if it is known.
    pub platform: Option<Version>,
    /// The version of each extension that is installed.
    pub running: BTreeMap<String, VersionName>,
    pub kubernetes: Kubernetes,
}

/// The version that each extension of a cluster should have now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    pub chosen: BTreeMap<String, Chosen>,
    /// Extensions whose request cannot be satisfied, and why.
    pub refused: BTreeMap<String, String>,
    /// The plan of the Kubernetes upgrade that is in progress.
    pub upgrade: Option<UpgradePlan>,
}

/// A chosen version, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub version: VersionName,
    pub message: String,
    /// Extensions that have to be ready first.
    pub after: Vec<String>,
    pub requested: bool,
}

impl ResolutionInput {
    /// Creates the input for a cluster with the requests of `demand` and the existing `releases`.
    pub fn new<'a>(
        demand: &Demand,
        releases: impl IntoIterator<Item = &'a AddonRelease>,
        platform: Option<Version>,
        kubernetes: Kubernetes,
    ) -> Self {
        let running = running(releases);
        let mut universe = demand.universe.clone();
        keep_running_only(&mut universe, &running);
        let undecidable = undecidable(&universe, &running);
        let (waiting, mut requests): (Vec<_>, Vec<_>) =
            demand.requests.iter().cloned().partition(|request| undecidable.contains_key(&request.extension));
        let waiting = waiting.into_iter().map(|request| InvalidRequest {
            message: undecidable.get(&request.extension).cloned().unwrap_or_default(),
            extension: request.extension,
            install_dependencies: request.install_dependencies,
        });
        let invalid: Vec<_> = demand.invalid.iter().cloned().chain(waiting).collect();
        for invalid in &invalid {
            requests.extend(pin_invalid(invalid, &requests, &running));
        }
        let invalid = invalid.into_iter().rev();
        let invalid = invalid.map(|request| (request.extension, request.message)).collect();
        Self { universe, requests, invalid, platform, running, kubernetes }
    }

    /// Returns the versions from and to which Kubernetes is upgraded next: the announced upgrade, else to the next
    /// minor version.
    pub fn next_upgrade(&self) -> (Version, Version) {
        let Kubernetes { current, upgrade } = &self.kubernetes;
        match upgrade {
            Some(upgrade) => (upgrade.from.clone(), upgrade.to.clone()),
            None => (current.clone(), Version::new(current.major, current.minor.saturating_add(1), 0)),
        }
    }

    fn cluster(&self, kubernetes: &Version) -> Cluster {
        Cluster {
            kubernetes: kubernetes.clone(),
            platform: self.platform.clone(),
            running: self.running.clone(),
        }
    }

    /// Plans an upgrade of Kubernetes. A request that cannot be satisfied today does not block it, unless a version of
    /// the extension is running.
    pub fn plan(&self, from: &Version, to: &Version) -> UpgradePlan {
        self.plan_without(&resolve_current(self).refused, from, to)
    }

    /// Plans an upgrade of Kubernetes step by step, with the version of each. The plan of a step assumes
    /// that the steps before it are done. Ends with the first step that is blocked.
    ///
    /// Each step is planned when the iterator is asked for it, so a caller can stop in between. How much
    /// work one is, is limited: see [`crate::resolution::BoundedResolver`].
    pub fn plan_steps<'u>(
        &self,
        upgrade: &'u UpgradeSteps,
    ) -> impl Iterator<Item = (&'u Version, UpgradePlan)> {
        let refused = resolve_current(self).refused;
        let (mut input, mut from, mut is_blocked) = (self.clone(), upgrade.from(), false);
        upgrade.versions().iter().map_while(move |next| {
            if is_blocked {
                return None;
            }
            let plan = input.plan_without(&refused, from, next);
            is_blocked = plan.blocks();
            for step in &plan.steps {
                if let UpgradeOutcome::Moves { to, .. } = &step.outcome {
                    input.running.insert(step.extension.clone(), to.clone());
                }
            }
            from = next;
            Some((next, plan))
        })
    }

    fn plan_without(&self, refused: &BTreeMap<String, String>, from: &Version, to: &Version) -> UpgradePlan {
        let is_relevant = |request: &&VersionRequest| {
            !refused.contains_key(&request.extension) || self.running.contains_key(&request.extension)
        };
        let requests: Vec<_> = self.requests.iter().filter(is_relevant).cloned().collect();
        plan_upgrade(&self.universe, &requests, &self.cluster(from), to)
    }
}

/// Returns the version in the spec of each release that is not being deleted, by extension.
fn running<'a>(releases: impl IntoIterator<Item = &'a AddonRelease>) -> BTreeMap<String, VersionName> {
    let releases = releases.into_iter().filter(|release| release.meta().deletion_timestamp.is_none());
    releases
        .filter_map(|release| {
            let version = VersionName::parse(release.spec.version.as_deref()?)?;
            Some((release.spec.extension.clone()?, version))
        })
        .collect()
}

/// Resolves the extensions of a cluster.
///
/// Conflicting requests are refused one by one, the newest first, so that an unsatisfiable request does not affect the
/// others.
pub fn resolve(input: &ResolutionInput) -> Resolution {
    with_upgrade(input, resolve_current(input))
}

/// Does the same as [`resolve`]. Also returns the plan of the next Kubernetes upgrade, see [`ResolutionInput::next_upgrade`].
pub fn resolve_and_plan(input: &ResolutionInput) -> (Resolution, UpgradePlan) {
    let current = resolve_current(input);
    let (from, to) = input.next_upgrade();
    let plan = input.plan_without(&current.refused, &from, &to);
    (with_upgrade(input, current), plan)
}

/// Returns the resolution during the Kubernetes upgrade of the cluster, if there is one.
fn with_upgrade(input: &ResolutionInput, current: Resolution) -> Resolution {
    let Some(upgrade) = &input.kubernetes.upgrade else { return current };
    let next = next_step_begun(input, upgrade);
    let upgrade = next.as_ref().unwrap_or(upgrade);
    let plan = input.plan_without(&current.refused, &upgrade.from, &upgrade.to);
    if plan.blocks() {
        // Requests that block the upgrade must not affect the cluster before the upgrade.
        return Resolution { upgrade: Some(plan), ..current };
    }
    let chosen = during_upgrade(input, &plan, upgrade.reached);
    let mut refused = current.refused;
    refused.retain(|extension, _| !chosen.contains_key(extension));
    Resolution { chosen, refused, upgrade: Some(plan) }
}

/// Returns the next step of an upgrade if an extension has moved for it: to a version that is not compatible with the version of
/// this step. See [`Upgrade::next`].
fn next_step_begun(input: &ResolutionInput, upgrade: &Upgrade) -> Option<Upgrade> {
    let next = upgrade.next.as_ref()?;
    let has_moved = |(extension, version): (&String, &VersionName)| {
        let range =
            candidate(&input.universe, extension, version).and_then(|known| known.kubernetes.as_ref());
        range.is_some_and(|range| range.contains(next) && !range.contains(&upgrade.to))
    };
    input.running.iter().any(has_moved).then(|| Upgrade {
        from: upgrade.to.clone(),
        to: next.clone(),
        reached: UpgradeMoment::BeforeControlPlane,
        next: None,
    })
}

/// Resolves the extensions for the current Kubernetes version, regardless of upgrades.
fn resolve_current(input: &ResolutionInput) -> Resolution {
    let cluster = input.cluster(&input.kubernetes.current);
    let mut requests = input.requests.clone();
    let mut refused = input.invalid.clone();
    let resolver = BoundedResolver::default();
    loop {
        match resolver.resolve(&input.universe, &requests, &cluster) {
            Ok(solution) => {
                let mut chosen: BTreeMap<_, _> = solution
                    .choices
                    .iter()
                    .map(|choice| {
                        let chosen = Chosen {
                            version: choice.version.clone(),
                            message: choice.to_string(),
                            after: choice.after.clone(),
                            requested: choice.requested,
                        };
                        (choice.extension.clone(), chosen)
                    })
                    .collect();
                keep_running(input, &refused, &mut chosen);
                explain_unread(input, &mut chosen);
                explain_refused(&refused, &mut chosen);
                return Resolution { chosen, refused, upgrade: None };
            }
            Err(conflict) if conflict.is_too_complex() && !requests.is_empty() => {
                refuse_complex(input, &conflict, &mut requests, &mut refused);
            }
            Err(conflict) => {
                let Some(at) = request_to_drop(&requests, &input.running, &conflict) else {
                    return Resolution { refused, ..Resolution::default() };
                };
                let request = requests.remove(at);
                if let Some(pinned) = pin_refused(input, &request, &requests, &refused) {
                    requests.insert(at, pinned);
                }
                refused.entry(request.extension).or_insert_with(|| conflict.to_string());
            }
        }
    }
}

/// Returns the index of the request to drop: the newest one that takes part in the conflict, preferably one of an
/// extension that is not running yet.
fn request_to_drop(
    requests: &[VersionRequest],
    running: &BTreeMap<String, VersionName>,
    conflict: &Conflict,
) -> Option<usize> {
    let conflicting = conflict.extensions();
    let newest = |new: bool| {
        requests.iter().rposition(|request| {
            conflicting.contains(request.extension.as_str())
                && running.contains_key(&request.extension) != new
        })
    };
    newest(true).or_else(|| newest(false)).or_else(|| requests.len().checked_sub(1))
}

/// Returns a request for the running version in place of a refused request, so that the other choices stay compatible
/// with it.
///
/// Returns `None` if the extension is not running, if another request asks for it, or if its running version has been
/// refused too.
fn pin_refused(
    input: &ResolutionInput,
    request: &VersionRequest,
    requests: &[VersionRequest],
    refused: &BTreeMap<String, String>,
) -> Option<VersionRequest> {
    let running = input.running.get(&request.extension)?;
    let others = requests.iter().any(|other| other.extension == request.extension);
    let again = refused.contains_key(&request.extension);
    (!others && !again).then(|| VersionRequest { range: Range::exactly(&running.version), ..request.clone() })
}

/// Returns a request for the running version in place of an invalid request, so that the other choices stay compatible
/// with it.
///
/// Returns `None` if the extension is not running, or if a valid request asks for it.
fn pin_invalid(
    invalid: &InvalidRequest,
    requests: &[VersionRequest],
    running: &BTreeMap<String, VersionName>,
) -> Option<VersionRequest> {
    let running = running.get(&invalid.extension)?;
    let others = requests.iter().any(|other| other.extension == invalid.extension);
    (!others).then(|| VersionRequest {
        extension: invalid.extension.clone(),
        range: Range::exactly(&running.version),
        channel: None,
        install_dependencies: invalid.install_dependencies,
    })
}

/// Keeps the running versions of refused extensions and of their dependencies.
fn keep_running(
    input: &ResolutionInput,
    refused: &BTreeMap<String, String>,
    chosen: &mut BTreeMap<String, Chosen>,
) {
    let mut open: Vec<_> = refused.keys().map(|extension| (extension.clone(), None)).collect();
    while let Some((extension, needed_by)) = open.pop() {
        let (Some(version), false) = (input.running.get(&extension), chosen.contains_key(&extension)) else {
            continue;
        };
        let exists = |name: &String| chosen.contains_key(name) || input.running.contains_key(name);
        let after = dependencies(input, &extension, version, exists);
        open.extend(after.iter().map(|dependency| (dependency.clone(), Some(extension.clone()))));
        let kept = Chosen {
            version: version.clone(),
            message: needed_by.map(|by| format!("{version} stays: {by} needs it")).unwrap_or_default(),
            after,
            requested: is_requested(input, &extension),
        };
        chosen.insert(extension, kept);
    }
}

/// Refuses the requests that are too complex, all at once: finding them was work enough. What runs is pinned, unless that is too
/// complex, too.
fn refuse_complex(
    input: &ResolutionInput,
    conflict: &Conflict,
    requests: &mut Vec<VersionRequest>,
    refused: &mut BTreeMap<String, String>,
) {
    let complex = conflict.extensions();
    let (dropped, mut kept): (Vec<_>, Vec<_>) =
        requests.drain(..).partition(|request| complex.contains(request.extension.as_str()));
    for request in dropped {
        kept.extend(pin_refused(input, &request, &kept, refused));
        refused.entry(request.extension).or_insert_with(|| conflict.to_string());
    }
    *requests = kept;
}

fn explain_unread(input: &ResolutionInput, chosen: &mut BTreeMap<String, Chosen>) {
    for (extension, chosen) in chosen {
        if input.universe.extensions.get(extension).is_some_and(|published| published.is_unread) {
            chosen.message = format!("{} stays: {}", chosen.version, unread_text(extension));
        }
    }
}

fn explain_refused(refused: &BTreeMap<String, String>, chosen: &mut BTreeMap<String, Chosen>) {
    for (extension, reason) in refused {
        if let Some(chosen) = chosen.get_mut(extension) {
            chosen.message =
                format!("{} stays although the request cannot be satisfied: {reason}", chosen.version);
        }
    }
}

/// Returns the dependencies of a version for which `exists` holds, sorted by name.
fn dependencies(
    input: &ResolutionInput,
    extension: &str,
    version: &VersionName,
    exists: impl Fn(&String) -> bool,
) -> Vec<String> {
    let dependencies =
        candidate(&input.universe, extension, version).map_or(&[][..], |candidate| &candidate.dependencies);
    let names = dependencies.iter().map(|dependency| dependency.extension.clone());
    let mut names: Vec<_> = names.filter(exists).collect();
    names.sort();
    names
}

fn is_requested(input: &ResolutionInput, extension: &str) -> bool {
    input.requests.iter().any(|request| request.extension == extension)
}

/// Returns the version of each extension when an upgrade has reached a moment.
fn during_upgrade(
    input: &ResolutionInput,
    plan: &UpgradePlan,
    reached: UpgradeMoment,
) -> BTreeMap<String, Chosen> {
    let mut chosen: BTreeMap<String, Chosen> = BTreeMap::new();
    for step in &plan.steps {
        let version = match &step.outcome {
            UpgradeOutcome::Moves { to, when, .. } if *when <= reached => Some(to),
            _ => step.running.as_ref(),
        };
        let Some(version) = version else { continue };
        let entry = Chosen {
            version: version.clone(),
            message: step.to_string(),
            after: dependencies(input, &step.extension, version, |name| chosen.contains_key(name)),
            requested: is_requested(input, &step.extension),
        };
        chosen.insert(step.extension.clone(), entry);
    }
    chosen
}

fn candidate<'u>(universe: &'u Universe, extension: &str, version: &VersionName) -> Option<&'u Candidate> {
    let versions = &universe.extensions.get(extension)?.versions;
    versions.iter().find(|known| known.name.version == version.version)
}

#[cfg(test)]
mod tests;
