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
        assert!(web.message.contains("stays although the request cannot be satisfied"), "{}", web.message);
        assert!(!resolved.chosen["certs"].requested && resolved.chosen["certs"].after == ["base"]);
    }
}

#[test]
fn each_extension_changes_at_its_moment() {
    let at = |when: &str, versions: Value| json!({"versions": versions, "kubernetesUpgrade": {"when": when}});
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
fn moves(plans: &[(&Version, UpgradePlan)]) -> Vec<(String, String)> {
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
    let upgrade = UpgradeSteps::new(&from, &to).unwrap();
    let plans: Vec<_> = all.plan_steps(&upgrade).collect();
    let expected = [("1.35.0", "1.35.0"), ("1.36.1", "1.36.0")];
    assert_eq!(moves(&plans), expected.map(|(to, version)| (to.to_owned(), version.to_owned())));

    let without = json!({"cloud": {"versions": [each[0], each[2]]}});
    let without = input(&without, &["cloud"], &[("cloud", "1.34.0")]);
    let plans: Vec<_> = without.plan_steps(&upgrade).collect();
    assert_eq!((plans.len(), plans[0].0), (1, &version("1.35.0")), "the step to 1.35 is blocked");
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
        minors.map(|(minor, needs)| listed(&format!("1.{minor}.0"), &format!("1.{minor}.x"), needs)).collect()
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
