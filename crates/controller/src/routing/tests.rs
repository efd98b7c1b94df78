//! Events and the objects that each of them enqueues.

mod policies;

use std::collections::BTreeSet;

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    extensions::{AddonRelease, ExtensionInstance},
};
use chandler_core::{
    fleet::ClassKey,
    identity::{ClusterKey, ReleaseId},
};
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Dependency, Enqueue, Index, ObjectKey, facts};

const PLATFORM: &str = "platform";

/// Returns an object with changes merged into it.
fn object<K: DeserializeOwned>(mut base: Value, changes: &Value) -> K {
    merge(&mut base, changes);
    serde_json::from_value(base).unwrap()
}

fn merge(base: &mut Value, changes: &Value) {
    match (base, changes) {
        (Value::Object(base), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(base.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        (base, changes) => *base = changes.clone(),
    }
}

fn chart(changes: &Value) -> facts::Placement {
    let base = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "hello", "namespace": "fleet", "uid": "1", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "clusterSelector": {"matchLabels": {"color": "blue"}}, "chartName": "hello",
            "repoURL": "https://charts.example",
        },
    });
    facts::Placement::of(&object::<HelmChartProxy>(base, changes))
}

fn instance(changes: &Value) -> facts::Placement {
    let base = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
        "metadata": {"name": "ingress", "namespace": "fleet", "uid": "2", "generation": 1},
        "spec": {"extension": {"name": "ingress"}, "clusters": {"selector": {"matchLabels": {"color": "blue"}}}},
    });
    facts::Placement::of(&object::<ExtensionInstance>(base, changes))
}

fn chart_release(cluster: &str, changes: &Value) -> facts::Release {
    let base = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
        "metadata": {
            "name": format!("hello-{cluster}"), "namespace": "fleet", "uid": format!("3-{cluster}"), "generation": 1,
            "labels": {"helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "hello"},
            "ownerReferences": [{
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "hello", "uid": "1",
            }],
        },
        "spec": {
            "clusterRef": {"name": cluster, "namespace": "fleet"}, "chartName": "hello", "version": "1.0.0",
            "repoURL": "https://charts.example", "releaseName": "hello", "namespace": "default",
        },
    });
    facts::Release::of::<HelmChartProxy>(&object::<HelmReleaseProxy>(base, changes))
}

fn addon_release(name: &str, changes: &Value) -> facts::Release {
    let base = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonRelease",
        "metadata": {
            "name": format!("{name}-blue"), "namespace": "fleet", "uid": format!("4-{name}"), "generation": 1,
            "ownerReferences": [{
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance", "name": name, "uid": "2",
            }],
        },
        "spec": {
            "cluster": "blue", "release": {"name": name, "namespace": "default"},
            "source": {"repository": "https://charts.example", "chart": name, "version": "1.0.0"},
        },
    });
    facts::Release::of::<ExtensionInstance>(&object::<AddonRelease>(base, changes))
}

fn cluster(name: &str, changes: &Value) -> facts::Cluster {
    let base = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": name, "namespace": "fleet", "uid": format!("5-{name}"), "resourceVersion": "1",
            "labels": {"color": name},
        },
        "spec": {}, "status": {"conditions": [{"type": "Available", "status": "True"}]},
    });
    facts::Cluster::of(&object::<DynamicObject>(base, changes)).unwrap()
}

/// One placement of each kind with a release on the cluster `blue`; the cluster `green` has no releases.
fn world() -> Index {
    let mut index = Index::new(PLATFORM);
    for name in ["blue", "green"] {
        index.on_cluster(&cluster(name, &json!({})));
    }
    index.on_placement(&chart(&json!({})));
    index.on_placement(&instance(&json!({})));
    index.on_release(&chart_release("blue", &json!({})));
    index.on_release(&addon_release("ingress", &json!({})));
    index
}

/// Returns enqueued objects in a short notation: `all`, `on` a cluster or `status` for placements, releases and
/// Clusters.
fn short(work: &[Enqueue]) -> Vec<String> {
    let short = |item: &Enqueue| match item {
        Enqueue::Placement(key) => format!("all {}", key.name),
        Enqueue::PlacementCluster(key, cluster) => format!("{} on {}", key.name, cluster.name),
        Enqueue::PlacementStatus(key) => format!("status {}", key.name),
        Enqueue::Release(key) => format!("release {}", key.name),
        Enqueue::Cluster(key) => format!("cluster {}", key.name),
        Enqueue::Extension(key) | Enqueue::Catalog(key) | Enqueue::Source(key) | Enqueue::Sync(key) => {
            key.to_string()
        }
    };
    let mut short: Vec<_> = work.iter().map(short).collect();
    short.sort();
    short
}

