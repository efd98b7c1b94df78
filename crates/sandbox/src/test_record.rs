//! What tests do, appended to a file line by line: `cargo xtask test` prints a summary of it. Several processes write to
//! the same file, and a test that is killed leaves the lines that it has written.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

/// The file. Without the variable, nothing is recorded.
pub const VARIABLE: &str = "CHANDLER_TEST_RECORD";

#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Record<'a> {
    /// A test has run.
    Test { test: &'a str, start_millis: u128, waited_millis: u128, ran_millis: u128, failed: bool },
    /// A test has given a name to a directory or a namespace, which the directories of its control planes contain.
    Name { test: &'a str, process: u32, name: &'a str },
    /// A control plane was started.
    Plane { directory: &'a Path, full: bool, ready_after_millis: u128 },
    /// A test has created a Cluster and has waited until it was Available.
    Cluster { available_after_millis: u128 },
    /// A Cluster has got a control plane, which may have been used before.
    Assigned { plane: &'a Path, cluster: &'a Path, reused: bool },
    /// A control plane of a deleted Cluster cannot be used again.
    Discarded { cluster: &'a str, reason: &'a str },
}

/// Returns the name of the test that runs on this thread.
pub fn current_test() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Appends a line to the file. Errors are ignored: they must not make a test fail.
pub fn append(record: &Record<'_>) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let Ok(line) = serde_json::to_string(record) else { return };
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        // One write, so that lines of several processes do not mix.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
