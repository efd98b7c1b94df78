//! The programs under test. `cargo xtask test` builds them and passes their paths in environment variables.

use std::{env, path::PathBuf, sync::LazyLock};

static CHANDLER: LazyLock<String> = LazyLock::new(|| find("CHANDLER_BIN", "chandler"));
static AGENT: LazyLock<String> = LazyLock::new(|| find("CHANDLER_AGENT_BIN", "chandler-agent"));
static SANDBOX: LazyLock<String> = LazyLock::new(|| find("CHANDLER_SANDBOX_BIN", "chandler-sandbox"));
static PACKAGE_TOOL: LazyLock<String> = LazyLock::new(|| find("CHANDLER_TOOL", "chandler-helm"));
static PUSH: LazyLock<String> = LazyLock::new(|| find("XTASK_PUSH_BIN", "xtask-push"));

/// Returns the path of `chandler`.
pub fn chandler() -> &'static str {
    &CHANDLER
}

/// Returns the path of `chandler-agent`.
pub fn agent() -> &'static str {
    &AGENT
}

/// Returns the path of `chandler-sandbox`.
pub fn sandbox() -> &'static str {
    &SANDBOX
}

/// Returns the path of the Helm driver.
pub fn package_tool() -> &'static str {
    &PACKAGE_TOOL
}

/// Returns the path of the program that pushes images.
pub fn push() -> &'static str {
    &PUSH
}

/// Returns the path from the variable or, if it is not set, the program that was last built next to the tests.
fn find(variable: &str, file_name: &str) -> String {
    let path = env::var_os(variable).map_or_else(|| next_to_tests(file_name), PathBuf::from);
    assert!(
        path.is_file(),
        "there is no {file_name} at {}: run `cargo xtask test`, which builds the programs under test, or set {variable}",
        path.display()
    );
    path.into_os_string().into_string().expect("the path of a program is UTF-8")
}

/// Cargo puts tests into `target/PROFILE/deps`, and programs into `target/PROFILE`.
fn next_to_tests(file_name: &str) -> PathBuf {
    let test = env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(2).expect("a test is in target/PROFILE/deps").join(file_name)
}