fn conditions(types: &[&str]) -> Value {
    let all: Vec<_> = types.iter().map(|type_| json!({"type": type_, "status": "True"})).collect();
    json!({"metadata": {"resourceVersion": "2"}, "status": {"conditions": all}})
}

#[test]
fn only_spec_and_metadata_of_a_placement_enqueue_all_of_its_clusters() {
    let all = ["all hello", "cluster blue"];
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let green = json!({
        "metadata": {"generation": 2}, "spec": {"clusterSelector": {"matchLabels": {"color": "green"}}},
    });
    let rows: [(&str, Value, &[&str]); 8] = [
        ("nothing", json!({}), &[]),
        ("status", json!({"metadata": {"resourceVersion": "2"}, "status": {"readyClusters": "1/1"}}), &[]),
        ("finalizer", json!({"metadata": {"resourceVersion": "2", "finalizers": ["chandler.dev/x"]}}), &[]),
        ("generation", json!({"metadata": {"generation": 2}}), &all),
        ("label", json!({"metadata": {"labels": {"a": "b"}}}), &all),
        ("annotation", json!({"metadata": {"annotations": {"a": "b"}}}), &all),
        // Whether a release is unselected depends on it.
        ("deletion", deleted, &["all hello", "cluster blue", "release hello-blue"]),
        ("selector", green, &["all hello", "cluster blue", "cluster green"]),
    ];
    for (what, changes, expected) in rows {
        assert_eq!(short(&world().on_placement(&chart(&changes))), expected, "{what}");
    }
}

#[test]
fn a_placement_that_is_paused_or_resumed_enqueues_its_releases() {
    let mut index = world();
    let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    for changes in [paused, json!({})] {
        let work = short(&index.on_placement(&chart(&changes)));
        let releases: Vec<_> = work.iter().filter(|item| item.starts_with("release ")).collect();
        assert_eq!(releases, ["release hello-blue"], "{changes}");
    }
}

#[test]
fn a_recreated_placement_is_new() {
    let mut index = world();
    assert_eq!(
        short(&index.on_placement(&chart(&json!({"metadata": {"uid": "9"}})))),
        ["all hello", "cluster blue"]
    );
    assert_eq!(short(&index.on_placement_deleted(&chart(&json!({})))), ["cluster blue"]);
    let known = index.on_placement(&chart(&json!({"metadata": {"uid": "9"}})));
    assert_eq!(known, [], "the deletion of the old object keeps the new one in the index");
}

#[test]
fn the_status_of_a_release_enqueues_the_status_of_its_placement() {
    let counted = ["cluster blue", "release hello-blue", "status hello"];
    let rendered = ["cluster blue", "hello on blue", "release hello-blue"];
    let status = json!({"metadata": {"resourceVersion": "2"}, "status": {"revision": 2}});
    let rows: [(&str, Value, &[&str]); 4] = [
        ("status", status, &counted),
        ("spec", json!({"metadata": {"generation": 2}, "spec": {"version": "2.0.0"}}), &rendered),
        ("annotation", json!({"metadata": {"annotations": {"a": "b"}}}), &rendered),
        ("deletion", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), &rendered),
    ];
    for (what, changes, expected) in rows {
        assert_eq!(short(&world().on_release(&chart_release("blue", &changes))), expected, "{what}");
    }
    let mut index = world();
    assert_eq!(
        short(&index.on_release(&chart_release("green", &json!({})))),
        ["cluster green", "hello on green", "release hello-green"]
    );
    assert_eq!(
        short(&index.on_release_deleted(&chart_release("green", &json!({})))),
        ["cluster green", "hello on green"]
    );
    assert!(!index.uses(&ClusterKey::new("fleet", "green")) && index.uses(&ClusterKey::new("fleet", "blue")));
}

#[test]
fn claims_and_dependencies_enqueue_other_releases() {
    let mut index = world();
    let same = json!({"metadata": {"name": "rival"}, "spec": {"release": {"name": "hello"}}});
    let rival = index.on_release(&addon_release("rival", &same));
    assert_eq!(short(&rival), ["cluster blue", "release hello-blue", "release rival", "rival on blue"]);
    let id = ReleaseId::new("default", "hello");
    assert_eq!(
        short(&index.on_inventory(&ClusterKey::new("fleet", "blue"), Some(&id))),
        ["release hello-blue", "release rival"]
    );
    let needing = json!({"spec": {"dependsOn": ["ingress-blue"]}});
    assert_eq!(
        short(&index.on_release(&addon_release("web", &needing))),
        ["cluster blue", "ingress on blue", "release ingress-blue", "release web-blue", "web on blue"]
    );
    let ready = json!({"metadata": {"resourceVersion": "2"}, "status": {"revision": 1}});
    let reported = index.on_release(&addon_release("ingress", &ready));
    assert_eq!(
        short(&reported),
        ["cluster blue", "release ingress-blue", "release web-blue", "status ingress"]
    );
}

