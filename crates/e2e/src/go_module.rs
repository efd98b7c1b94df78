//! Folders of Go modules, from Go's cache or the module proxy, so that no copy of what others wrote is kept.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of a module that the sandbox's programs are built from, in the version that they pin.
pub fn of_sandbox(module: &str) -> PathBuf {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/modules");
    folder(&modules.join("kubernetes-1.34"), module)
}

/// The folder of a module: of the version that `query` names after an `@`, else of the one that the `go.mod` in
/// `folder` pins.
pub fn folder(folder: &Path, query: &str) -> PathBuf {
    assert!(folder.is_dir(), "there is no folder {}", folder.display());
    let output = Command::new("go")
        .args(["mod", "download", "-json", query])
        .current_dir(folder)
        .output()
        .expect("go runs");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("go answers in JSON");
    PathBuf::from(answer["Dir"].as_str().unwrap_or_else(|| panic!("{query}: {answer}")))
}
