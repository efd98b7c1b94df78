use std::collections::{BTreeMap, BTreeSet};

use super::fixtures::{cluster, published, requests, universe};
use crate::resolution::{BoundedResolver, Published, Universe, plan_upgrade, resolve};

/// Extensions that `start` needs, of which each needs one of too few slots for itself. Proving that there is no solution takes
/// the solver exponential time.
fn pigeons(start: &str, count: usize) -> BTreeMap<String, Published> {
    let mut all = BTreeMap::new();
    let needs: Vec<_> = (1..=count).map(|pigeon| format!("needs={start}-pigeon-{pigeon}@*")).collect();
    all.insert(start.to_owned(), published(&[&format!("1.0.0 {}", needs.join(" "))]));
    for pigeon in 1..=count {
        let versions: Vec<_> =
            (1..count).map(|slot| format!("{slot}.0.0 needs={start}-slot-{slot}@={pigeon}.0.0")).collect();
        let versions: Vec<_> = versions.iter().map(String::as_str).collect();
        all.insert(format!("{start}-pigeon-{pigeon}"), published(&versions));
    }
    for slot in 1..count {
        let versions: Vec<_> = (1..=count).map(|pigeon| format!("{pigeon}.0.0")).collect();
        let versions: Vec<_> = versions.iter().map(String::as_str).collect();
        all.insert(format!("{start}-slot-{slot}"), published(&versions));
    }
    all
}

fn with_pigeons(count: usize) -> Universe {
    let mut all = universe(&[("web", &["1.0.0", "2.0.0 needs=base@2.x"]), ("base", &["1.0.0", "2.0.0"])]);
    all.extensions.extend(pigeons("bad", count));
    all.extensions.extend(pigeons("worse", count));
    all
}

#[test]
fn a_search_that_takes_too_long_is_given_up_and_names_the_extension() {
    let universe = with_pigeons(14);
    let conflict = resolve(&universe, &requests(&["bad", "web"]), &cluster(&[])).unwrap_err();
    assert!(conflict.is_too_complex());
    assert_eq!(conflict.extensions().into_iter().collect::<Vec<_>>(), ["bad"]);
    assert!(conflict.to_string().starts_with("the dependencies of bad are too complex"), "{conflict}");
    let both = resolve(&universe, &requests(&["bad", "web", "worse"]), &cluster(&[])).unwrap_err();
    assert_eq!(both.extensions().into_iter().collect::<Vec<_>>(), ["bad", "worse"]);
    assert!(resolve(&universe, &requests(&["web"]), &cluster(&[])).is_ok());
}

#[test]
fn a_small_problem_is_solved_or_proven_unsolvable() {
    let conflict = resolve(&with_pigeons(4), &requests(&["bad", "web"]), &cluster(&[])).unwrap_err();
    assert!(!conflict.is_too_complex(), "{conflict}");
}

#[test]
fn a_complex_extension_blocks_a_plan_and_the_plan_names_the_others() {
    let universe = with_pigeons(14);
    let target = semver::Version::new(1, 35, 0);
    let plan = plan_upgrade(&universe, &requests(&["bad", "web"]), &cluster(&["web@1.0.0"]), &target);
    let conflict = plan.conflict.as_ref().unwrap();
    assert!(conflict.is_too_complex());
    assert!(plan.steps.iter().any(|step| step.extension == "web"), "{plan:?}");
}

#[test]
fn many_complex_extensions_of_a_tenant_do_not_make_those_of_the_platform_too_complex() {
    let net: &[&str] = &["1.0.0", "2.0.0 needs=platform/base@2.x"];
    let mut all = universe(&[("platform/net", net), ("platform/base", &["1.0.0", "2.0.0"])]);
    let bad: Vec<_> = (10..60).map(|number| format!("bad-{number}")).collect();
    for name in &bad {
        all.extensions.extend(pigeons(name, 14));
    }
    let bad: BTreeSet<_> = bad.iter().map(String::as_str).collect();
    let requested: Vec<_> = bad.iter().copied().chain(["platform/net"]).collect();
    let resolver = BoundedResolver::default();
    let conflict = resolver.resolve(&all, &requests(&requested), &cluster(&[])).unwrap_err();
    assert!(conflict.is_too_complex());
    assert_eq!(conflict.extensions(), bad);
    assert!(resolver.resolve(&all, &requests(&["platform/net"]), &cluster(&[])).is_ok());
}
