//! Solutions and conflicts of small universes.

use chandler_api::extensions::Lifecycle;

use super::fixtures::{cluster, request, requests, universe};
use crate::resolution::{Universe, resolve};

const DOCUMENTATION: &str = include_str!("../../../../../docs/concepts/extensions.md");

/// A title, extensions with their versions, requests, running versions, and the choices in order.
type Row<'a> = (&'a str, &'a [(&'a str, &'a [&'a str])], &'a [&'a str], &'a [&'a str], &'a [&'a str]);

/// Extensions with their versions, requests, and the message of the conflict.
type ConflictRow<'a> = (&'a [(&'a str, &'a [&'a str])], &'a [&'a str], &'a str);

fn chosen(universe: &Universe, requested: &[&str], running: &[&str]) -> Vec<String> {
    let solution = resolve(universe, &requests(requested), &cluster(running)).unwrap();
    solution.choices.iter().map(|choice| format!("{}@{}", choice.extension, choice.version)).collect()
}

fn check(rows: &[Row<'_>]) {
    for (title, extensions, requested, running, expected) in rows {
        assert_eq!(chosen(&universe(extensions), requested, running), *expected, "{title}");
    }
}

#[test]
fn versions_are_chosen() {
    let rows: &[Row<'_>] = &[
        ("the newest", &[("a", &["1.0.0", "1.10.0", "1.9.0"])], &["a"], &[], &["a@1.10.0"]),
        ("in the range", &[("a", &["1.0.0", "2.0.0"])], &["a@^1"], &[], &["a@1.0.0"]),
        ("in both ranges", &[("a", &["1.0.0", "1.5.0", "2.0.0"])], &["a@^1", "a@<1.4"], &[], &["a@1.0.0"]),
        ("no pre-release", &[("a", &["1.0.0", "2.0.0-rc.1"])], &["a"], &[], &["a@1.0.0"]),
        ("compatible with Kubernetes", &[("a", &["1.0.0", "1.1.0 k8s=>=1.35"])], &["a"], &[], &["a@1.0.0"]),
        ("not deprecated", &[("a", &["1.0.0", "1.1.0 deprecated"])], &["a"], &[], &["a@1.0.0"]),
        (
            "deprecated if necessary",
            &[("a", &["1.0.0", "1.1.0 deprecated"])],
            &["a@>1.0.0"],
            &[],
            &["a@1.1.0"],
        ),
        ("not withdrawn", &[("a", &["1.0.0", "1.1.0 withdrawn"])], &["a"], &[], &["a@1.0.0"]),
        (
            "of the stable channel",
            &[("a", &["1.0.0 channel=stable", "1.1.0 channel=edge"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        (
            "of the channel of the minor version",
            &[("a", &["1.0.0", "1.1.0 channel=1.34", "1.2.0 channel=v1.35"])],
            &["a"],
            &[],
            &["a@1.1.0"],
        ),
        (
            "no channel is like a minor version",
            &[("a", &["1.0.0", "1.1.0 channel=1.34.2", "1.2.0 channel=1.x", "1.3.0 channel=+1.34"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        ("a running version stays", &[("a", &["1.0.0", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("deprecated stays", &[("a", &["1.0.0 deprecated", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("withdrawn stays", &[("a", &["1.0.0 withdrawn", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("not what is not offered", &[("a", &["1.0.0", "1.1.0 refused"])], &["a"], &[], &["a@1.0.0"]),
        ("not offered stays", &[("a", &["1.0.0 refused", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        (
            "not offered moves if it is incompatible",
            &[("a", &["1.0.0 refused k8s=<1.34", "1.1.0"])],
            &["a"],
            &["a@1.0.0"],
            &["a@1.1.0"],
        ),
        ("unpublished stays", &[("a", &["1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("unknown stays", &[], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        (
            "another channel stays",
            &[("a", &["1.0.0 channel=edge", "1.1.0"])],
            &["a"],
            &["a@1.0.0"],
            &["a@1.0.0"],
        ),
        (
            "the channel of another minor version stays",
            &[("a", &["1.0.0 channel=1.24", "1.1.0"])],
            &["a"],
            &["a@1.0.0"],
            &["a@1.0.0"],
        ),
        (
            "unless it is incompatible",
            &[("a", &["1.0.0 k8s=<1.34", "1.1.0"])],
            &["a"],
            &["a@1.0.0"],
            &["a@1.1.0"],
        ),
        (
            "downgraded if necessary",
            &[("a", &["1.0.0", "1.1.0 k8s=>=1.35"])],
            &["a"],
            &["a@1.1.0"],
            &["a@1.0.0"],
        ),
    ];
    check(rows);
}

#[test]
fn dependencies_are_resolved() {
    let rows: &[Row<'_>] = &[
        (
            "dependencies are installed first",
            &[("a", &["1.0.0 needs=z@^1"]), ("z", &["1.0.0", "2.0.0"])],
            &["a"],
            &[],
            &["z@1.0.0", "a@1.0.0"],
        ),
        (
            "transitive dependencies",
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0 needs=c@*"]), ("c", &["1.0.0"])],
            &["a"],
            &[],
            &["c@1.0.0", "b@1.0.0", "a@1.0.0"],
        ),
        (
            "an older version if the dependency of the newer one is incompatible",
            &[("a", &["1.0.0", "2.0.0 needs=b@*"]), ("b", &["1.0.0 k8s=<1.20"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        (
            "optional dependencies are not installed",
            &[("a", &["1.0.0 uses=b@^2"]), ("b", &["1.0.0", "2.0.0"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        (
            "but their range applies, and they come first",
            &[("a", &["1.0.0 uses=b@^1"]), ("b", &["1.0.0", "2.0.0"])],
            &["a", "b"],
            &[],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "mutual optional dependencies are not a cycle",
            &[("a", &["1.0.0 uses=b@*"]), ("b", &["1.0.0 uses=a@*"])],
            &["a", "b"],
            &[],
            &["a@1.0.0", "b@1.0.0"],
        ),
        (
            "a cycle is avoided",
            &[("a", &["1.0.0", "2.0.0 needs=b@*"]), ("b", &["1.0.0 needs=a@*"])],
            &["a", "b"],
            &[],
            &["a@1.0.0", "b@1.0.0"],
        ),
        (
            "keeping a running version takes precedence over the newest one",
            &[("a", &["1.0.0 needs=b@*", "2.0.0 needs=b@^2"]), ("b", &["1.0.0", "2.0.0"])],
            &["a", "b"],
            &["b@1.0.0"],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "also for a dependency",
            &[("a", &["1.0.0 needs=b@*", "2.0.0 needs=b@^2"]), ("b", &["1.0.0", "2.0.0"])],
            &["a"],
            &["b@1.0.0"],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "also if another one has to move anyway",
            &[("a", &["1.0.0", "3.0.0 needs=b@>=2"]), ("b", &["1.0.0", "3.0.0"])],
            &["a@1.x || 3.x", "b"],
            &["a@2.0.0", "b@1.0.0"],
            &["a@1.0.0", "b@1.0.0"],
        ),
        (
            "dependencies may be requested explicitly",
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0"])],
            &["a!", "b"],
            &[],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "dependencies that have to be requested are avoided",
            &[("a", &["1.0.0", "2.0.0 needs=b@*"]), ("b", &["1.0.0"])],
            &["a!"],
            &[],
            &["a@1.0.0"],
        ),
    ];
    check(rows);
}

#[test]
fn conflicts_are_explained() {
    let cert_manager: &[&str] =
        &["1.13.0 k8s=<1.31", "1.14.0 k8s=<1.31", "1.15.0 withdrawn", "1.16.0 k8s=>=1.35", "2.0.0"];
    let rows: &[ConflictRow<'_>] = &[
        (
            &[("cert-manager", cert_manager)],
            &["cert-manager@^1.13"],
            "cert-manager ^1.13 is requested\n\
             cert-manager 1.13.0 and 1.14.0 need Kubernetes <1.31, the cluster has 1.34.2\n\
             cert-manager 1.16.0 needs Kubernetes >=1.35, the cluster has 1.34.2\n\
             cert-manager 1.15.0 is withdrawn",
        ),
        (
            &[("web", &["1.0.0 refused"])],
            &["web"],
            "web is requested\nweb 1.0.0 is not offered: its filter is 1.x",
        ),
        (
            &[
                ("cert-manager", &["1.14.0", "1.15.0"]),
                ("ingress", &["2.0.0 needs=cert-manager@>=1.15"]),
                ("logging", &["1.0.0 needs=cert-manager@<1.15", "1.1.0 needs=cert-manager@<1.15"]),
            ],
            &["ingress", "logging@^1"],
            "ingress is requested\n\
             ingress 2.0.0 needs cert-manager >=1.15\n\
             logging ^1 is requested\n\
             logging 1.0.0 and 1.1.0 need cert-manager <1.15",
        ),
        (&[], &["nothing"], "nothing is requested\nnothing is not published: no Extension has that name"),
        (&[("a", &["1.0.0"])], &["a@^2"], "a ^2 is requested\na has no version in ^2, the newest is 1.0.0"),
        (
            &[("a", &["1.0.0 needs=b@^3"]), ("b", &["1.0.0"])],
            &["a"],
            "a is requested\na 1.0.0 needs b ^3\nb has no version in ^3, the newest is 1.0.0",
        ),
        (
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0 needs=c@*"]), ("c", &["1.0.0 needs=a@*"])],
            &["a"],
            "a is requested\n\
             a 1.0.0 needs b\n\
             a needs b, which needs c, which needs a: the dependencies form a cycle\n\
             b 1.0.0 needs c",
        ),
        (&[("a", &["1.0.0 needs=a@*"])], &["a"], "a is requested\na 1.0.0 needs the extension itself"),
        (
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0"])],
            &["a!"],
            "a is requested\n\
             a 1.0.0 needs b, which is not requested: add an ExtensionInstance for it, or set dependencies: Install",
        ),
        (
            &[("a", &["1.0.0 uses=b@^1"]), ("b", &["2.0.0"])],
            &["a", "b"],
            "a is requested\na 1.0.0 needs b ^1 if it is installed\nb is requested\n\
             b has no version in ^1, the newest is 2.0.0",
        ),
    ];
    for (extensions, requested, expected) in rows {
        let conflict = resolve(&universe(extensions), &requests(requested), &cluster(&[])).unwrap_err();
        assert_eq!(conflict.to_string(), *expected);
    }
    assert!(DOCUMENTATION.contains(rows[0].2), "the documentation quotes the first one");
}

#[test]
fn choices_are_explained() {
    let universe = universe(&[
        ("dns", &["1.0.0", "1.1.0", "1.2.0 deprecated"]),
        ("mesh", &["1.0.0 k8s=<1.34", "1.1.0 needs=dns@>=1.1"]),
        ("old", &["1.0.0 withdrawn"]),
        ("logs", &["1.0.0", "2.0.0"]),
        ("only", &["1.0.0 deprecated"]),
    ]);
    let requests = requests(&["mesh", "old", "logs@^2", "only"]);
    let running = cluster(&["mesh@1.0.0", "dns@1.0.0", "old@1.0.0", "logs@1.0.0", "left@1.0.0"]);
    let solution = resolve(&universe, &requests, &running).unwrap();
    let messages: Vec<_> = solution.choices.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "dns moves from 1.0.0 to 1.1.0: mesh 1.1.0 needs dns >=1.1",
            "logs moves from 1.0.0 to 2.0.0: ^2 is requested",
            "mesh moves from 1.0.0 to 1.1.0: 1.0.0 needs Kubernetes <1.34, the cluster has 1.34.2",
            "old 1.0.0 stays although it is withdrawn",
            "only 1.0.0 is deprecated, but no other version is compatible",
        ]
    );
    let mesh = &solution.choices[2];
    assert_eq!((mesh.after.as_slice(), mesh.requested), (&["dns".to_owned()][..], true));
    assert!(!solution.choices[0].requested);
    let left: Vec<_> = solution.unneeded.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left, ["left"]);
}

#[test]
fn the_platform_range_applies_to_the_platform_lifecycle_only() {
    let rows = [
        (Lifecycle::Kubernetes, "1.0.0 platform=3.x", true),
        (Lifecycle::Independent, "1.0.0 platform=3.x", true),
        (Lifecycle::Platform, "1.0.0 platform=3.x", false),
        (Lifecycle::Platform, "1.0.0 platform=2.x", true),
        (Lifecycle::Platform, "1.0.0", true),
        (Lifecycle::Kubernetes, "1.0.0 k8s=<1.34", false),
        (Lifecycle::Independent, "1.0.0 k8s=<1.34", false),
        (Lifecycle::Independent, "1.0.0", true),
    ];
    for (lifecycle, version, compatible) in rows {
        let mut universe = universe(&[("a", &[version])]);
        universe.extensions.get_mut("a").unwrap().lifecycle = lifecycle;
        assert_eq!(
            resolve(&universe, &requests(&["a"]), &cluster(&[])).is_ok(),
            compatible,
            "{lifecycle:?} {version}"
        );
    }
    let mut universe = universe(&[("a", &["1.0.0 platform=2.x"])]);
    universe.extensions.get_mut("a").unwrap().lifecycle = Lifecycle::Platform;
    let mut unknown = cluster(&[]);
    unknown.platform = None;
    let conflict = resolve(&universe, &requests(&["a"]), &unknown).unwrap_err().to_string();
    assert!(
        conflict.contains("needs platform 2.x, but the version of the platform is not configured"),
        "{conflict}"
    );
}

#[test]
fn channels_are_respected() {
    let universe = universe(&[(
        "a",
        &[
            "1.0.0",
            "1.1.0 channel=stable",
            "1.2.0 channel=edge",
            "1.3.0 channel=1.24",
            "1.4.0 channel=1.24 k8s=<1.34",
        ],
    )]);
    for (channel, expected) in [
        (None, "1.1.0"),
        (Some("stable"), "1.1.0"),
        (Some("edge"), "1.2.0"),
        // A product line that is requested by name is no Kubernetes version, but the range of a version counts.
        (Some("1.24"), "1.3.0"),
        (Some("other"), "1.0.0"),
    ] {
        let mut request = request("a");
        request.channel = channel.map(ToOwned::to_owned);
        let solution = resolve(&universe, &[request], &cluster(&[])).unwrap();
        assert_eq!(solution.choices[0].version.text, expected, "{channel:?}");
    }
}
