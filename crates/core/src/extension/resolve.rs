//! What each extension of a cluster should be at now.

use std::collections::BTreeMap;

use chandler_api::extensions::AddonRelease;
use kube_core::Resource as _;
use semver::Version;

use super::{Defect, Demand, Kubernetes};
use crate::resolution::{
    self, Candidate, Cluster, Conflict, Outcome, Range, Universe, UpgradePlan, VersionName, Wanted,
    plan_upgrade,
};

/// Everything that decides.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolutionInput {
    pub universe: Universe,
    /// Oldest request first.
    pub wanted: Vec<Wanted>,
    /// Extensions that are asked for by a text that is not a range, and what is wrong with it.
    pub defects: BTreeMap<String, String>,
    pub platform: Option<Version>,
    pub running: BTreeMap<String, VersionName>,
    pub kubernetes: Kubernetes,
}

/// What each extension of a cluster should be at now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    pub chosen: BTreeMap<String, Chosen>,
    /// Extensions that are wanted and cannot be had, and why.
    pub refused: BTreeMap<String, String>,
    /// What an upgrade that is under way means.
    pub upgrade: Option<UpgradePlan>,
}

/// A version, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub version: VersionName,
    pub message: String,
    /// Extensions that have to be ready before.
    pub after: Vec<String>,
    pub asked_for: bool,
}

impl ResolutionInput {
    /// What is asked about a cluster on which `demand` is asked for and `releases` stand.
    pub fn new<'a>(
        demand: &Demand,
        releases: impl IntoIterator<Item = &'a AddonRelease>,
        platform: Option<Version>,
        kubernetes: Kubernetes,
    ) -> Self {
        let running = running(releases);
        let mut wanted = demand.wanted.clone();
        for defect in &demand.defects {
            wanted.extend(as_it_runs_despite(defect, &wanted, &running));
        }
        let defects = demand.defects.iter().rev();
        let defects = defects.map(|defect| (defect.extension.clone(), defect.message.clone())).collect();
        Self { universe: demand.universe.clone(), wanted, defects, platform, running, kubernetes }
    }

    /// Where an upgrade leads from and to that nobody names: the one that is announced, else the next minor.
    pub fn next_upgrade(&self) -> (Version, Version) {
        let Kubernetes { runs, upgrade } = &self.kubernetes;
        match upgrade {
            Some(upgrade) => (upgrade.from.clone(), upgrade.to.clone()),
            None => (runs.clone(), Version::new(runs.major, runs.minor + 1, 0)),
        }
    }

    fn cluster(&self, kubernetes: &Version) -> Cluster {
        Cluster {
            kubernetes: kubernetes.clone(),
            platform: self.platform.clone(),
            running: self.running.clone(),
        }
    }

    /// What an upgrade would mean. A request that cannot be had today holds nothing up: nothing of it runs.
    pub fn plan(&self, from: &Version, to: &Version) -> UpgradePlan {
        self.plan_without(&settled(self).refused, from, to)
    }

    fn plan_without(&self, refused: &BTreeMap<String, String>, from: &Version, to: &Version) -> UpgradePlan {
        let is_there = |request: &&Wanted| {
            !refused.contains_key(&request.extension) || self.running.contains_key(&request.extension)
        };
        let wanted: Vec<_> = self.wanted.iter().filter(is_there).cloned().collect();
        plan_upgrade(&self.universe, &wanted, &self.cluster(from), to)
    }
}

/// The versions that releases were told to be at, by extension.
fn running<'a>(releases: impl IntoIterator<Item = &'a AddonRelease>) -> BTreeMap<String, VersionName> {
    let standing = releases.into_iter().filter(|release| release.meta().deletion_timestamp.is_none());
    standing
        .filter_map(|release| {
            let version = VersionName::parse(release.spec.version.as_deref()?)?;
            Some((release.spec.extension.clone()?, version))
        })
        .collect()
}

/// Decides. What cannot be had together is refused request by request, the youngest first, so that one bad request keeps nothing
/// else from a cluster.
pub fn resolve(input: &ResolutionInput) -> Resolution {
    let today = settled(input);
    let Some(upgrade) = &input.kubernetes.upgrade else { return today };
    let plan = input.plan_without(&today.refused, &upgrade.from, &upgrade.to);
    if plan.blocks() {
        // What stands in the way of an upgrade must not stand in the way of today.
        return Resolution { upgrade: Some(plan), ..today };
    }
    let chosen = moved(input, &plan, upgrade.reached);
    let mut refused = today.refused;
    refused.retain(|extension, _| !chosen.contains_key(extension));
    Resolution { chosen, refused, upgrade: Some(plan) }
}

