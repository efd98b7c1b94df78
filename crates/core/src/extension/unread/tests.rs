use chandler_api::extensions::{AddonRelease, AddonReleaseSpec, ExtensionSpec};
use semver::Version;
use serde_json::{Value, json};

use super::*;
use crate::{
    extension::{Demand, Kubernetes, Resolution, resolve},
    resolution::{Range, VersionRequest, published, unread},
};

fn spec(versions: &[(&str, &[&str])]) -> ExtensionSpec {
    let version = |(version, needs): &(&str, &[&str])| -> Value {
        let needs: Vec<_> = needs.iter().map(|name| json!({"extension": name})).collect();
        let source = json!({"repository": "https://c.example", "chart": "c"});
        json!({"version": version, "source": source, "dependencies": needs})
    };
    serde_json::from_value(json!({"versions": versions.iter().map(version).collect::<Vec<_>>()})).unwrap()
}

fn release(extension: &str, version: &str) -> AddonRelease {
    let spec = AddonReleaseSpec {
        extension: Some(extension.to_owned()),
        version: Some(version.to_owned()),
        ..AddonReleaseSpec::default()
    };
    AddonRelease::new(extension, spec)
}

/// `dead` cannot be read.
fn input(requests: &[&str], running: &[(&str, &str)]) -> ResolutionInput {
    let known = |versions: &[(&str, &[&str])]| published(&spec(versions), |_| None, []);
    let dead = unread(&spec(&[("1.0.0", &["base"]), ("2.0.0", &[])]));
    let extensions = [
        ("dead", dead),
        ("base", known(&[("1.0.0", &[]), ("2.0.0", &[])])),
        ("dependent", known(&[("1.0.0", &[]), ("2.0.0", &["dead"])])),
        ("indirect", known(&[("1.0.0", &["dependent"])])),
        ("other", known(&[("1.0.0", &[])])),
    ];
    let request = |name: &&str| VersionRequest {
        extension: (*name).to_owned(),
        range: Range::any(),
        channel: None,
        install_dependencies: true,
    };
    let demand = Demand {
        universe: Universe { extensions: extensions.map(|(name, known)| (name.to_owned(), known)).into() },
        requests: requests.iter().map(request).collect(),
        ..Demand::default()
    };
    let running: Vec<_> = running.iter().map(|(name, version)| release(name, version)).collect();
    ResolutionInput::new(
        &demand,
        &running,
        None,
        Kubernetes { current: Version::new(1, 34, 0), upgrade: None },
    )
}

fn versions(resolution: &Resolution) -> Vec<(&str, &str)> {
    resolution.chosen.iter().map(|(name, chosen)| (name.as_str(), chosen.version.text.as_str())).collect()
}

#[test]
fn what_runs_is_kept_with_its_dependencies_and_what_is_unread_blocks_no_others() {
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: [Row<'_>; 7] = [
        (&["dead", "other"], &[], &[("other", "1.0.0")], &["dead"]),
        (
            &["dead", "other"],
            &[("dead", "1.0.0"), ("base", "1.0.0")],
            &[("base", "1.0.0"), ("dead", "1.0.0"), ("other", "1.0.0")],
            &[],
        ),
        // A version that is not listed any more.
        (&["dead"], &[("dead", "0.9.0")], &[("dead", "0.9.0")], &[]),
        // An older version without the dependency would be a guess.
        (&["dependent", "other"], &[], &[("other", "1.0.0")], &["dependent"]),
        (&["indirect", "other"], &[], &[("other", "1.0.0")], &["indirect"]),
        (&["dependent"], &[("dependent", "1.0.0")], &[("dependent", "1.0.0")], &[]),
        (&["dependent"], &[("dependent", "2.0.0")], &[("dependent", "2.0.0")], &["dependent"]),
    ];
    for (requests, running, expected, refused) in rows {
        let resolved = resolve(&input(requests, running));
        assert_eq!(versions(&resolved), expected, "{requests:?} {running:?}");
        assert_eq!(resolved.refused.keys().collect::<Vec<_>>(), refused, "{requests:?} {running:?}");
        for why in resolved.refused.values() {
            assert!(why.contains("the versions of dead cannot be read"), "{why}");
        }
    }
}

#[test]
fn what_is_unread_is_named() {
    let running = [("dead", "1.0.0"), ("base", "1.0.0")];
    let kept = input(&["dead"], &running);
    let message = &resolve(&kept).chosen["dead"].message;
    assert!(message.starts_with("1.0.0 stays: the versions of dead cannot be read"), "{message}");
    assert!(kept.has_unread());
    assert_eq!(kept.unread_running().len(), 1, "a Kubernetes upgrade has to wait");
    assert_eq!(input(&["dead"], &[]).unread_running(), Vec::<String>::new());
    let mut newer = kept;
    newer.requests[0].range = "2.x".parse().unwrap();
    let refused = &resolve(&newer).refused["dead"];
    assert!(refused.contains("the versions of dead cannot be read"), "{refused}");
}
