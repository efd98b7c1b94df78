//! How long resolution takes: `cargo run --release -p chandler-core --example resolution`.
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::{collections::BTreeMap, time::Instant};

use chandler_core::resolution::{
    Candidate, Cluster, Needed, Published, Range, Universe, VersionName, Wanted, resolve,
};
use semver::Version;

const EXTENSIONS: u64 = 200;
const VERSIONS: u64 = 50;
const NEEDED: u64 = 5;

/// Extension n needs five of those before it, each version those of about its own age; of ten minors of Kubernetes, each
/// version fits three.
fn universe() -> Universe {
    let extension = |n: u64| {
        let versions = (0..VERSIONS).map(|v| version(n, v)).collect();
        (name(n), Published { versions, ..Published::default() })
    };
    Universe { extensions: (0..EXTENSIONS).map(extension).collect() }
}

fn version(n: u64, v: u64) -> Candidate {
    let minor = 26 + v / 5;
    let dependencies = (1..=NEEDED).filter_map(|step| n.checked_sub(step * 7)).map(|other| Needed {
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
    let wanted: Vec<_> = (0..EXTENSIONS)
        .map(|n| Wanted {
            extension: name(n),
            range: Range::any(),
            channel: None,
            install_dependencies: true,
        })
        .collect();
    let mut impossible = wanted.clone();
    impossible.push(Wanted { range: range("1.0.0"), ..wanted[100].clone() });
    let running: BTreeMap<_, _> = (0..EXTENSIONS).map(|n| (name(n), version_name(25))).collect();
    let cluster = |minor, running: &BTreeMap<_, _>| Cluster {
        kubernetes: Version::new(1, minor, 0),
        platform: None,
        running: running.clone(),
    };
    measure("all are new", &universe, &wanted, &cluster(33, &BTreeMap::new()));
    measure("all run and fit", &universe, &wanted, &cluster(32, &running));
    measure("all run and must move", &universe, &wanted, &cluster(34, &running));
    measure("one cannot be", &universe, &impossible, &cluster(33, &running));
}

fn measure(title: &str, universe: &Universe, wanted: &[Wanted], cluster: &Cluster) {
    let start = Instant::now();
    let answer = resolve(universe, wanted, cluster);
    let took = start.elapsed();
    let outcome = match answer {
        Ok(resolution) => {
            let moves = resolution.choices.iter().filter(|choice| choice.moves()).count();
            format!("{} chosen, {moves} of them move", resolution.choices.len())
        }
        Err(conflict) => format!("a conflict of {} facts", conflict.facts.len()),
    };
    println!("{EXTENSIONS} extensions x {VERSIONS} versions, {title}: {outcome} in {took:?}");
}