fn settled(input: &ResolutionInput) -> Resolution {
    let cluster = input.cluster(&input.kubernetes.runs);
    let mut wanted = input.wanted.clone();
    let mut refused = input.defects.clone();
    loop {
        match resolution::resolve(&input.universe, &wanted, &cluster) {
            Ok(resolution) => {
                let mut chosen: BTreeMap<_, _> = resolution
                    .choices
                    .iter()
                    .map(|choice| {
                        let chosen = Chosen {
                            version: choice.version.clone(),
                            message: choice.to_string(),
                            after: choice.after.clone(),
                            asked_for: choice.asked_for,
                        };
                        (choice.extension.clone(), chosen)
                    })
                    .collect();
                keep_running(input, &refused, &mut chosen);
                tell_refused(&refused, &mut chosen);
                return Resolution { chosen, refused, upgrade: None };
            }
            Err(conflict) => {
                let Some(at) = request_to_drop(&wanted, &input.running, &conflict) else {
                    return Resolution { refused, ..Resolution::default() };
                };
                let request = wanted.remove(at);
                if let Some(stays) = as_it_runs(input, &request, &wanted, &refused) {
                    wanted.insert(at, stays);
                }
                refused.entry(request.extension).or_insert_with(|| conflict.to_string());
            }
        }
    }
}

/// The request to give up: the youngest with a part in the conflict, of those that do not run if there is one.
fn request_to_drop(
    wanted: &[Wanted],
    running: &BTreeMap<String, VersionName>,
    conflict: &Conflict,
) -> Option<usize> {
    let guilty = conflict.extensions();
    let of = |new: bool| {
        wanted.iter().rposition(|request| {
            guilty.contains(request.extension.as_str()) && running.contains_key(&request.extension) != new
        })
    };
    of(true).or_else(|| of(false)).or_else(|| wanted.len().checked_sub(1))
}

/// Instead of a request that cannot be had: what runs of it, so that nothing else is chosen that it cannot live with. None:
/// nothing runs, or not even that can be had, or somebody else wants it too.
fn as_it_runs(
    input: &ResolutionInput,
    request: &Wanted,
    wanted: &[Wanted],
    refused: &BTreeMap<String, String>,
) -> Option<Wanted> {
    let running = input.running.get(&request.extension)?;
    let others = wanted.iter().any(|other| other.extension == request.extension);
    let again = refused.contains_key(&request.extension);
    (!others && !again).then(|| Wanted { range: Range::exactly(&running.version), ..request.clone() })
}

/// Instead of a request that cannot be read: what runs of it, so that nothing else is chosen that it cannot live with.
/// Returns `None` if nothing runs, or if somebody else asks for it in a way that can be read.
fn as_it_runs_despite(
    defect: &Defect,
    wanted: &[Wanted],
    running: &BTreeMap<String, VersionName>,
) -> Option<Wanted> {
    let runs = running.get(&defect.extension)?;
    let others = wanted.iter().any(|other| other.extension == defect.extension);
    (!others).then(|| Wanted {
        extension: defect.extension.clone(),
        range: Range::exactly(&runs.version),
        channel: None,
        install_dependencies: defect.install_dependencies,
    })
}

/// What runs and is refused stays as it is, with all that it needs.
fn keep_running(
    input: &ResolutionInput,
    refused: &BTreeMap<String, String>,
    chosen: &mut BTreeMap<String, Chosen>,
) {
    let mut staying: Vec<_> = refused.keys().map(|extension| (extension.clone(), None)).collect();
    while let Some((extension, needed_by)) = staying.pop() {
        let (Some(version), false) = (input.running.get(&extension), chosen.contains_key(&extension)) else {
            continue;
        };
        let there = |needed: &String| chosen.contains_key(needed) || input.running.contains_key(needed);
        let after = needs(input, &extension, version, there);
        staying.extend(after.iter().map(|needed| (needed.clone(), Some(extension.clone()))));
        let stays = Chosen {
            version: version.clone(),
            message: needed_by.map(|by| format!("{version} stays: {by} needs it")).unwrap_or_default(),
            after,
            asked_for: is_asked_for(input, &extension),
        };
        chosen.insert(extension, stays);
    }
}

fn tell_refused(refused: &BTreeMap<String, String>, chosen: &mut BTreeMap<String, Chosen>) {
    for (extension, why) in refused {
        if let Some(chosen) = chosen.get_mut(extension) {
            chosen.message = format!("{} runs and stays, though it should not: {why}", chosen.version);
        }
    }
}

