//! The ignored tests and the programs that they need.

use anyhow::Result;
use chandler_assets::Binary;

/// The programs that the ignored tests of a module need.
const PROGRAMS: [(&str, &[Binary]); 4] = [
    ("bucket_sources::", &[Binary::Versitygw]),
    ("fleet::", &[Binary::FleetController, Binary::FleetAgent]),
    ("tunnel_bootstrap::", &[Binary::KubeadmBootstrap]),
    ("tunnel_client_go::", &[Binary::CapiClient]),
];

/// Returns the tests that cannot run yet, because `are_built` denies one of their programs. A test of a module that is
/// not in the table is among them.
pub fn without_programs(
    tests: Vec<String>,
    are_built: impl Fn(&[Binary]) -> Result<bool>,
) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for test in tests {
        let row = PROGRAMS.iter().find(|(module, _)| test.starts_with(module));
        let can_run = row.map_or(Ok(false), |(_, programs)| are_built(programs))?;
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
            let are_built = |programs: &[Binary]| Ok(programs.iter().all(|program| built.contains(program)));
            assert_eq!(without_programs(tests.to_vec(), are_built).unwrap(), expected, "{built:?}");
        }
    }

    #[test]
    fn every_program_that_is_built_on_demand_is_in_the_table() {
        for binary in Binary::ON_DEMAND {
            assert!(PROGRAMS.iter().any(|(_, programs)| programs.contains(&binary)), "{binary}");
        }
    }

    #[test]
    fn skipped_tests_are_named_exactly() {
        let skipped = ["fleet::an_import".to_owned()];
        assert_eq!(arguments(&skipped), ["--", "--include-ignored", "--exact", "--skip", "fleet::an_import"]);
    }
}
