//! Changes of policies, and the order of releases that policies require.

use chandler_api::extensions::{AddonPolicy, PlacementKindName, PlacementReference};

use super::*;

fn policy(namespace: &str, changes: &Value) -> facts::Policy {
    let base = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonPolicy",
        "metadata": {"name": "careful", "namespace": namespace, "uid": "6", "generation": 1}, "spec": {},
    });
    facts::Policy::of(&object::<AddonPolicy>(base, changes))
}

/// A policy of the namespace that depends on another placement.
fn after(name: &str, kind: &str, dependency: &str) -> facts::Policy {
    let depends_on = json!([{"kind": kind, "name": dependency}]);
    policy("fleet", &json!({"metadata": {"name": name, "uid": name}, "spec": {"dependsOn": depends_on}}))
}

fn with_policy(text: &str) -> Value {
    json!({"metadata": {"annotations": {"chandler.dev/policy": text}}})
}

fn releases(work: &[Enqueue]) -> Vec<String> {
    short(work).into_iter().filter(|item| item.starts_with("release ")).collect()
}

fn key(kind: &'static str, name: &str) -> ObjectKey {
    ObjectKey::new(kind, "fleet", name)
}

fn placement(kind: PlacementKindName, name: &str) -> PlacementReference {
    PlacementReference { kind, name: name.to_owned() }
}

fn hello() -> PlacementReference {
    placement(PlacementKindName::HelmChartProxy, "hello")
}

fn ingress() -> PlacementReference {
    placement(PlacementKindName::ExtensionInstance, "ingress")
}

/// Returns the placements whose releases have to be removed before this one, and these releases.
fn dependents(index: &Index, release: &ObjectKey) -> Vec<(PlacementReference, Vec<ObjectKey>)> {
    index.dependents(release).into_iter().map(|one| (one.placement, one.releases)).collect()
}

/// The placement `hello` has a policy that depends on the placement `ingress`.
fn ordered() -> Index {
    let mut index = world();
    index.on_placement(&chart(&with_policy("after-ingress")));
    index.on_policy(&after("after-ingress", "ExtensionInstance", "ingress"));
    index
}