#[test]
fn own_conditions_of_a_cluster_enqueue_only_the_cluster() {
    let all =
        ["cluster blue", "hello on blue", "ingress on blue", "release hello-blue", "release ingress-blue"];
    let rows: [(&str, Value, &[&str]); 6] = [
        ("resource version", json!({"metadata": {"resourceVersion": "2"}}), &["cluster blue"]),
        ("AddonsReady", conditions(&["Available", "AddonsReady"]), &["cluster blue"]),
        ("both", conditions(&["Available", "AddonsReady", "AddonsUpgradable"]), &["cluster blue"]),
        ("another condition", conditions(&["Available", "AddonsReady", "RollingOut"]), &all),
        ("annotation", json!({"metadata": {"annotations": {"zone": "one"}}}), &all),
        ("left the selection", json!({"metadata": {"labels": {"color": "red"}}}), &all),
    ];
    for (what, changes, expected) in rows {
        assert_eq!(short(&world().on_cluster(&cluster("blue", &changes))), expected, "{what}");
    }
    let mut index = world();
    let joins = cluster("green", &json!({"metadata": {"labels": {"color": "blue"}}}));
    assert_eq!(short(&index.on_cluster(&joins)), ["cluster green", "hello on green", "ingress on green"]);
    assert_eq!(short(&index.on_cluster_deleted(&cluster("blue", &json!({})))), all);
    assert_eq!(index.on_reference(&ClusterKey::new("fleet", "blue")), [], "the Cluster no longer exists");
}

#[test]
fn changed_sources_of_parameters_concern_the_placement_that_reads_them() {
    let index = world();
    assert_eq!(short(&index.on_parameter_sources("fleet", "2")), ["all ingress"]);
    assert_eq!(short(&index.on_parameter_sources("fleet", "1")), ["all hello"]);
    assert_eq!(index.on_parameter_sources("fleet", "another"), []);
    assert_eq!(index.on_parameter_sources("other", "2"), []);
}

#[test]
fn a_class_is_handled_like_its_clusters() {
    let mut index = world();
    let class = |namespace: &str| ClassKey { namespace: namespace.to_owned(), name: "large".to_owned() };
    assert_eq!(index.on_class(&class("fleet")), []);
    let topology = |class: Value| json!({"spec": {"topology": {"classRef": class}}});
    index.on_cluster(&cluster("blue", &topology(json!({"name": "large"}))));
    index.on_cluster(&cluster("green", &topology(json!({"name": "large", "namespace": "classes"}))));
    assert_eq!(short(&index.on_class(&class("fleet"))), ["cluster blue", "hello on blue", "ingress on blue"]);
    assert_eq!(short(&index.on_class(&class("classes"))), ["cluster green"]);
}

#[test]
fn a_referenced_object_is_handled_like_its_cluster() {
    let work = world().on_reference(&ClusterKey::new("fleet", "blue"));
    assert_eq!(
        short(&work),
        ["cluster blue", "hello on blue", "ingress on blue", "release hello-blue", "release ingress-blue"]
    );
    assert_eq!(
        short(&world().on_resolution(&ClusterKey::new("fleet", "blue"))),
        ["cluster blue", "ingress on blue"]
    );
}

#[test]
fn extensions_affect_their_namespace_and_those_of_the_platform_all_namespaces() {
    let all = ["all ingress", "cluster blue", "cluster green"];
    let rows: [(&str, &[&str]); 3] = [("fleet", &all), (PLATFORM, &all), ("elsewhere", &[])];
    for (namespace, expected) in rows {
        assert_eq!(short(&world().on_published(namespace)), expected, "{namespace}");
    }
}

#[test]
fn sources_enqueue_the_releases_that_follow_them() {
    let mut index = world();
    assert_eq!((index.on_source(), index.on_catalogs()), (vec![], vec![]));
    index
        .on_release(&chart_release("blue", &json!({"metadata": {"generation": 2}, "spec": {"version": ""}})));
    assert_eq!(short(&index.on_source()), ["release hello-blue"]);
    let catalog = json!({"metadata": {"generation": 2}, "spec": {"extension": {"catalog": "charts"}}});
    index.on_placement(&instance(&catalog));
    assert_eq!(short(&index.on_catalogs()), ["all ingress", "cluster blue", "release hello-blue"]);
}