/// What a version needs, in order, of what is `there`.
fn needs(
    input: &ResolutionInput,
    extension: &str,
    version: &VersionName,
    there: impl Fn(&String) -> bool,
) -> Vec<String> {
    let needs =
        candidate(&input.universe, extension, version).map_or(&[][..], |candidate| &candidate.dependencies);
    let mut needs: Vec<_> = needs.iter().map(|needed| needed.extension.clone()).filter(there).collect();
    needs.sort();
    needs
}

fn is_asked_for(input: &ResolutionInput, extension: &str) -> bool {
    input.wanted.iter().any(|wanted| wanted.extension == extension)
}

/// Where everything is at a moment of an upgrade.
fn moved(
    input: &ResolutionInput,
    plan: &UpgradePlan,
    reached: chandler_api::extensions::UpgradeMoment,
) -> BTreeMap<String, Chosen> {
    let mut chosen: BTreeMap<String, Chosen> = BTreeMap::new();
    for step in &plan.steps {
        let version = match &step.outcome {
            Outcome::Moves { to, when, .. } if *when <= reached => Some(to),
            _ => step.running.as_ref(),
        };
        let Some(version) = version else { continue };
        let entry = Chosen {
            version: version.clone(),
            message: step.to_string(),
            after: needs(input, &step.extension, version, |needed| chosen.contains_key(needed)),
            asked_for: is_asked_for(input, &step.extension),
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
    use chandler_api::extensions::{AddonReleaseSpec, ExtensionSpec, UpgradeMoment};
    use serde_json::{Value, json};

    use super::*;
    use crate::{extension::Upgrade, resolution::published};

    fn version(text: &str) -> Version {
        VersionName::parse(text).unwrap().version
    }

    fn input(extensions: &Value, wanted: &[&str], running: &[(&str, &str)]) -> ResolutionInput {
        let extensions = extensions.as_object().unwrap().iter().map(|(name, spec)| {
            let spec: ExtensionSpec = serde_json::from_value(spec.clone()).unwrap();
            (name.clone(), published(&spec, |_| None, []))
        });
        ResolutionInput {
            universe: Universe { extensions: extensions.collect() },
            wanted: wanted
                .iter()
                .map(|name| Wanted {
                    extension: (*name).to_owned(),
                    range: Range::any(),
                    channel: None,
                    install_dependencies: true,
                })
                .collect(),
            defects: BTreeMap::new(),
            platform: None,
            running: running
                .iter()
                .map(|(name, at)| ((*name).to_owned(), VersionName::parse(at).unwrap()))
                .collect(),
            kubernetes: Kubernetes { runs: version("1.34.0"), upgrade: None },
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
    fn one_bad_wish_keeps_nothing_else_from_a_cluster() {
        let extensions = json!({
            "good": {"versions": [listed("1.0.0", "*", &[])]},
            "bad": {"versions": [listed("1.0.0", ">=1.40", &[])]},
        });
        let answer = resolve(&input(&extensions, &["bad", "good", "unknown"], &[]));
        assert_eq!(versions(&answer), [("good", "1.0.0")]);
        assert_eq!(answer.refused.keys().collect::<Vec<_>>(), ["bad", "unknown"]);
        assert!(answer.refused["bad"].contains("1.40"), "{:?}", answer.refused);
    }

    #[test]
    fn what_runs_and_does_not_fit_stays() {
        let extensions = json!({"cni": {"versions": [listed("1.0.0", "<1.34", &[])]}});
        let answer = resolve(&input(&extensions, &["cni"], &[("cni", "1.0.0")]));
        assert_eq!(versions(&answer), [("cni", "1.0.0")]);
        assert!(answer.refused.contains_key("cni"));
    }

    #[test]
    fn a_request_that_cannot_be_read_chooses_nothing_and_moves_nothing() {
        let extensions = json!({"app": {"versions": [listed("1.0.0", "*", &[]), listed("2.0.0", "*", &[])]}});
        let asked = |running: &[AddonRelease]| {
            let base = input(&extensions, &[], &[]);
            let defect = Defect {
                extension: "app".to_owned(),
                message: "latest is not a range".to_owned(),
                install_dependencies: true,
            };
            let demand = Demand { universe: base.universe, defects: vec![defect], ..Demand::default() };
            ResolutionInput::new(&demand, running, None, base.kubernetes)
        };
        let new = resolve(&asked(&[]));
        assert_eq!(versions(&new), []);
        assert_eq!(new.refused["app"], "latest is not a range");
        let spec = AddonReleaseSpec {
            extension: Some("app".to_owned()),
            version: Some("1.0.0".to_owned()),
            ..AddonReleaseSpec::default()
        };
        let runs = resolve(&asked(&[AddonRelease::new("app-blue", spec)]));
        assert_eq!(versions(&runs), [("app", "1.0.0")]);
        assert!(runs.chosen["app"].message.contains("latest is not a range"), "{runs:?}");
        assert!(runs.chosen["app"].asked_for);
    }

    /// Whether the version is not offered any more or does not fit any more.
    #[test]
    fn what_stays_keeps_what_it_needs_as_it_is() {
        for kubernetes in ["*", "<1.34"] {
            let extensions = json!({
                "web": {"versions": [listed("2.1.0", kubernetes, &["certs"])]},
                "certs": {"versions": [listed("1.0.0", "*", &["base"])]},
                "base": {"versions": [listed("1.0.0", "*", &[]), listed("2.0.0", "*", &[])]},
            });
            let running = [("web", "2.1.0"), ("certs", "1.0.0"), ("base", "1.0.0")];
            let mut asked = input(&extensions, &["web"], &running);
            asked.wanted[0].range = "2.2.x".parse().unwrap();
            let answer = resolve(&asked);
            assert_eq!(versions(&answer), [("base", "1.0.0"), ("certs", "1.0.0"), ("web", "2.1.0")]);
            assert!(answer.refused["web"].contains("2.2.x"), "{:?}", answer.refused);
            let web = &answer.chosen["web"];
            assert_eq!((&*web.after, web.asked_for), (&["certs".to_owned()][..], true));
            assert!(web.message.contains("stays, though it should not"), "{}", web.message);
            assert!(!answer.chosen["certs"].asked_for && answer.chosen["certs"].after == ["base"]);
        }
    }

    #[test]
    fn each_moves_at_its_moment() {
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
        let mut asked = input(&extensions, &["early", "lockstep", "late", "steady"], &running);
        let to = version("1.35.0");
        let mut seen = |runs: &str, reached: Option<UpgradeMoment>| {
            asked.kubernetes = Kubernetes {
                runs: version(runs),
                upgrade: reached.map(|reached| Upgrade { from: version("1.34.0"), to: to.clone(), reached }),
            };
            let answer = resolve(&asked);
            for (name, chosen) in &answer.chosen {
                asked.running.insert(name.clone(), chosen.version.clone());
            }
            let at = |name: &str| answer.chosen[name].version.text.clone();
            (at("early"), at("lockstep"), at("late"), answer.chosen["steady"].after.clone())
        };
        let row = |early: &str, lockstep: &str, late: &str| {
            (early.to_owned(), lockstep.to_owned(), late.to_owned(), vec!["early".to_owned()])
        };
        assert_eq!(seen("1.34.0", None), row("1.0.0", "1.34.0", "1.34.0"));
        let before = seen("1.34.0", Some(UpgradeMoment::BeforeControlPlane));
        assert_eq!(before, row("2.0.0", "1.34.0", "1.34.0"));
        let between = seen("1.35.0", Some(UpgradeMoment::AfterControlPlane));
        assert_eq!(between, row("2.0.0", "1.35.0", "1.34.0"));
        assert_eq!(seen("1.35.0", None), row("2.0.0", "1.35.0", "1.35.0"));
    }

    #[test]
    fn what_cannot_be_had_today_holds_no_upgrade_up() {
        let extensions = json!({"cni": {"versions": [listed("1.0.0", "*", &[])]}});
        let mut asked = input(&extensions, &["cni", "unknown"], &[("cni", "1.0.0")]);
        let (from, to) = (version("1.34.0"), version("1.35.0"));
        assert!(!asked.plan(&from, &to).blocks());
        asked.kubernetes.upgrade = Some(Upgrade { from, to, reached: UpgradeMoment::BeforeControlPlane });
        let answer = resolve(&asked);
        assert_eq!(versions(&answer), [("cni", "1.0.0")]);
        assert_eq!(answer.refused.keys().collect::<Vec<_>>(), ["unknown"]);
    }

    #[test]
    fn a_blocked_upgrade_changes_nothing_today() {
        let extensions = json!({"cni": {"versions": [listed("1.0.0", "<1.35", &[])]}});
        let mut asked = input(&extensions, &["cni"], &[("cni", "1.0.0")]);
        let reached = UpgradeMoment::BeforeControlPlane;
        asked.kubernetes.upgrade = Some(Upgrade { from: version("1.34.0"), to: version("1.35.0"), reached });
        let answer = resolve(&asked);
        assert!(answer.upgrade.as_ref().is_some_and(UpgradePlan::blocks));
        assert_eq!((versions(&answer), answer.refused.len()), (vec![("cni", "1.0.0")], 0));
    }
}
