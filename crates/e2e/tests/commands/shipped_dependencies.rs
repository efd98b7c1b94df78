//! The shipped binary does not depend on crates for development.

use std::{collections::BTreeSet, process::Command};

use crate::documents::root;

/// Crates that only tests and developers need.
const NOT_SHIPPED: [&str; 6] = [
    "chandler-assets",
    "chandler-bench",
    "chandler-chaos",
    "chandler-conformance",
    "chandler-sandbox",
    "chandler-e2e",
];

/// Returns the names of all crates that a package depends on.
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
fn the_shipped_binary_does_not_depend_on_development_crates() {
    let shipped = dependencies("chandler-cli");
    assert!(shipped.contains("chandler-controller"), "{shipped:?}");
    let found: Vec<_> = NOT_SHIPPED.into_iter().filter(|name| shipped.contains(*name)).collect();
    assert!(found.is_empty(), "chandler depends on {found:?}");
    // This checks that the names are spelled correctly.
    let development = dependencies("chandler-sandbox-cli");
    for name in &NOT_SHIPPED[..5] {
        assert!(development.contains(*name), "chandler-sandbox does not depend on {name}");
    }
}