#[test]
fn a_catalog_enqueues_what_refers_to_it_or_to_an_extension_with_its_packages() {
    let keys = |kind: &'static str, names: &[(&str, &str)]| -> BTreeSet<ObjectKey> {
        names.iter().map(|(namespace, name)| ObjectKey::new(kind, *namespace, *name)).collect()
    };
    let of_extension = json!({});
    let of_platform = json!({"spec": {"extension": {"scope": "Platform"}}});
    let of_catalog = json!({"spec": {"extension": {"catalog": "charts"}}});
    let of_platform_catalog = json!({"spec": {"extension": {"catalog": "charts", "scope": "Platform"}}});
    let of_source = json!({
        "spec": {"extension": null, "source": {"catalog": {"name": "charts"}, "chart": "ingress"}},
    });
    let (own, other) = (("fleet", "charts"), ("fleet", "other"));
    let (ingress, web) = (("fleet", "ingress"), ("fleet", "web"));
    let (platform_charts, platform_ingress) = ((PLATFORM, "charts"), (PLATFORM, "ingress"));
    let rows = [
        (&of_extension, own, None, false),
        (&of_extension, own, Some(web), false),
        (&of_extension, own, Some(platform_ingress), false),
        (&of_extension, own, Some(ingress), true),
        (&of_platform, own, Some(ingress), false),
        (&of_platform, own, Some(platform_ingress), true),
        (&of_catalog, other, None, false),
        (&of_catalog, platform_charts, None, false),
        (&of_catalog, own, None, true),
        (&of_catalog, other, Some(ingress), false),
        (&of_platform_catalog, own, None, false),
        (&of_platform_catalog, platform_charts, None, true),
        (&of_source, other, None, false),
        (&of_source, own, None, true),
    ];
    for (changes, catalog, extension, expected) in rows {
        let mut index = Index::new(PLATFORM);
        index.on_placement(&instance(changes));
        let extensions: Vec<_> = extension.into_iter().collect();
        let (catalogs, extensions) = (keys("ExtensionCatalog", &[catalog]), keys("Extension", &extensions));
        let enqueued = short(&index.on_catalog_revisions(&catalogs, &extensions));
        let expected: &[&str] = if expected { &["all ingress"] } else { &[] };
        assert_eq!(enqueued, expected, "{changes} {catalog:?} {extension:?}");
    }
}

#[test]
fn revisions_of_sources_enqueue_the_placements_that_use_their_files() {
    let mut index = world();
    let namespaces = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rows: [(&[&str], &[&str]); 4] =
        [(&[], &[]), (&["elsewhere"], &[]), (&["fleet"], &["all ingress"]), (&[PLATFORM], &["all ingress"])];
    for (extensions, expected) in rows {
        assert_eq!(short(&index.on_revisions(&namespaces(extensions))), expected, "{extensions:?}");
    }
    let of_source = json!({
        "metadata": {"generation": 2},
        "spec": {"extension": null, "source": {"sourceRef": {"name": "apps"}, "path": "ingress"}},
    });
    index.on_placement(&instance(&of_source));
    assert_eq!(short(&index.on_revisions(&namespaces(&[]))), ["all ingress"]);
}

#[test]
fn release_objects_are_found_by_owner_cluster_and_claim() {
    let mut index = world();
    let (blue, id) = (ClusterKey::new("fleet", "blue"), ReleaseId::new("default", "hello"));
    let found = [ObjectKey::new("HelmReleaseProxy", "fleet", "hello-blue")];
    assert_eq!(index.of_owner("HelmReleaseProxy", "fleet", "hello"), found);
    assert_eq!(index.of_owner_on("HelmReleaseProxy", "hello", &blue), found);
    assert_eq!(index.of_owner_on("HelmReleaseProxy", "hello", &ClusterKey::new("fleet", "green")), []);
    assert_eq!(index.on("HelmReleaseProxy", &blue), found);
    assert_eq!(index.claiming("HelmReleaseProxy", &blue, &id), found);
    assert_eq!(index.claiming("AddonRelease", &blue, &id), []);
    assert_eq!(index.of_owner("HelmReleaseProxy", "elsewhere", "hello"), []);
    index.on_release_deleted(&chart_release("blue", &json!({"metadata": {"uid": "older"}})));
    assert_eq!(index.on("HelmReleaseProxy", &blue), found, "another object of the name was deleted");
    index.on_release_deleted(&chart_release("blue", &json!({})));
    assert_eq!(index.on("HelmReleaseProxy", &blue), []);
    assert_eq!(index.of_owner_on("HelmReleaseProxy", "hello", &blue), []);
}
