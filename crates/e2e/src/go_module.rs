//! Folders of Go modules, from Go's cache or the module proxy, so that no copy of what others wrote is kept.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of a module: of the version that `query` names after an `@`, else of the one that the `go.mod` in
/// `folder` pins.
pub fn folder(folder: &Path, query: &str) -> PathBuf {
    let output = Command::new("go")
        .args(["mod", "download", "-json", query])
        .current_dir(folder)
        .output()
        .expect("go runs");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("go answers in JSON");
    PathBuf::from(answer["Dir"].as_str().unwrap_or_else(|| panic!("{query}: {answer}")))
}
