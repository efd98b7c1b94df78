//! Plans for an upgrade from Kubernetes 1.34.2 to 1.35.0.

use chandler_api::extensions::{KubernetesUpgrade, UpgradeMoment};
use semver::Version;

use super::fixtures::{cluster, requests, universe};
use crate::resolution::{Universe, UpgradePlan, plan_upgrade};

/// A title, extensions with their versions, running versions, and the messages of the plan.
type Row<'a> = (&'a str, &'a [(&'a str, &'a [&'a str])], &'a [&'a str], &'a [&'a str]);

fn plan(universe: &Universe, running: &[&str]) -> UpgradePlan {
    let requested: Vec<_> = running.iter().map(|text| text.split_once('@').unwrap().0).collect();
    plan_upgrade(universe, &requests(&requested), &cluster(running), &Version::new(1, 35, 0))
}

fn messages(plan: &UpgradePlan) -> Vec<String> {
    plan.steps.iter().map(ToString::to_string).collect()
}

fn assert_plans(rows: &[Row<'_>]) {
    for (title, extensions, running, expected) in rows {
        let plan = plan(&universe(extensions), running);
        assert_eq!(messages(&plan), *expected, "{title}");
        assert_eq!(plan.blocks(), expected.iter().any(|step| step.contains(" blocks: ")), "{title}");
    }
}

#[test]
fn extensions_move_at_their_moment() {
    let rows: &[Row<'_>] = &[
        ("compatible with both", &[("a", &["1.0.0", "2.0.0"])], &["a@1.0.0"], &["a 1.0.0 stays"]),
        (
            "another version is compatible with both",
            &[("a", &["1.0.0 k8s=<1.35", "1.1.0 k8s=<1.36", "1.2.0 k8s=>=1.35"])],
            &["a@1.0.0"],
            &["a 1.0.0 moves to 1.1.0 before the control plane: \
               1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0"],
        ),
        (
            "a version per minor version of Kubernetes",
            &[("a", &["1.34.0 k8s=~1.34.0", "1.35.0 k8s=~1.35.0"])],
            &["a@1.34.0"],
            &["a 1.34.0 moves to 1.35.0 after the control plane: \
               1.34.0 needs Kubernetes ~1.34.0, the cluster has 1.35.0"],
        ),
        (
            "a dependency moves at the same moment",
            &[
                ("a", &["1.0.0 k8s=<1.35", "2.0.0 k8s=>=1.35 needs=b@^2"]),
                ("b", &["1.0.0", "2.0.0 k8s=>=1.35"]),
            ],
            &["a@1.0.0", "b@1.0.0"],
            &[
                "b 1.0.0 moves to 2.0.0 after the control plane: a 2.0.0 needs b ^2",
                "a 1.0.0 moves to 2.0.0 after the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
            ],
        ),
        (
            "not before its dependency",
            &[("a", &["1.0.0 k8s=<1.35", "2.0.0 needs=b@^2"]), ("b", &["1.0.0", "2.0.0 k8s=>=1.35"])],
            &["a@1.0.0", "b@1.0.0"],
            &[
                "b 1.0.0 moves to 2.0.0 after the control plane: a 2.0.0 needs b ^2",
                "a 1.0.0 moves to 2.0.0 after the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
            ],
        ),
        (
            "not before an extension that needs the running version",
            &[
                ("a", &["1.0.0 needs=b@^1 k8s=<1.35", "2.0.0 k8s=>=1.35"]),
                ("b", &["1.0.0 k8s=<1.35", "2.0.0"]),
            ],
            &["a@1.0.0", "b@1.0.0"],
            &[
                "a 1.0.0 moves to 2.0.0 after the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
                "b 1.0.0 moves to 2.0.0 after the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
            ],
        ),
        (
            "a new dependency",
            &[("a", &["1.0.0 k8s=<1.35", "2.0.0 needs=new@*"]), ("new", &["1.0.0"])],
            &["a@1.0.0"],
            &[
                "new moves to 1.0.0 before the control plane: a 2.0.0 needs it",
                "a 1.0.0 moves to 2.0.0 before the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
            ],
        ),
        (
            "only an older version is compatible with both",
            &[("a", &["1.0.0 k8s=<1.36", "2.0.0 k8s=<1.35"])],
            &["a@2.0.0"],
            &["a 2.0.0 moves to the older version 1.0.0 before the control plane: \
               2.0.0 needs Kubernetes <1.35, the cluster has 1.35.0"],
        ),
        (
            "only an older version is compatible with the new Kubernetes version",
            &[("a", &["1.0.0 k8s=>=1.35", "2.0.0 k8s=<1.35"])],
            &["a@2.0.0"],
            &["a 2.0.0 moves to the older version 1.0.0 after the control plane: \
               2.0.0 needs Kubernetes <1.35, the cluster has 1.35.0"],
        ),
        (
            "a newer version is preferred to an older one",
            &[("a", &["1.0.0", "2.0.0 k8s=<1.35", "3.0.0"])],
            &["a@2.0.0"],
            &["a 2.0.0 moves to 3.0.0 before the control plane: \
               2.0.0 needs Kubernetes <1.35, the cluster has 1.35.0"],
        ),
        (
            "the running version is no longer published",
            &[("a", &["2.0.0"])],
            &["a@1.0.0"],
            &["a 1.0.0 stays"],
        ),
    ];
    assert_plans(rows);
}

#[test]
fn conflicts_block() {
    assert_plans(&[
        (
            "no compatible version",
            &[("a", &["1.0.0 k8s=<1.35"]), ("b", &["1.0.0"])],
            &["a@1.0.0", "b@1.0.0"],
            &["a 1.0.0 blocks: a 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0", "b 1.0.0 stays"],
        ),
        (
            "all conflicts are reported, with the steps of the others",
            &[
                ("a", &["1.0.0 k8s=<1.35"]),
                ("b", &["1.0.0 k8s=<1.35", "1.1.0"]),
                ("c", &["1.0.0 k8s=<1.35"]),
                ("d", &["1.0.0"]),
            ],
            &["a@1.0.0", "b@1.0.0", "c@1.0.0", "d@1.0.0"],
            &[
                "a 1.0.0 blocks: a 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
                "b 1.0.0 moves to 1.1.0 before the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
                "c 1.0.0 blocks: c 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
                "d 1.0.0 stays",
            ],
        ),
        (
            "dependents of a blocking extension block too",
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0 k8s=<1.35"]), ("c", &["1.0.0"])],
            &["a@1.0.0", "b@1.0.0", "c@1.0.0"],
            &[
                "a 1.0.0 blocks: a 1.0.0 needs b",
                "b 1.0.0 blocks: b 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
                "c 1.0.0 stays",
            ],
        ),
    ]);
}

#[test]
fn the_extension_names_the_moment_if_no_version_is_compatible_with_both() {
    for (when, expected) in [
        (UpgradeMoment::BeforeControlPlane, "before the control plane"),
        (UpgradeMoment::AfterControlPlane, "after the control plane"),
        (UpgradeMoment::AfterCluster, "after the cluster"),
    ] {
        let mut universe = universe(&[("a", &["1.34.0 k8s=~1.34.0", "1.35.0 k8s=~1.35.0"])]);
        universe.extensions.get_mut("a").unwrap().upgrade.when = when;
        let plan = messages(&plan(&universe, &["a@1.34.0"]));
        assert!(plan[0].starts_with(&format!("a 1.34.0 moves to 1.35.0 {expected}: ")), "{plan:?}");
    }
}

#[test]
fn an_extension_that_must_not_block_stays() {
    let mut universe = universe(&[("a", &["1.0.0 k8s=<1.35"]), ("b", &["1.0.0 k8s=<1.35", "1.1.0"])]);
    for published in universe.extensions.values_mut() {
        published.upgrade = KubernetesUpgrade { block: false, ..KubernetesUpgrade::default() };
    }
    let plan = plan(&universe, &["a@1.0.0", "b@1.0.0"]);
    assert!(!plan.blocks());
    assert_eq!(
        messages(&plan),
        [
            "a 1.0.0 stays although it is incompatible: 1.0.0 needs Kubernetes <1.35, the cluster will have 1.35.0",
            "b 1.0.0 moves to 1.1.0 before the control plane: \
             1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
        ]
    );
}
