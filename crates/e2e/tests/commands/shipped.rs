//! What the shipped binary does not hold.

use std::{collections::BTreeSet, process::Command};

use crate::documents::root;

/// Crates that launch clusters, or that only tests and developers need.
const NOT_SHIPPED: [&str; 5] =
    ["chandler-assets", "chandler-bench", "chandler-conformance", "chandler-sandbox", "chandler-e2e"];

/// The names of all crates that a package is built from.
fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", package, "--edges", "normal,build", "--prefix", "none"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_shipped_binary_holds_neither_sandbox_nor_conformance_suite_nor_bench() {
    let shipped = dependencies("chandler-cli");
    assert!(shipped.contains("chandler-controller"), "{shipped:?}");
    let found: Vec<_> = NOT_SHIPPED.into_iter().filter(|name| shipped.contains(*name)).collect();
    assert!(found.is_empty(), "chandler depends on {found:?}");
    // The names are right: the other binary has them.
    let developers = dependencies("chandler-sandbox-cli");
    for name in &NOT_SHIPPED[..4] {
        assert!(developers.contains(*name), "chandler-sandbox does not depend on {name}");
    }
}
