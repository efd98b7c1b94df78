use chandler_api::{
    addons::HelmReleaseProxy,
    extensions::{HealthPolicy, RolloutPolicy},
};
use serde_json::json;

use super::*;

fn reference(name: &str) -> PlacementReference {
    PlacementReference { kind: PlacementKindName::HelmChartProxy, name: name.to_owned() }
}

/// A release object with an annotation, if it has a value.
fn release(annotation: &str, value: Option<&str>) -> HelmReleaseProxy {
    let mut release: HelmReleaseProxy = serde_json::from_value(json!({
        "metadata": {"name": "hello-blue"},
        "spec": {"clusterRef": {}, "chartName": "hello", "releaseName": "hello", "repoURL": "https://charts.example"},
    }))
    .unwrap();
    release.annotations_mut().extend(value.map(|value| (annotation.to_owned(), value.to_owned())));
    release
}

#[test]
fn an_empty_policy_changes_nothing() {
    let merged = merge(&AddonPolicySpec::default(), PolicyOverrides::default());
    assert_eq!(merged, (ReleasePolicy::default(), None));
    assert_eq!(*PolicyState::None.effective(), ReleasePolicy::default());
    let missing = PolicyState::Missing("AddonPolicy fleet/x".to_owned());
    assert_eq!(
        (missing.effective(), missing.missing()),
        (&ReleasePolicy::default(), Some("AddonPolicy fleet/x"))
    );
    assert!(ReleasePolicy::default().health, "health is observed by default");
}

#[test]
fn every_field_of_a_policy_applies() {
    let remediation = Remediation { retries: 1, on_failure: OnFailure::Uninstall };
    let drift = DriftPolicy { mode: DriftMode::Correct, ignore: Vec::new() };
    let spec = AddonPolicySpec {
        suspend: true,
        remediation: Some(remediation),
        health: Some(HealthPolicy { enabled: false, checks: Vec::new() }),
        conflicts: Some(FieldConflicts::IgnoreFields),
        depends_on: vec![reference("cni")],
        on_unselect: Some(OnUnselect::Orphan),
        on_cluster_delete: Some(OnClusterDelete::Uninstall),
        crds: Some(CrdsPolicy::CreateReplace),
        drift: Some(drift.clone()),
        test: Some(TestPolicy::default()),
        rollout: Some(RolloutPolicy::default()),
        values_from: vec![ValuesFrom::default()],
    };
    let (policy, conflict) = merge(&spec, PolicyOverrides::default());
    let expected = ReleasePolicy {
        suspend: true,
        remediation: Some(remediation),
        health: false,
        checks: HealthChecks::default(),
        conflicts: FieldConflicts::IgnoreFields,
        depends_on: vec![reference("cni")],
        on_unselect: OnUnselect::Orphan,
        on_cluster_delete: Some(OnClusterDelete::Uninstall),
        crds: CrdsPolicy::CreateReplace,
        drift,
        test: Some(TestPolicy::default()),
        rollout: Some(RolloutPolicy::default()),
        values_from: vec![ValuesFrom::default()],
    };
    assert_eq!((&policy, conflict), (&expected, None));
    assert_eq!(PolicyState::Known { policy: policy.into(), conflict: None }.effective(), &expected);
    let off = TestPolicy { run: false, ..TestPolicy::default() };
    let (policy, _) = merge(&AddonPolicySpec { test: Some(off), ..spec }, PolicyOverrides::default());
    assert_eq!(policy.test, None);
}

#[test]
fn objects_are_compared_if_the_policy_says_so() {
    let known = |mode| {
        let drift = DriftPolicy { mode, ignore: Vec::new() };
        PolicyState::Known {
            policy: ReleasePolicy { drift, ..ReleasePolicy::default() }.into(),
            conflict: None,
        }
    };
    let missing = || PolicyState::Missing("AddonPolicy fleet/x".to_owned());
    let rows = [
        (PolicyState::None, true, false),
        (known(DriftMode::Ignore), true, false),
        (known(DriftMode::Report), false, true),
        (known(DriftMode::Correct), false, true),
        (missing(), false, false),
        (missing(), true, true),
    ];
    for (policy, were_compared, expected) in rows {
        assert_eq!(policy.compares_objects(were_compared), expected, "{policy:?} {were_compared}");
    }
}

