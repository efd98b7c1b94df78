//! What is chosen, and what is said where nothing can be.

use chandler_api::extensions::Lifecycle;

use super::world::{cluster, universe, wanted, wants};
use crate::resolution::{Universe, resolve};

const DOCUMENTATION: &str = include_str!("../../../../../docs/concepts/extensions.md");

/// Extensions with their versions, what is wanted, what runs, and the choices in order.
type Row<'a> = (&'a str, &'a [(&'a str, &'a [&'a str])], &'a [&'a str], &'a [&'a str], &'a [&'a str]);

/// Extensions with their versions, what is wanted, and the conflict in words.
type ConflictRow<'a> = (&'a [(&'a str, &'a [&'a str])], &'a [&'a str], &'a str);

fn chosen(universe: &Universe, wanted: &[&str], running: &[&str]) -> Vec<String> {
    let resolution = resolve(universe, &wants(wanted), &cluster(running)).unwrap();
    resolution.choices.iter().map(|choice| format!("{}@{}", choice.extension, choice.version)).collect()
}

fn check(rows: &[Row<'_>]) {
    for (title, extensions, wanted, running, expected) in rows {
        assert_eq!(chosen(&universe(extensions), wanted, running), *expected, "{title}");
    }
}

#[test]
fn versions_are_chosen() {
    let rows: &[Row<'_>] = &[
        ("the newest", &[("a", &["1.0.0", "1.10.0", "1.9.0"])], &["a"], &[], &["a@1.10.0"]),
        ("in the range", &[("a", &["1.0.0", "2.0.0"])], &["a@^1"], &[], &["a@1.0.0"]),
        ("in both ranges", &[("a", &["1.0.0", "1.5.0", "2.0.0"])], &["a@^1", "a@<1.4"], &[], &["a@1.0.0"]),
        ("no pre-release", &[("a", &["1.0.0", "2.0.0-rc.1"])], &["a"], &[], &["a@1.0.0"]),
        ("that fits Kubernetes", &[("a", &["1.0.0", "1.1.0 k8s=>=1.35"])], &["a"], &[], &["a@1.0.0"]),
        ("not deprecated", &[("a", &["1.0.0", "1.1.0 deprecated"])], &["a"], &[], &["a@1.0.0"]),
        ("deprecated if need be", &[("a", &["1.0.0", "1.1.0 deprecated"])], &["a@>1.0.0"], &[], &["a@1.1.0"]),
        ("not withdrawn", &[("a", &["1.0.0", "1.1.0 withdrawn"])], &["a"], &[], &["a@1.0.0"]),
        (
            "of the stable channel",
            &[("a", &["1.0.0 channel=stable", "1.1.0 channel=edge"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        ("what runs stays", &[("a", &["1.0.0", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("deprecated stays", &[("a", &["1.0.0 deprecated", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("withdrawn stays", &[("a", &["1.0.0 withdrawn", "1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("unlisted stays", &[("a", &["1.1.0"])], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        ("unknown stays", &[], &["a"], &["a@1.0.0"], &["a@1.0.0"]),
        (
            "another channel stays",
            &[("a", &["1.0.0 channel=edge", "1.1.0"])],
            &["a"],
            &["a@1.0.0"],
            &["a@1.0.0"],
        ),
        (
            "unless it does not fit",
            &[("a", &["1.0.0 k8s=<1.34", "1.1.0"])],
            &["a"],
            &["a@1.0.0"],
            &["a@1.1.0"],
        ),
        ("down if need be", &[("a", &["1.0.0", "1.1.0 k8s=>=1.35"])], &["a"], &["a@1.1.0"], &["a@1.0.0"]),
    ];
    check(rows);
}

#[test]
fn versions_are_chosen_together() {
    let rows: &[Row<'_>] = &[
        (
            "dependencies come along, first",
            &[("a", &["1.0.0 needs=z@^1"]), ("z", &["1.0.0", "2.0.0"])],
            &["a"],
            &[],
            &["z@1.0.0", "a@1.0.0"],
        ),
        (
            "of a dependency as well",
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0 needs=c@*"]), ("c", &["1.0.0"])],
            &["a"],
            &[],
            &["c@1.0.0", "b@1.0.0", "a@1.0.0"],
        ),
        (
            "an older one if the newer's dependency does not fit",
            &[("a", &["1.0.0", "2.0.0 needs=b@*"]), ("b", &["1.0.0 k8s=<1.20"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        (
            "optional ones do not come along",
            &[("a", &["1.0.0 uses=b@^2"]), ("b", &["1.0.0", "2.0.0"])],
            &["a"],
            &[],
            &["a@1.0.0"],
        ),
        (
            "but their range holds, and they come first",
            &[("a", &["1.0.0 uses=b@^1"]), ("b", &["1.0.0", "2.0.0"])],
            &["a", "b"],
            &[],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "optional both ways is no circle",
            &[("a", &["1.0.0 uses=b@*"]), ("b", &["1.0.0 uses=a@*"])],
            &["a", "b"],
            &[],
            &["a@1.0.0", "b@1.0.0"],
        ),
        (
            "a circle is avoided",
            &[("a", &["1.0.0", "2.0.0 needs=b@*"]), ("b", &["1.0.0 needs=a@*"])],
            &["a", "b"],
            &[],
            &["a@1.0.0", "b@1.0.0"],
        ),
        (
            "what runs stays rather than a new one being newest",
            &[("a", &["1.0.0 needs=b@*", "2.0.0 needs=b@^2"]), ("b", &["1.0.0", "2.0.0"])],
            &["a", "b"],
            &["b@1.0.0"],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "also if it only runs because others need it",
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
            "required ones may be asked for",
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0"])],
            &["a!", "b"],
            &[],
            &["b@1.0.0", "a@1.0.0"],
        ),
        (
            "required ones that nobody asks for are avoided",
            &[("a", &["1.0.0", "2.0.0 needs=b@*"]), ("b", &["1.0.0"])],
            &["a!"],
            &[],
            &["a@1.0.0"],
        ),
    ];
    check(rows);
}

#[test]
fn conflicts_are_told_in_words() {
    let cert_manager: &[&str] =
        &["1.13.0 k8s=<1.31", "1.14.0 k8s=<1.31", "1.15.0 withdrawn", "1.16.0 k8s=>=1.35", "2.0.0"];
    let rows: &[ConflictRow<'_>] = &[
        (
            &[("cert-manager", cert_manager)],
            &["cert-manager@^1.13"],
            "cert-manager is asked for as ^1.13\n\
             cert-manager 1.13.0 and 1.14.0 need Kubernetes <1.31, the cluster has 1.34.2\n\
             cert-manager 1.16.0 needs Kubernetes >=1.35, the cluster has 1.34.2\n\
             cert-manager 1.15.0 is withdrawn",
        ),
        (
            &[
                ("cert-manager", &["1.14.0", "1.15.0"]),
                ("ingress", &["2.0.0 needs=cert-manager@>=1.15"]),
                ("logging", &["1.0.0 needs=cert-manager@<1.15", "1.1.0 needs=cert-manager@<1.15"]),
            ],
            &["ingress", "logging@^1"],
            "ingress is asked for\n\
             ingress 2.0.0 needs cert-manager >=1.15\n\
             logging is asked for as ^1\n\
             logging 1.0.0 and 1.1.0 need cert-manager <1.15",
        ),
        (&[], &["nothing"], "nothing is asked for\nnothing is not known: no Extension has that name"),
        (
            &[("a", &["1.0.0"])],
            &["a@^2"],
            "a is asked for as ^2\na has no version in ^2, the newest is 1.0.0",
        ),
        (
            &[("a", &["1.0.0 needs=b@^3"]), ("b", &["1.0.0"])],
            &["a"],
            "a is asked for\na 1.0.0 needs b ^3\nb has no version in ^3, the newest is 1.0.0",
        ),
        (
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0 needs=c@*"]), ("c", &["1.0.0 needs=a@*"])],
            &["a"],
            "a is asked for\n\
             a 1.0.0 needs b\n\
             a needs b, which needs c, which needs a: nothing could be installed first\n\
             b 1.0.0 needs c",
        ),
        (
            &[("a", &["1.0.0 needs=a@*"])],
            &["a"],
            "a is asked for\na 1.0.0 needs the extension itself, which cannot be",
        ),
        (
            &[("a", &["1.0.0 needs=b@*"]), ("b", &["1.0.0"])],
            &["a!"],
            "a is asked for\n\
             a 1.0.0 needs b, which nobody asks for: add an ExtensionInstance of it, or set dependencies: Install",
        ),
        (
            &[("a", &["1.0.0 uses=b@^1"]), ("b", &["2.0.0"])],
            &["a", "b"],
            "a is asked for\na 1.0.0 needs b ^1 if it is there\nb is asked for\n\
             b has no version in ^1, the newest is 2.0.0",
        ),
    ];
    for (extensions, wanted, expected) in rows {
        let conflict = resolve(&universe(extensions), &wants(wanted), &cluster(&[])).unwrap_err();
        assert_eq!(conflict.to_string(), *expected);
    }
    assert!(DOCUMENTATION.contains(rows[0].2), "the documentation shows the first one");
}

#[test]
fn choices_say_why() {
    let universe = universe(&[
        ("dns", &["1.0.0", "1.1.0", "1.2.0 deprecated"]),
        ("mesh", &["1.0.0 k8s=<1.34", "1.1.0 needs=dns@>=1.1"]),
        ("old", &["1.0.0 withdrawn"]),
        ("logs", &["1.0.0", "2.0.0"]),
        ("only", &["1.0.0 deprecated"]),
    ]);
    let wanted = wants(&["mesh", "old", "logs@^2", "only"]);
    let running = cluster(&["mesh@1.0.0", "dns@1.0.0", "old@1.0.0", "logs@1.0.0", "left@1.0.0"]);
    let resolution = resolve(&universe, &wanted, &running).unwrap();
    let words: Vec<_> = resolution.choices.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "dns moves from 1.0.0 to 1.1.0: mesh 1.1.0 needs dns >=1.1",
            "logs moves from 1.0.0 to 2.0.0: asked for is ^2",
            "mesh moves from 1.0.0 to 1.1.0: 1.0.0 needs Kubernetes <1.34, the cluster has 1.34.2",
            "old 1.0.0 runs and stays, though it is withdrawn",
            "only 1.0.0 is deprecated, and nothing else fits",
        ]
    );
    let mesh = &resolution.choices[2];
    assert_eq!((mesh.after.as_slice(), mesh.asked_for), (&["dns".to_owned()][..], true));
    assert!(!resolution.choices[0].asked_for);
    let left: Vec<_> = resolution.unneeded.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(left, ["left"]);
}

#[test]
fn the_life_cycle_says_what_a_version_is_held_against() {
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
    for (lifecycle, version, fits) in rows {
        let mut universe = universe(&[("a", &[version])]);
        universe.extensions.get_mut("a").unwrap().lifecycle = lifecycle;
        assert_eq!(
            resolve(&universe, &wants(&["a"]), &cluster(&[])).is_ok(),
            fits,
            "{lifecycle:?} {version}"
        );
    }
    let mut universe = universe(&[("a", &["1.0.0 platform=2.x"])]);
    universe.extensions.get_mut("a").unwrap().lifecycle = Lifecycle::Platform;
    let mut unknown = cluster(&[]);
    unknown.platform = None;
    let conflict = resolve(&universe, &wants(&["a"]), &unknown).unwrap_err().to_string();
    assert!(
        conflict.contains("needs platform 2.x, and the version of this one is not configured"),
        "{conflict}"
    );
}

#[test]
fn channels_are_asked_for() {
    let universe = universe(&[("a", &["1.0.0", "1.1.0 channel=stable", "1.2.0 channel=edge"])]);
    for (channel, expected) in [(None, "1.1.0"), (Some("edge"), "1.2.0"), (Some("other"), "1.0.0")] {
        let mut wanted = wanted("a");
        wanted.channel = channel.map(ToOwned::to_owned);
        let resolution = resolve(&universe, &[wanted], &cluster(&[])).unwrap();
        assert_eq!(resolution.choices[0].version.text, expected, "{channel:?}");
    }
}
