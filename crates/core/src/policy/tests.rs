use std::collections::BTreeMap;

use chandler_api::extensions::{HealthPolicy, PlacementName};

use super::*;

fn reference(name: &str) -> PlacementReference {
    PlacementReference { kind: PlacementName::HelmChartProxy, name: name.to_owned() }
}

#[test]
fn an_empty_policy_changes_nothing() {
    let merged = merge(&AddonPolicySpec::default(), &PolicyOptions::default());
    assert_eq!(merged, (ReleasePolicy::default(), None));
    assert_eq!(PolicyState::None.effective(), ReleasePolicy::default());
    let missing = PolicyState::Missing("AddonPolicy fleet/x".to_owned());
    assert_eq!(
        (missing.effective(), missing.missing()),
        (ReleasePolicy::default(), Some("AddonPolicy fleet/x"))
    );
    assert!(ReleasePolicy::default().health, "health is observed by default");
}

#[test]
fn every_field_of_a_policy_applies() {
    let remediation = Remediation { retries: 1, on_failure: OnFailure::Uninstall };
    let spec = AddonPolicySpec {
        suspend: true,
        remediation: Some(remediation),
        health: Some(HealthPolicy { enabled: false }),
        conflicts: Some(FieldConflicts::IgnoreFields),
        depends_on: vec![reference("cni")],
        on_unselect: Some(OnUnselect::Orphan),
        on_cluster_delete: Some(OnClusterDelete::Uninstall),
        crds: Some(CrdsPolicy::CreateReplace),
    };
    let (policy, conflict) = merge(&spec, &PolicyOptions::default());
    let expected = ReleasePolicy {
        suspend: true,
        remediation: Some(remediation),
        health: false,
        conflicts: FieldConflicts::IgnoreFields,
        depends_on: vec![reference("cni")],
        on_unselect: OnUnselect::Orphan,
        on_cluster_delete: Some(OnClusterDelete::Uninstall),
        crds: CrdsPolicy::CreateReplace,
    };
    assert_eq!((&policy, conflict), (&expected, None));
    assert_eq!(PolicyState::Known { policy, conflict: None }.effective(), expected);
}

#[test]
fn options_of_the_placement_win() {
    let spec = |change: fn(&mut AddonPolicySpec)| {
        let mut spec = AddonPolicySpec::default();
        change(&mut spec);
        spec
    };
    let remediation = |on_failure| Some(Remediation { retries: 3, on_failure });
    let options = PolicyOptions::default();
    let (atomic, force, skip) = (
        PolicyOptions { atomic: true, ..options },
        PolicyOptions { force: true, ..options },
        PolicyOptions { skip_crds: true, ..options },
    );
    let default = ReleasePolicy::default();
    let keep = ReleasePolicy { remediation: remediation(OnFailure::Keep), ..default.clone() };
    let rollback = ReleasePolicy { remediation: remediation(OnFailure::Rollback), ..default.clone() };
    let forced = ReleasePolicy { conflicts: FieldConflicts::Force, ..default.clone() };
    let skipped = ReleasePolicy { crds: CrdsPolicy::Skip, ..default.clone() };
    let on_failure =
        |on_failure| AddonPolicySpec { remediation: remediation(on_failure), ..Default::default() };
    let rows = [
        (on_failure(OnFailure::Uninstall), atomic, keep.clone(), Some("onFailure: Uninstall")),
        (on_failure(OnFailure::Rollback), atomic, rollback, None),
        (on_failure(OnFailure::Keep), atomic, keep, None),
        (AddonPolicySpec::default(), force, default, None),
        (spec(|spec| spec.conflicts = Some(FieldConflicts::Force)), force, forced.clone(), None),
        (
            spec(|spec| spec.conflicts = Some(FieldConflicts::Fail)),
            force,
            forced.clone(),
            Some("conflicts: Fail"),
        ),
        (
            spec(|spec| spec.conflicts = Some(FieldConflicts::IgnoreFields)),
            force,
            forced,
            Some("conflicts: IgnoreFields"),
        ),
        (AddonPolicySpec::default(), skip, skipped.clone(), None),
        (spec(|spec| spec.crds = Some(CrdsPolicy::Skip)), skip, skipped.clone(), None),
        (spec(|spec| spec.crds = Some(CrdsPolicy::Create)), skip, skipped.clone(), Some("crds: Create")),
        (
            spec(|spec| spec.crds = Some(CrdsPolicy::CreateReplace)),
            skip,
            skipped,
            Some("crds: CreateReplace"),
        ),
    ];
    for (spec, options, expected, text) in rows {
        let (policy, conflict) = merge(&spec, &options);
        assert_eq!(policy, expected, "{spec:?} {options:?}");
        match (&conflict, text) {
            (Some(conflict), Some(text)) => assert!(conflict.contains(text), "{conflict}"),
            (conflict, text) => assert_eq!(conflict.as_deref(), text, "{spec:?} {options:?}"),
        }
    }
}

#[test]
fn an_annotation_names_a_policy_here_or_of_the_platform() {
    let reference = |name: &str, scope| Some(Reference { name: name.to_owned(), scope });
    let rows = [
        ("careful", reference("careful", Scope::Namespace)),
        (" careful ", reference("careful", Scope::Namespace)),
        ("platform/careful", reference("careful", Scope::Platform)),
        ("other/careful", reference("other/careful", Scope::Namespace)),
        ("platform", reference("platform", Scope::Namespace)),
        // It names no policy that can exist, so that it is reported as missing.
        ("platform/", reference("", Scope::Platform)),
        ("", None),
        ("  ", None),
    ];
    for (text, expected) in rows {
        assert_eq!(parse_reference(text), expected, "{text:?}");
    }
}

#[test]
fn cycles_through_a_placement_are_found() {
    let rows: [(&[(&str, &[&str])], Option<&str>); 8] = [
        (&[], None),
        (&[("a", &["b"]), ("b", &["c"])], None),
        (&[("a", &["a"])], Some("a a")),
        (&[("a", &["b"]), ("b", &["a"])], Some("a b a")),
        (&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])], Some("a b c a")),
        // The shortest one.
        (&[("a", &["b", "d"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])], Some("a d a")),
        // A cycle that `a` only leads to is not its own.
        (&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])], None),
        // Two ways to the same placement are no cycle.
        (&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"])], None),
    ];
    for (edges, expected) in rows {
        let edges: BTreeMap<_, Vec<_>> = edges
            .iter()
            .map(|(from, to)| (reference(from), to.iter().map(|to| reference(to)).collect()))
            .collect();
        let cycle = find_cycle(&reference("a"), |from| edges.get(from).cloned().unwrap_or_default());
        let text = cycle.map(|cycle| cycle_text(&cycle).replace("HelmChartProxy ", "").replace(" -> ", " "));
        assert_eq!(text.as_deref(), expected, "{edges:?}");
    }
    assert_eq!(
        cycle_text(&[reference("a"), reference("b")]),
        "HelmChartProxy a -> HelmChartProxy b -> HelmChartProxy a"
    );
}
