//! Plans for an upgrade from Kubernetes 1.34.2 to 1.35.0.

use chandler_api::extensions::{KubernetesUpgrade, UpgradeMoment};
use semver::Version;

use super::world::{cluster, universe, wants};
use crate::resolution::{Universe, UpgradePlan, plan_upgrade};

/// A title, extensions with their versions, what runs, and the plan in words.
type Row<'a> = (&'a str, &'a [(&'a str, &'a [&'a str])], &'a [&'a str], &'a [&'a str]);

fn plan(universe: &Universe, running: &[&str]) -> UpgradePlan {
    let wanted: Vec<_> = running.iter().map(|text| text.split_once('@').unwrap().0).collect();
    plan_upgrade(universe, &wants(&wanted), &cluster(running), &Version::new(1, 35, 0))
}

fn words(plan: &UpgradePlan) -> Vec<String> {
    plan.steps.iter().map(ToString::to_string).collect()
}

fn assert_plans(rows: &[Row<'_>]) {
    for (title, extensions, running, expected) in rows {
        let plan = plan(&universe(extensions), running);
        assert_eq!(words(&plan), *expected, "{title}");
        assert_eq!(plan.blocks(), expected.iter().any(|step| step.contains(" blocks: ")), "{title}");
    }
}

#[test]
fn plans() {
    let rows: &[Row<'_>] = &[
        ("fits both", &[("a", &["1.0.0", "2.0.0"])], &["a@1.0.0"], &["a 1.0.0 stays"]),
        (
            "another one fits both",
            &[("a", &["1.0.0 k8s=<1.35", "1.1.0 k8s=<1.36", "1.2.0 k8s=>=1.35"])],
            &["a@1.0.0"],
            &["a 1.0.0 moves to 1.1.0 before the control plane: \
               1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0"],
        ),
        (
            "a version per minor",
            &[("a", &["1.34.0 k8s=~1.34.0", "1.35.0 k8s=~1.35.0"])],
            &["a@1.34.0"],
            &["a 1.34.0 moves to 1.35.0 after the control plane: \
               1.34.0 needs Kubernetes ~1.34.0, the cluster has 1.35.0"],
        ),
        (
            "what it needs comes along, at the same moment",
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
            "not ahead of what it needs",
            &[("a", &["1.0.0 k8s=<1.35", "2.0.0 needs=b@^2"]), ("b", &["1.0.0", "2.0.0 k8s=>=1.35"])],
            &["a@1.0.0", "b@1.0.0"],
            &[
                "b 1.0.0 moves to 2.0.0 after the control plane: a 2.0.0 needs b ^2",
                "a 1.0.0 moves to 2.0.0 after the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
            ],
        ),
        (
            "not ahead of what needs it as it is",
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
            "something new is needed",
            &[("a", &["1.0.0 k8s=<1.35", "2.0.0 needs=new@*"]), ("new", &["1.0.0"])],
            &["a@1.0.0"],
            &[
                "new moves to 1.0.0 before the control plane: a 2.0.0 needs it",
                "a 1.0.0 moves to 2.0.0 before the control plane: \
                 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
            ],
        ),
        ("what runs is no longer published", &[("a", &["2.0.0"])], &["a@1.0.0"], &["a 1.0.0 stays"]),
    ];
    assert_plans(rows);
}

#[test]
fn what_blocks() {
    assert_plans(&[
        (
            "nothing fits",
            &[("a", &["1.0.0 k8s=<1.35"]), ("b", &["1.0.0"])],
            &["a@1.0.0", "b@1.0.0"],
            &["a 1.0.0 blocks: a 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0", "b 1.0.0 stays"],
        ),
        (
            "all that blocks is told, beside what would happen to the rest",
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
            "who needs what blocks is blamed as well",
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
fn the_moment_is_the_extensions_own_where_no_version_fits_both() {
    for (when, expected) in [
        (UpgradeMoment::BeforeControlPlane, "before the control plane"),
        (UpgradeMoment::AfterControlPlane, "after the control plane"),
        (UpgradeMoment::AfterCluster, "after the cluster"),
    ] {
        let mut universe = universe(&[("a", &["1.34.0 k8s=~1.34.0", "1.35.0 k8s=~1.35.0"])]);
        universe.extensions.get_mut("a").unwrap().upgrade.when = when;
        let plan = words(&plan(&universe, &["a@1.34.0"]));
        assert!(plan[0].starts_with(&format!("a 1.34.0 moves to 1.35.0 {expected}: ")), "{plan:?}");
    }
}

#[test]
fn what_need_not_block_stays_as_it_is() {
    let mut universe = universe(&[("a", &["1.0.0 k8s=<1.35"]), ("b", &["1.0.0 k8s=<1.35", "1.1.0"])]);
    for published in universe.extensions.values_mut() {
        published.upgrade = KubernetesUpgrade { block: false, ..KubernetesUpgrade::default() };
    }
    let plan = plan(&universe, &["a@1.0.0", "b@1.0.0"]);
    assert!(!plan.blocks());
    assert_eq!(
        words(&plan),
        [
            "a 1.0.0 stays though it does not fit: 1.0.0 needs Kubernetes <1.35, the cluster will have 1.35.0",
            "b 1.0.0 moves to 1.1.0 before the control plane: \
             1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0",
        ]
    );
}