#[test]
fn a_missing_policy_changes_neither_health_nor_what_happens_with_the_cluster() {
    use OnClusterDelete::{Skip, Uninstall};
    let known = |on_cluster_delete, health| {
        let policy = ReleasePolicy { health, on_cluster_delete, ..ReleasePolicy::default() };
        PolicyState::Known { policy: policy.into(), conflict: None }
    };
    let missing = || PolicyState::Missing("AddonPolicy fleet/x".to_owned());
    // The policy, the annotation of the release object, whether health was observed; what happens, and whether it is observed.
    let rows = [
        (PolicyState::None, Some("Uninstall"), false, None, true),
        (missing(), None, false, None, false),
        (missing(), None, true, None, true),
        (missing(), Some("Uninstall"), false, Some(Uninstall), false),
        (missing(), Some("Skip"), true, Some(Skip), true),
        (missing(), Some("Explode"), true, None, true),
        (known(None, true), Some("Uninstall"), false, None, true),
        (known(Some(Skip), false), Some("Uninstall"), true, Some(Skip), false),
    ];
    for (state, annotation, was_observed, on_cluster_delete, is_observed) in rows {
        let release = release(ON_CLUSTER_DELETE_ANNOTATION, annotation);
        assert_eq!(state.on_cluster_delete(&release), on_cluster_delete, "{state:?} {annotation:?}");
        assert_eq!(state.observes_health(was_observed), is_observed, "{state:?} {was_observed}");
    }
}

#[test]
fn options_of_the_placement_win() {
    let spec = |change: fn(&mut AddonPolicySpec)| {
        let mut spec = AddonPolicySpec::default();
        change(&mut spec);
        spec
    };
    let remediation = |on_failure| Some(Remediation { retries: 3, on_failure });
    let options = PolicyOverrides::default();
    let (atomic, force, skip) = (
        PolicyOverrides { atomic: true, ..options },
        PolicyOverrides { force: true, ..options },
        PolicyOverrides { skip_crds: true, ..options },
    );
    let parameters = PolicyOverrides { values: ValuesOwner::Placement, ..options };
    let default = ReleasePolicy::default();
    let keep = ReleasePolicy { remediation: remediation(OnFailure::Keep), ..default.clone() };
    let rollback = ReleasePolicy { remediation: remediation(OnFailure::Rollback), ..default.clone() };
    let forced = ReleasePolicy { conflicts: FieldConflicts::Force, ..default.clone() };
    let with_crds = |crds| ReleasePolicy { crds, ..ReleasePolicy::default() };
    let on_failure =
        |on_failure| AddonPolicySpec { remediation: remediation(on_failure), ..Default::default() };
    let rows = [
        (on_failure(OnFailure::Uninstall), atomic, keep.clone(), Some("onFailure: Uninstall")),
        (on_failure(OnFailure::Rollback), atomic, rollback, None),
        (on_failure(OnFailure::Keep), atomic, keep, None),
        (AddonPolicySpec::default(), force, forced.clone(), None),
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
        // The policy keeps its own choice: the option wins when the policy is applied to a release.
        (AddonPolicySpec::default(), skip, default.clone(), None),
        (spec(|spec| spec.crds = Some(CrdsPolicy::Skip)), skip, with_crds(CrdsPolicy::Skip), None),
        (spec(|spec| spec.crds = Some(CrdsPolicy::Create)), skip, default.clone(), Some("crds: Create")),
        (AddonPolicySpec::default(), parameters, default.clone(), None),
        (
            spec(|spec| spec.values_from = vec![ValuesFrom::default()]),
            parameters,
            default,
            Some("parametersFrom"),
        ),
        (
            spec(|spec| spec.crds = Some(CrdsPolicy::CreateReplace)),
            skip,
            with_crds(CrdsPolicy::CreateReplace),
            Some("crds: CreateReplace"),
        ),
    ];
    for (spec, options, expected, text) in rows {
        let (policy, conflict) = merge(&spec, options);
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
        assert_eq!(expected.as_ref().map(reference_text).unwrap_or_default(), text.trim());
    }
}

#[test]
fn an_annotation_names_the_policy_of_a_helm_chart_proxy_only() {
    let referenced = Some(Reference { name: "referenced".to_owned(), scope: Scope::Namespace });
    let annotations = BTreeMap::from([(POLICY_ANNOTATION.to_owned(), "annotated".to_owned())]);
    let policy = |kind, policy_ref| policy_of(kind, &annotations, policy_ref).map(|found| found.name);
    let (chart, instance) = (PlacementKindName::HelmChartProxy, PlacementKindName::ExtensionInstance);
    assert_eq!(policy(chart, None).as_deref(), Some("annotated"));
    assert_eq!(policy(instance, referenced).as_deref(), Some("referenced"));
    assert_eq!(policy(instance, None), None);
    assert_eq!(policy_of(chart, &BTreeMap::new(), None), None);
}

#[test]
fn only_the_value_true_counts() {
    for (value, expected) in [(None, false), (Some("true"), true), (Some("false"), false), (Some(""), false)]
    {
        assert_eq!(is_suspended(&release(SUSPEND_ANNOTATION, value)), expected, "{value:?}");
        assert_eq!(is_marked_unselected(&release(UNSELECTED_ANNOTATION, value)), expected, "{value:?}");
    }
}

/// Placements with what they depend on; the cycle through `a`.
type CycleRow<'a> = (&'a [(&'a str, &'a [&'a str])], Option<&'a str>);

#[test]
fn cycles_through_a_placement_are_found() {
    let rows: [CycleRow<'_>; 8] = [
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
