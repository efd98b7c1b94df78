//! Objects for tests.

use std::collections::BTreeMap;

use chandler_api::{extensions::Source, tunnel::ClusterTunnel};
use chandler_core::{
    extension::{Kubernetes, ResolutionInput},
    resolution::{
        Candidate, Published, Range, Universe, VersionName, VersionRequest, parse_kubernetes_version,
    },
};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Placement, Release, find_kinds},
    upgrade_check::ClusterReport,
};

/// Returns a HelmReleaseProxy of a placement on a cluster.
pub fn release(placement: &str, cluster: &str, status: &Value) -> Release {
    let object = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
        "metadata": {
            "name": format!("{placement}-{cluster}"), "namespace": "fleet", "generation": 1, "uid": "uid",
            "ownerReferences": [{
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": placement,
                "uid": "", "controller": true,
            }],
        },
        "spec": {"clusterRef": {"name": cluster}, "chartName": placement, "releaseName": placement},
        "status": status,
    });
    Release::from_object(find_kinds("hrp")[0], &serde_json::from_value(object).unwrap())
}

/// Returns a status with this `Ready` condition.
pub fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({
        "observedGeneration": 1, "revision": 2,
        "package": {"reference": "", "version": "1.0.0", "digest": ""},
        "conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    })
}

/// Returns a ClusterTunnel with a connected agent.
pub fn tunnel(cluster: &str) -> ClusterTunnel {
    let all = [("Joined", "True"), ("Connected", "True"), ("KubeconfigProxied", "True"), ("Ready", "True")];
    tunnel_with(cluster, &all)
}

/// Returns a ClusterTunnel with these conditions. The reason of one that is not `True` begins with `Not`.
pub fn tunnel_with(cluster: &str, conditions: &[(&str, &str)]) -> ClusterTunnel {
    let reason =
        |kind: &str, status: &str| if status == "True" { kind.to_owned() } else { format!("Not{kind}") };
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status)| {
            json!({
                "type": kind, "status": status, "reason": reason(kind, status), "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let object = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ClusterTunnel",
        "metadata": {"name": cluster, "namespace": "fleet", "resourceVersion": "7"},
        "spec": {
            "id": "0123456789abcdef0123456789abcdef", "epoch": 1, "clusterName": cluster,
            "endpoint": "10.0.0.10:6443",
            "hubs": [{"address": "hub.example:443", "caBundle": "-----BEGIN CERTIFICATE-----"}],
        },
        "status": {
            "conditions": conditions,
            "agents": [{
                "hub": "chandler-hub-a", "connection": "1", "epoch": 1, "since": "2026-01-01T00:00:00Z",
                "node": "node-1", "version": "0.1.0",
            }],
        },
    });
    serde_json::from_value(object).unwrap()
}

/// Returns a HelmChartProxy that selects these clusters.
pub fn placement(name: &str, clusters: &[&str]) -> Placement {
    let clusters: Vec<_> = clusters.iter().map(|name| json!({"name": name, "namespace": "fleet"})).collect();
    let object = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": name, "namespace": "fleet"}, "spec": {"chartName": name},
        "status": {"matchingClusters": clusters, "readyClusters": "1/2", "conditions": [{
            "type": "Ready", "status": "False", "reason": "NotAllReady", "message": "ready on 1 of 2 clusters",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    Placement::from_object(find_kinds("hcp")[0], &serde_json::from_value(object).unwrap())
}

/// Returns two placements: `hello` is ready on `alpha` and missing on `bravo`, `faulty` fails on `alpha`.
pub fn fleet() -> Fleet {
    Fleet {
        placements: vec![placement("hello", &["alpha", "bravo"]), placement("faulty", &["alpha"])],
        releases: vec![
            release("hello", "alpha", &ready("True", "Ready", "")),
            release(
                "faulty",
                "alpha",
                &ready("False", "HelmInstallOrUpgradeFailed", "Conflict: it is taken"),
            ),
        ],
    }
}

/// Returns a Source of the branch `main` that had these revisions, newest first.
pub fn source(name: &str, history: &[&str]) -> Source {
    let revisions: Vec<_> =
        history.iter().map(|revision| json!({"revision": revision, "at": "2026-01-01T00:00:00Z"})).collect();
    let commit = history.first().map(|id| json!({"id": id, "author": "Anna", "subject": "a change"}));
    serde_json::from_value(json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
        "metadata": {"name": name, "namespace": "fleet"},
        "spec": {"git": {"url": "https://git.example/apps.git", "ref": {"branch": "main"}}},
        "status": {"revision": history.first(), "commit": commit, "history": revisions},
    }))
    .unwrap()
}

/// Returns an AddonRelease of the instance `web` whose package is made of a folder of the Source `apps`.
pub fn folder_release(cluster: &str, revision: &str, ready: &str) -> Release {
    let object = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "AddonRelease",
        "metadata": {
            "name": format!("web-{cluster}"), "namespace": "fleet", "generation": 1,
            "ownerReferences": [{
                "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance", "name": "web", "uid": "",
                "controller": true,
            }],
        },
        "spec": {
            "cluster": cluster, "release": {"name": "web", "namespace": "web"},
            "source": {"sourceRef": {"name": "apps"}, "path": "web"},
            "pinned": {"revision": revision, "digest": "sha256:00"},
        },
        "status": {"observedGeneration": 1, "conditions": [{
            "type": "Ready", "status": ready, "reason": if ready == "True" { "Ready" } else { "ApplyFailed" },
            "message": if ready == "True" { "" } else { "a.yaml, line 3: bad" },
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    Release::from_object(find_kinds("ar")[0], &serde_json::from_value(object).unwrap())
}

/// Returns the ExtensionInstance `web` with these releases: cluster, revision and whether it is ready. Packages were made of
/// the revision `checked`, but not for the clusters in `behind`.
pub fn folder_fleet(releases: &[(&str, &str, &str)], checked: &str, behind: &[&str]) -> Fleet {
    let failed = !behind.is_empty();
    let object = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
        "metadata": {"name": "web", "namespace": "fleet"},
        "spec": {"source": {"sourceRef": {"name": "apps"}, "path": "web"}},
        "status": {
            "sources": [{
                "sourceRef": {"name": "apps"}, "revision": checked, "behind": behind.len(),
                "behindClusters": behind,
            }],
            "conditions": [{
                "type": "Ready", "status": if failed { "False" } else { "True" },
                "reason": if failed { "ResolutionFailed" } else { "Ready" },
                "message": if failed { "the folder is missing" } else { "" },
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    let releases = releases.iter().map(|(cluster, revision, ready)| folder_release(cluster, revision, ready));
    Fleet {
        placements: vec![Placement::from_object(
            find_kinds("exti")[0],
            &serde_json::from_value(object).unwrap(),
        )],
        releases: releases.collect(),
    }
}

/// Returns the resolution input of a cluster with these extensions. Each has versions with a range of Kubernetes
/// versions; the first version is installed.
pub fn resolution_input(extensions: &[(&str, &[(&str, &str)])]) -> ResolutionInput {
    let candidate = |(version, kubernetes): &(&str, &str)| Candidate {
        kubernetes: Some(kubernetes.parse().unwrap()),
        ..Candidate::new(VersionName::parse(version).unwrap())
    };
    let published = |versions: &[(&str, &str)]| Published {
        versions: versions.iter().map(candidate).collect(),
        ..Published::default()
    };
    let request = |name: &str| VersionRequest {
        extension: name.to_owned(),
        range: Range::any(),
        channel: None,
        install_dependencies: true,
    };
    let extensions: BTreeMap<String, _> =
        extensions.iter().map(|(name, versions)| ((*name).to_owned(), *versions)).collect();
    ResolutionInput {
        invalid: BTreeMap::new(),
        universe: Universe {
            extensions: extensions
                .iter()
                .map(|(name, versions)| (name.clone(), published(versions)))
                .collect(),
        },
        requests: extensions.keys().map(|name| request(name)).collect(),
        platform: None,
        running: extensions
            .iter()
            .map(|(name, versions)| (name.clone(), VersionName::parse(versions[0].0).unwrap()))
            .collect(),
        kubernetes: Kubernetes { current: parse_kubernetes_version("v1.34.4").unwrap(), upgrade: None },
    }
}

/// Returns a Cluster.
pub fn cluster(name: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": name, "namespace": "fleet"},
    }))
    .unwrap()
}

/// Returns the report of an upgrade check of a cluster.
pub fn report(name: &str, input: ResolutionInput, to: Option<&str>) -> ClusterReport {
    let to = to.map(|to| to.parse().unwrap());
    ClusterReport::new(&cluster(name), Ok(input), &[], to.as_ref())
}

/// Returns an input with one extension that stays, one that moves, and one that blocks the upgrade to 1.35.
pub fn mixed_input() -> ResolutionInput {
    resolution_input(&[
        ("base", &[("1.0.0", "*")]),
        ("net", &[("1.34.0", "~1.34.0"), ("1.35.0", "~1.35.0")]),
        ("app", &[("1.0.0", "<1.35")]),
    ])
}
