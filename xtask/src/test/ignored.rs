//! The ignored tests and the programs that they need.

use anyhow::Result;
use chandler_assets::{Binary, KubernetesVersion};

const OLDEST: KubernetesVersion = KubernetesVersion::V1_34;
const NEWEST: KubernetesVersion = KubernetesVersion::V1_36;

/// The programs that the ignored tests of a module need, and the Kubernetes version that they are built for.
const PROGRAMS: [(&str, KubernetesVersion, &[Binary]); 5] = [
    ("bucket_sources::", OLDEST, &[Binary::Versitygw]),
    ("chained_upgrade::", NEWEST, &Binary::CONTROL_PLANE),
    ("fleet::", OLDEST, &[Binary::FleetController, Binary::FleetAgent]),
    ("tunnel_bootstrap::", OLDEST, &[Binary::KubeadmBootstrap]),
    ("tunnel_client_go::", OLDEST, &[Binary::CapiClient]),
];

/// Returns the tests that cannot run yet, because `are_built` denies one of their programs. A test of a module that is
/// not in the table is among them.
pub fn without_programs(
    tests: Vec<String>,
    are_built: impl Fn(KubernetesVersion, &[Binary]) -> Result<bool>,
) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for test in tests {
        let row = PROGRAMS.iter().find(|(module, ..)| test.starts_with(module));
        let can_run = row.map_or(Ok(false), |(_, version, programs)| are_built(*version, programs))?;
        if !can_run {
            missing.push(test);
        }
    }
    Ok(missing)
}

/// Returns the arguments of `cargo test` that run the ignored tests except `skipped`.
pub fn arguments(skipped: &[String]) -> Vec<&str> {
    let skip = skipped.iter().flat_map(|name| ["--skip", name]);
    ["--", "--include-ignored", "--exact"].into_iter().chain(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_run_if_all_of_their_programs_are_built() {
        let tests = ["bucket_sources::a_change", "fleet::an_import", "other::a_test"].map(str::to_owned);
        let cases: [(&[Binary], &[&str]); 4] = [
            (&[], &["bucket_sources::a_change", "fleet::an_import", "other::a_test"]),
            (&[Binary::Versitygw], &["fleet::an_import", "other::a_test"]),
            (&[Binary::Versitygw, Binary::FleetAgent], &["fleet::an_import", "other::a_test"]),
            (&Binary::ON_DEMAND, &["other::a_test"]),
        ];
        for (built, expected) in cases {
            let are_built =
                |_, programs: &[Binary]| Ok(programs.iter().all(|program| built.contains(program)));
            assert_eq!(without_programs(tests.to_vec(), are_built).unwrap(), expected, "{built:?}");
        }
    }

    #[test]
    fn a_test_of_another_kubernetes_version_needs_the_programs_of_that_version() {
        let tests = ["chained_upgrade::a_test", "fleet::an_import"].map(str::to_owned);
        let oldest_only = |version: KubernetesVersion, _: &[Binary]| Ok(version == OLDEST);
        assert_eq!(without_programs(tests.to_vec(), oldest_only).unwrap(), tests[..1]);
    }

    #[test]
    fn every_program_that_is_built_on_demand_is_in_the_table() {
        for binary in Binary::ON_DEMAND {
            assert!(PROGRAMS.iter().any(|(.., programs)| programs.contains(&binary)), "{binary}");
        }
        for version in KubernetesVersion::SUPPORTED {
            let is_prebuilt = KubernetesVersion::PREBUILT.contains(&version);
            let is_listed = PROGRAMS
                .iter()
                .any(|(_, known, programs)| *known == version && *programs == version.programs());
            assert!(is_prebuilt || is_listed, "{version}");
        }
    }

    #[test]
    fn skipped_tests_are_named_exactly() {
        let skipped = ["fleet::an_import".to_owned()];
        assert_eq!(arguments(&skipped), ["--", "--include-ignored", "--exact", "--skip", "fleet::an_import"]);
    }
}
