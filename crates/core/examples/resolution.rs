//! Measures how long a resolution takes: `cargo run --release -p chandler-core --example resolution`.
#![allow(clippy::print_stdout, reason = "it prints its measurements")]

use std::{collections::BTreeMap, time::Instant};

use chandler_core::resolution::{
    Candidate, Cluster, Published, Range, Requirement, Universe, VersionName, VersionRequest, resolve,
};
use semver::Version;

const EXTENSIONS: u64 = 200;
const VERSIONS: u64 = 50;
const DEPENDENCIES: u64 = 5;

/// Each extension depends on five of those before it, each version on versions of about the same age. Of ten minor
/// versions of Kubernetes, each version is compatible with three.
fn universe() -> Universe {
    let extension = |n: u64| {
        let versions = (0..VERSIONS).map(|v| version(n, v)).collect();
        (name(n), Published { versions, ..Published::default() })
    };
    Universe { extensions: (0..EXTENSIONS).map(extension).collect() }
}

fn version(n: u64, v: u64) -> Candidate {
    let minor = 26 + v / 5;
    let dependencies =
        (1..=DEPENDENCIES).filter_map(|step| n.checked_sub(step * 7)).map(|other| Requirement {
            extension: name(other),
            range: range(&format!(">=1.{} <1.{}", v.saturating_sub(6), v + 6)),
            optional: (n + other).is_multiple_of(4),
        });
    let dependencies = dependencies.collect();
    let kubernetes = Some(range(&format!(">=1.{minor} <1.{}", minor + 3)));
    Candidate { kubernetes, dependencies, ..Candidate::new(version_name(v)) }
}

fn name(n: u64) -> String {
    format!("extension-{n:03}")
}

fn range(text: &str) -> Range {
    text.parse().unwrap_or_else(|_| Range::any())
}

fn version_name(v: u64) -> VersionName {
    VersionName { version: Version::new(1, v, 0), text: format!("1.{v}.0") }
}

fn main() {
    let universe = universe();
    let requests: Vec<_> = (0..EXTENSIONS)
        .map(|n| VersionRequest {
            extension: name(n),
            range: Range::any(),
            channel: None,
            install_dependencies: true,
        })
        .collect();
    let mut conflicting = requests.clone();
    conflicting.push(VersionRequest { range: range("1.0.0"), ..requests[100].clone() });
    let running: BTreeMap<_, _> = (0..EXTENSIONS).map(|n| (name(n), version_name(25))).collect();
    let cluster = |minor, running: &BTreeMap<_, _>| Cluster {
        kubernetes: Version::new(1, minor, 0),
        platform: None,
        running: running.clone(),
    };
    measure("all are new", &universe, &requests, &cluster(33, &BTreeMap::new()));
    measure("all are running and compatible", &universe, &requests, &cluster(32, &running));
    measure("all are running and have to move", &universe, &requests, &cluster(34, &running));
    measure("one request conflicts", &universe, &conflicting, &cluster(33, &running));
}

fn measure(title: &str, universe: &Universe, requests: &[VersionRequest], cluster: &Cluster) {
    let start = Instant::now();
    let result = resolve(universe, requests, cluster);
    let took = start.elapsed();
    let outcome = match result {
        Ok(solution) => {
            let moves = solution.choices.iter().filter(|choice| choice.moves()).count();
            format!("{} chosen, {moves} of them move", solution.choices.len())
        }
        Err(conflict) => format!("a conflict with {} causes", conflict.causes.len()),
    };
    println!("{EXTENSIONS} extensions x {VERSIONS} versions, {title}: {outcome} in {took:?}");
}
