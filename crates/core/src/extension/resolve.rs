//! Resolves the version of each extension of a cluster, also in the course of a Kubernetes upgrade.

use std::collections::BTreeMap;

use chandler_api::extensions::{AddonRelease, UpgradeMoment};
use kube_core::Resource as _;
use semver::Version;

use super::{
    Demand, InvalidRequest, Kubernetes,
    kubernetes::{Upgrade, next_step},
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
            None => (current.clone(), Version::new(current.major, current.minor + 1, 0)),
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

    /// Plans an upgrade of Kubernetes minor version by minor version, with the version of each step. The plan of a step
    /// assumes that the steps before it are done. The last step of the result is the first one that is blocked.
    pub fn plan_steps(&self, from: &Version, to: &Version) -> Vec<(Version, UpgradePlan)> {
        let refused = resolve_current(self).refused;
        let (mut input, mut from, mut steps) = (self.clone(), from.clone(), Vec::new());
        loop {
            let next = next_step(&from, to);
            let plan = input.plan_without(&refused, &from, &next);
            let is_last = plan.blocks() || next == *to;
            for step in &plan.steps {
                if let UpgradeOutcome::Moves { to, .. } = &step.outcome {
                    input.running.insert(step.extension.clone(), to.clone());
                }
            }
            steps.push((next.clone(), plan));
            if is_last {
                return steps;
            }
            from = next;
        }
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
    let current = resolve_current(input);
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
mod tests {
    use chandler_api::extensions::{AddonReleaseSpec, ExtensionSpec};
    use serde_json::{Value, json};

    use super::*;
    use crate::resolution::published;

    fn version(text: &str) -> Version {
        VersionName::parse(text).unwrap().version
    }

    fn upgrade(from: &str, to: &str, reached: UpgradeMoment) -> Upgrade {
        Upgrade { from: version(from), to: version(to), reached, next: None }
    }

    fn input(extensions: &Value, requests: &[&str], running: &[(&str, &str)]) -> ResolutionInput {
        let extensions = extensions.as_object().unwrap().iter().map(|(name, spec)| {
            let spec: ExtensionSpec = serde_json::from_value(spec.clone()).unwrap();
            (name.clone(), published(&spec, |_| None, []))
        });
        ResolutionInput {
            universe: Universe { extensions: extensions.collect() },
            requests: requests
                .iter()
                .map(|name| VersionRequest {
                    extension: (*name).to_owned(),
                    range: Range::any(),
                    channel: None,
                    install_dependencies: true,
                })
                .collect(),
            invalid: BTreeMap::new(),
            platform: None,
            running: running
                .iter()
                .map(|(name, at)| ((*name).to_owned(), VersionName::parse(at).unwrap()))
                .collect(),
            kubernetes: Kubernetes { current: version("1.34.0"), upgrade: None },
        }
    }

    fn listed(version: &str, kubernetes: &str, needs: &[&str]) -> Value {
        let needs: Vec<_> = needs.iter().map(|name| json!({"extension": name})).collect();
        json!({
            "version": version, "kubernetes": kubernetes, "dependencies": needs,
            "source": {"repository": "https://c.example", "chart": "c"},
        })
    }

    fn versions(resolution: &Resolution) -> Vec<(&str, &str)> {
        resolution.chosen.iter().map(|(name, chosen)| (name.as_str(), chosen.version.text.as_str())).collect()
    }

    #[test]
    fn an_unsatisfiable_request_does_not_affect_the_others() {
        let extensions = json!({
            "good": {"versions": [listed("1.0.0", "*", &[])]},
            "bad": {"versions": [listed("1.0.0", ">=1.40", &[])]},
        });
        let resolved = resolve(&input(&extensions, &["bad", "good", "unknown"], &[]));
        assert_eq!(versions(&resolved), [("good", "1.0.0")]);
        assert_eq!(resolved.refused.keys().collect::<Vec<_>>(), ["bad", "unknown"]);
        assert!(resolved.refused["bad"].contains("1.40"), "{:?}", resolved.refused);
    }

    #[test]
    fn an_incompatible_running_version_is_kept() {
        let extensions = json!({"cni": {"versions": [listed("1.0.0", "<1.34", &[])]}});
        let resolved = resolve(&input(&extensions, &["cni"], &[("cni", "1.0.0")]));
        assert_eq!(versions(&resolved), [("cni", "1.0.0")]);
        assert!(resolved.refused.contains_key("cni"));
    }

    #[test]
    fn an_invalid_request_neither_chooses_nor_changes_a_version() {
        let extensions = json!({"app": {"versions": [listed("1.0.0", "*", &[]), listed("2.0.0", "*", &[])]}});
        let input = |running: &[AddonRelease]| {
            let base = input(&extensions, &[], &[]);
            let invalid = InvalidRequest {
                extension: "app".to_owned(),
                message: "latest is not a range".to_owned(),
                install_dependencies: true,
            };
            let demand = Demand { universe: base.universe, invalid: vec![invalid], ..Demand::default() };
            ResolutionInput::new(&demand, running, None, base.kubernetes)
        };
        let new = resolve(&input(&[]));
        assert_eq!(versions(&new), []);
        assert_eq!(new.refused["app"], "latest is not a range");
        let spec = AddonReleaseSpec {
            extension: Some("app".to_owned()),
            version: Some("1.0.0".to_owned()),
            ..AddonReleaseSpec::default()
        };
        let running = resolve(&input(&[AddonRelease::new("app-blue", spec)]));
        assert_eq!(versions(&running), [("app", "1.0.0")]);
        assert!(running.chosen["app"].message.contains("latest is not a range"), "{running:?}");
        assert!(running.chosen["app"].requested);
    }

    /// The requested version is not published; the running one is compatible or not.
    #[test]
    fn a_kept_version_keeps_its_dependencies() {
        for kubernetes in ["*", "<1.34"] {
            let extensions = json!({
                "web": {"versions": [listed("2.1.0", kubernetes, &["certs"])]},
                "certs": {"versions": [listed("1.0.0", "*", &["base"])]},
                "base": {"versions": [listed("1.0.0", "*", &[]), listed("2.0.0", "*", &[])]},
            });
            let running = [("web", "2.1.0"), ("certs", "1.0.0"), ("base", "1.0.0")];
            let mut input = input(&extensions, &["web"], &running);
            input.requests[0].range = "2.2.x".parse().unwrap();
            let resolved = resolve(&input);
            assert_eq!(versions(&resolved), [("base", "1.0.0"), ("certs", "1.0.0"), ("web", "2.1.0")]);
            assert!(resolved.refused["web"].contains("2.2.x"), "{:?}", resolved.refused);
            let web = &resolved.chosen["web"];
            assert_eq!((&*web.after, web.requested), (&["certs".to_owned()][..], true));
            assert!(
                web.message.contains("stays although the request cannot be satisfied"),
                "{}",
                web.message
            );
            assert!(!resolved.chosen["certs"].requested && resolved.chosen["certs"].after == ["base"]);
        }
    }

    #[test]
    fn each_extension_changes_at_its_moment() {
        let at =
            |when: &str, versions: Value| json!({"versions": versions, "kubernetesUpgrade": {"when": when}});
        let per_minor = json!([listed("1.34.0", "~1.34.0", &[]), listed("1.35.0", "~1.35.0", &[])]);
        let extensions = json!({
            "early": {"versions": [listed("1.0.0", "<1.35", &[]), listed("2.0.0", ">=1.34", &[])]},
            "lockstep": at("AfterControlPlane", per_minor.clone()),
            "late": at("AfterCluster", per_minor),
            "steady": {"versions": [listed("1.0.0", "*", &["early"])]},
        });
        let running = [("early", "1.0.0"), ("lockstep", "1.34.0"), ("late", "1.34.0"), ("steady", "1.0.0")];
        let mut input = input(&extensions, &["early", "lockstep", "late", "steady"], &running);
        let mut resolve_at = |current: &str, reached: Option<UpgradeMoment>| {
            input.kubernetes = Kubernetes {
                current: version(current),
                upgrade: reached.map(|reached| upgrade("1.34.0", "1.35.0", reached)),
            };
            let resolved = resolve(&input);
            for (name, chosen) in &resolved.chosen {
                input.running.insert(name.clone(), chosen.version.clone());
            }
            let at = |name: &str| resolved.chosen[name].version.text.clone();
            (at("early"), at("lockstep"), at("late"), resolved.chosen["steady"].after.clone())
        };
        let row = |early: &str, lockstep: &str, late: &str| {
            (early.to_owned(), lockstep.to_owned(), late.to_owned(), vec!["early".to_owned()])
        };
        assert_eq!(resolve_at("1.34.0", None), row("1.0.0", "1.34.0", "1.34.0"));
        let before = resolve_at("1.34.0", Some(UpgradeMoment::BeforeControlPlane));
        assert_eq!(before, row("2.0.0", "1.34.0", "1.34.0"));
        let between = resolve_at("1.35.0", Some(UpgradeMoment::AfterControlPlane));
        assert_eq!(between, row("2.0.0", "1.35.0", "1.34.0"));
        assert_eq!(resolve_at("1.35.0", None), row("2.0.0", "1.35.0", "1.35.0"));
    }

    #[test]
    fn a_refused_request_does_not_block_an_upgrade() {
        let extensions = json!({"cni": {"versions": [listed("1.0.0", "*", &[])]}});
        let mut input = input(&extensions, &["cni", "unknown"], &[("cni", "1.0.0")]);
        assert!(!input.plan(&version("1.34.0"), &version("1.35.0")).blocks());
        input.kubernetes.upgrade = Some(upgrade("1.34.0", "1.35.0", UpgradeMoment::BeforeControlPlane));
        let resolved = resolve(&input);
        assert_eq!(versions(&resolved), [("cni", "1.0.0")]);
        assert_eq!(resolved.refused.keys().collect::<Vec<_>>(), ["unknown"]);
    }

    #[test]
    fn a_blocked_upgrade_changes_nothing() {
        let extensions = json!({"cni": {"versions": [listed("1.0.0", "<1.35", &[])]}});
        let mut input = input(&extensions, &["cni"], &[("cni", "1.0.0")]);
        input.kubernetes.upgrade = Some(upgrade("1.34.0", "1.35.0", UpgradeMoment::BeforeControlPlane));
        let resolved = resolve(&input);
        assert!(resolved.upgrade.as_ref().is_some_and(UpgradePlan::blocks));
        assert_eq!((versions(&resolved), resolved.refused.len()), (vec![("cni", "1.0.0")], 0));
    }
    /// The steps of the moves of an extension whose versions are for one minor version each.
    fn moves(plans: &[(Version, UpgradePlan)]) -> Vec<(String, String)> {
        let text = |step: &crate::resolution::Step| match &step.outcome {
            UpgradeOutcome::Moves { to, .. } => to.text.clone(),
            other => format!("{other:?}"),
        };
        plans.iter().map(|(to, plan)| (to.to_string(), plan.steps.iter().map(text).collect())).collect()
    }

    #[test]
    fn an_upgrade_over_several_minor_versions_is_planned_step_by_step() {
        let each: Vec<_> =
            (34..=36).map(|minor| listed(&format!("1.{minor}.0"), &format!("1.{minor}.x"), &[])).collect();
        let (from, to) = (version("1.34.2"), version("1.36.1"));
        let all = input(&json!({"cloud": {"versions": each}}), &["cloud"], &[("cloud", "1.34.0")]);
        let plans = all.plan_steps(&from, &to);
        let expected = [("1.35.0", "1.35.0"), ("1.36.1", "1.36.0")];
        assert_eq!(moves(&plans), expected.map(|(to, version)| (to.to_owned(), version.to_owned())));

        let without = json!({"cloud": {"versions": [each[0], each[2]]}});
        let plans = input(&without, &["cloud"], &[("cloud", "1.34.0")]).plan_steps(&from, &to);
        assert_eq!((plans.len(), &plans[0].0), (1, &version("1.35.0")), "the step to 1.35 is blocked");
        assert!(plans[0].1.blocks());
    }

    /// The version for 1.35 is older than that for 1.34. After the upgrade, the newer one is not chosen again.
    #[test]
    fn an_extension_moves_back_if_only_an_older_version_supports_the_new_kubernetes_version() {
        let versions_of = json!({"cloud": {"versions": [
            listed("1.9.0", ">=1.35", &[]), listed("2.0.0", "<1.35", &[]),
        ]}});
        let (before, after) = (UpgradeMoment::BeforeControlPlane, UpgradeMoment::AfterControlPlane);
        let rows = [
            ("1.34.0", None, "2.0.0", "cloud 2.0.0 is running and compatible"),
            ("1.34.0", Some(before), "2.0.0", "cloud 2.0.0 moves to the older version 1.9.0"),
            ("1.35.0", Some(after), "1.9.0", "cloud 2.0.0 moves to the older version 1.9.0"),
            ("1.35.0", None, "1.9.0", "cloud 1.9.0 is running and compatible"),
        ];
        let mut running = "2.0.0";
        for (current, reached, expected, message) in rows {
            let mut input = input(&versions_of, &["cloud"], &[("cloud", running)]);
            let upgrade = reached.map(|reached| upgrade("1.34.0", "1.35.0", reached));
            input.kubernetes = Kubernetes { current: version(current), upgrade };
            let resolved = resolve(&input);
            assert_eq!(versions(&resolved), [("cloud", expected)], "{current} {reached:?}");
            let found = &resolved.chosen["cloud"].message;
            assert!(found.starts_with(message), "{current} {reached:?}: {found}");
            running = expected;
        }
        // Without hooks, the Kubernetes version may change at once.
        let mut at_once = input(&versions_of, &["cloud"], &[("cloud", "2.0.0")]);
        at_once.kubernetes.current = version("1.35.0");
        let message = resolve(&at_once).chosen["cloud"].message.clone();
        assert!(message.starts_with("cloud moves from 2.0.0 to the older version 1.9.0: "), "{message}");
    }

    #[test]
    fn a_lock_step_extension_moves_with_every_step() {
        let each: Vec<_> =
            (34..=36).map(|minor| listed(&format!("1.{minor}.0"), &format!("1.{minor}.x"), &[])).collect();
        let extensions = json!({"cloud": {"versions": each}});
        let (before, after) = (UpgradeMoment::BeforeControlPlane, UpgradeMoment::AfterControlPlane);
        let rows = [
            ("1.34.0", "1.34.0", "1.35.0", before, "1.34.0"),
            ("1.35.0", "1.34.0", "1.35.0", after, "1.35.0"),
            ("1.35.0", "1.35.0", "1.36.0", before, "1.35.0"),
            ("1.36.0", "1.35.0", "1.36.0", after, "1.36.0"),
        ];
        let mut running = "1.34.0";
        for (current, from, to, reached, expected) in rows {
            let mut input = input(&extensions, &["cloud"], &[("cloud", running)]);
            let upgrade = Some(upgrade(from, to, reached));
            input.kubernetes = Kubernetes { current: version(current), upgrade };
            assert_eq!(versions(&resolve(&input)), [("cloud", expected)], "{current} {from} {to}");
            running = expected;
        }
    }

    type Versions<'a> = &'a [(&'a str, &'a str)];

    /// At the start of the second step, the objects of Cluster API look for a moment as at the end of the first one.
    #[test]
    fn what_has_moved_for_the_next_step_does_not_move_back() {
        let each = |needs: [&[&str]; 3]| -> Vec<_> {
            let minors = (34..=36).zip(needs);
            minors
                .map(|(minor, needs)| listed(&format!("1.{minor}.0"), &format!("1.{minor}.x"), needs))
                .collect()
        };
        let library = json!({"versions": [listed("1.0.0", "*", &[]), listed("2.0.0", "*", &[])]});
        let agent = json!({"versions": each([&[], &[], &["library"]]), "kubernetesUpgrade": {"when": "BeforeControlPlane"}});
        let extensions = json!({"agent": agent, "cloud": {"versions": each([&[]; 3])}, "library": library});
        let ended = Upgrade {
            next: Some(version("1.36.0")),
            ..upgrade("1.34.0", "1.35.0", UpgradeMoment::AfterControlPlane)
        };
        // Running versions, then the chosen ones.
        let rows: [(&str, Versions<'_>, Versions<'_>); 3] = [
            (
                "the first step ends",
                &[("agent", "1.35.0"), ("cloud", "1.34.0")],
                &[("agent", "1.35.0"), ("cloud", "1.35.0")],
            ),
            (
                "the second step begins",
                &[("agent", "1.36.0"), ("cloud", "1.35.0"), ("library", "2.0.0")],
                &[("agent", "1.36.0"), ("cloud", "1.35.0"), ("library", "2.0.0")],
            ),
            (
                "without hooks",
                &[("agent", "1.34.0"), ("cloud", "1.34.0")],
                &[("agent", "1.35.0"), ("cloud", "1.35.0")],
            ),
        ];
        for (name, running, expected) in rows {
            let mut input = input(&extensions, &["agent", "cloud"], running);
            input.kubernetes = Kubernetes { current: version("1.35.0"), upgrade: Some(ended.clone()) };
            assert_eq!(versions(&resolve(&input)), expected, "{name}");
        }
    }
}