/// What is tested, the HelmChartProxy and the ExtensionInstance, the namespace of the policy; what is enqueued.
type Row<'a> = (&'a str, Option<Value>, Option<Value>, &'a str, &'a [&'a str]);

#[test]
fn a_policy_enqueues_the_releases_of_the_placements_that_use_it() {
    let hello = ["all hello", "cluster blue", "release hello-blue"];
    let ingress = ["all ingress", "cluster blue", "release ingress-blue"];
    let own = json!({"spec": {"policyRef": {"name": "careful"}}});
    let of_platform = json!({"spec": {"policyRef": {"name": "careful", "scope": "Platform"}}});
    let rows: [Row<'_>; 8] = [
        ("no placement uses it", None, None, "fleet", &[]),
        ("an annotation names it", Some(with_policy("careful")), None, "fleet", &hello),
        ("an annotation names another one", Some(with_policy("other")), None, "fleet", &[]),
        ("it is in another namespace", Some(with_policy("careful")), None, "elsewhere", &[]),
        (
            "an annotation names that of the platform",
            Some(with_policy("platform/careful")),
            None,
            PLATFORM,
            &hello,
        ),
        (
            "the one of the namespace has the same name",
            Some(with_policy("platform/careful")),
            None,
            "fleet",
            &[],
        ),
        ("an instance names it", None, Some(own), "fleet", &ingress),
        ("an instance names that of the platform", None, Some(of_platform), PLATFORM, &ingress),
    ];
    for (what, of_chart, of_instance, namespace, expected) in rows {
        let mut index = world();
        if let Some(changes) = of_chart {
            index.on_placement(&chart(&changes));
        }
        if let Some(changes) = of_instance {
            index.on_placement(&instance(&changes));
        }
        let created = policy(namespace, &json!({}));
        assert_eq!(short(&index.on_policy(&created)), expected, "{what}: created");
        assert_eq!(index.on_policy(&created), [], "{what}: listed again");
        let changed = policy(namespace, &json!({"metadata": {"generation": 2}, "spec": {"suspend": true}}));
        assert_eq!(short(&index.on_policy(&changed)), expected, "{what}: changed");
        let older = policy(namespace, &json!({"metadata": {"uid": "5"}}));
        assert_eq!(index.on_policy_deleted(&older), [], "{what}: another object of the name was deleted");
        assert_eq!(short(&index.on_policy_deleted(&changed)), expected, "{what}: deleted");
        assert_eq!(index.on_policy_deleted(&changed), [], "{what}: deleted again");
    }
}

#[test]
fn a_policy_of_the_platform_enqueues_the_releases_of_all_namespaces() {
    let mut index = world();
    index.on_placement(&chart(&with_policy("platform/careful")));
    let elsewhere = json!({"metadata": {"namespace": "elsewhere", "name": "other", "uid": "7"}});
    index.on_placement(&chart(&{
        let mut changes = with_policy("platform/careful");
        merge(&mut changes, &elsewhere);
        changes
    }));
    let work = short(&index.on_policy(&policy(PLATFORM, &json!({}))));
    assert_eq!(work, ["all hello", "all other", "cluster blue", "release hello-blue"]);
}

#[test]
fn a_placement_that_is_suspended_deleted_or_gets_another_policy_enqueues_its_releases() {
    let mut index = world();
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let rows: [(&str, Value, &[&str]); 14] = [
        ("suspended", annotated("chandler.dev/suspend", "true"), &["release hello-blue"]),
        ("not suspended", annotated("chandler.dev/suspend", "false"), &["release hello-blue"]),
        ("no annotation", json!({}), &[]),
        ("policy", with_policy("careful"), &["release hello-blue"]),
        ("policy of the platform", with_policy("platform/careful"), &["release hello-blue"]),
        ("another annotation too", annotated("chandler.dev/policy", "platform/careful"), &[]),
        ("no policy", json!({}), &["release hello-blue"]),
        ("another label", json!({"metadata": {"labels": {"a": "b"}}}), &[]),
        ("any CRD", annotated("chandler.dev/replace-unsafe-crds", "true"), &["release hello-blue"]),
        ("no CRD", json!({}), &["release hello-blue"]),
        ("aborted", annotated("chandler.dev/rollout-abort", "a1"), &["release hello-blue"]),
        ("no abort", json!({}), &["release hello-blue"]),
        ("paused rollout", annotated("chandler.dev/rollout-paused", "true"), &[]),
        (
            "deleted",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            &["release hello-blue"],
        ),
    ];
    for (what, changes, expected) in rows {
        assert_eq!(releases(&index.on_placement(&chart(&changes))), expected, "{what}");
    }
}

#[test]
fn releases_that_a_policy_orders_enqueue_each_other() {
    let mut index = ordered();
    let ready = json!({"metadata": {"resourceVersion": "2"}, "status": {"revision": 1}});
    let both = ["release hello-blue", "release ingress-blue"];
    let status = index.on_release(&addon_release("ingress", &ready));
    assert_eq!(
        short(&status),
        ["cluster blue", "release hello-blue", "release ingress-blue", "status ingress"],
        "the status of the dependency"
    );
    assert_eq!(releases(&index.on_release(&chart_release("blue", &ready))), both, "that of the dependent");
    let deleted = index.on_release_deleted(&chart_release("blue", &json!({})));
    assert_eq!(short(&deleted), ["cluster blue", "hello on blue", "release ingress-blue"]);
    let other = index.on_release(&chart_release("green", &json!({})));
    assert_eq!(releases(&other), ["release hello-green"], "the dependency is on another cluster");
}

#[test]
fn a_placement_enqueues_the_releases_of_the_placements_whose_policies_depend_on_it() {
    let mut index = ordered();
    let other =
        json!({"metadata": {"generation": 2}, "spec": {"clusters": {"name": "green", "selector": null}}});
    assert_eq!(releases(&index.on_placement(&instance(&other))), ["release hello-blue"], "its selection");
    assert_eq!(releases(&index.on_placement_deleted(&instance(&json!({})))), ["release hello-blue"]);
    assert_eq!(
        releases(&index.on_placement(&instance(&json!({})))),
        ["release hello-blue", "release ingress-blue"],
        "its own release may have waited for it"
    );
    let without = index.on_placement(&chart(&json!({})));
    assert_eq!(
        releases(&without),
        ["release hello-blue", "release ingress-blue"],
        "the dependency may be removed now"
    );
    let changed = index.on_placement(&instance(&other));
    assert_eq!(releases(&changed), [] as [String; 0], "nothing depends on it any more");
}

#[test]
fn a_policy_that_no_longer_orders_releases_enqueues_the_dependencies() {
    let both = ["release hello-blue", "release ingress-blue"];
    let without = json!({"metadata": {"name": "after-ingress", "uid": "after-ingress", "generation": 2}});
    assert_eq!(releases(&ordered().on_policy(&policy("fleet", &without))), both);
    let deleted = after("after-ingress", "ExtensionInstance", "ingress");
    assert_eq!(releases(&ordered().on_policy_deleted(&deleted)), both);
}

#[test]
fn dependencies_are_those_that_select_the_cluster_or_do_not_exist() {
    let release = key("HelmReleaseProxy", "hello-blue");
    let found = |index: &Index| {
        let one = |found: Dependency| (found.placement, found.exists, found.releases.len());
        index.dependencies(&release).into_iter().map(one).collect::<Vec<_>>()
    };
    let named = |exists, releases| vec![(ingress(), exists, releases)];
    let mut index = ordered();
    assert_eq!(found(&index), named(true, 1));
    assert_eq!(dependents(&index, &key("AddonRelease", "ingress-blue")), [(hello(), vec![release.clone()])]);
    assert_eq!(dependents(&index, &release), []);
    index.on_release_deleted(&addon_release("ingress", &json!({})));
    assert_eq!(found(&index), named(true, 0), "its release does not exist yet");
    index.on_placement_deleted(&instance(&json!({})));
    assert_eq!(found(&index), named(false, 0));
    let green = json!({"spec": {"clusters": {"name": "green", "selector": null}}});
    index.on_placement(&instance(&green));
    assert_eq!(found(&index), [], "it does not select the cluster");
    assert_eq!(found(&world()), [], "there is no policy");
}

#[test]
fn a_cycle_is_named_and_prevents_no_removal() {
    let release = key("HelmReleaseProxy", "hello-blue");
    let mut index = ordered();
    assert_eq!(index.dependencies(&release)[0].cycle, None);
    index.on_placement(&instance(&json!({
        "metadata": {"generation": 2}, "spec": {"policyRef": {"name": "after-hello"}},
    })));
    index.on_policy(&after("after-hello", "HelmChartProxy", "hello"));
    assert_eq!(index.dependencies(&release)[0].cycle, Some(vec![hello(), ingress()]));
    assert_eq!(dependents(&index, &release), []);
    assert_eq!(dependents(&index, &key("AddonRelease", "ingress-blue")), []);
}

#[test]
fn a_placement_does_not_depend_on_itself() {
    let (release, needed) = (key("HelmReleaseProxy", "hello-blue"), key("AddonRelease", "ingress-blue"));
    let mut index = world();
    // Both placements use the policy, which depends on one of them.
    index.on_placement(&chart(&with_policy("after-ingress")));
    index.on_placement(&instance(&json!({
        "metadata": {"generation": 2}, "spec": {"policyRef": {"name": "after-ingress"}},
    })));
    index.on_policy(&after("after-ingress", "ExtensionInstance", "ingress"));
    assert_eq!(index.dependencies(&needed), []);
    assert_eq!(index.dependencies(&release)[0].cycle, None);
    assert_eq!(dependents(&index, &needed), [(hello(), vec![release.clone()])]);
    assert_eq!(dependents(&index, &release), []);
}
