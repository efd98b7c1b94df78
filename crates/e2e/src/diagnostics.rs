//! Prints the state of a failed test, because it cannot be inspected afterwards in CI.

use std::fs;

use serde_json::Value;

use crate::world::{REPORTING_KINDS, World};

/// The beginnings of the names of logs that are printed.
const PRINTED: [&str; 3] = ["manager-", "hub-", "agent-"];
/// The number of lines printed of each log.
const LAST_LINES: usize = 25;

pub fn print(world: &World) {
    print_objects(world);
    let logs = fs::read_dir(world.dir.join("logs")).into_iter().flatten().flatten();
    let is_printed = |name: &str| PRINTED.iter().any(|program| name.starts_with(program));
    for log in logs.filter(|log| is_printed(&log.file_name().to_string_lossy())) {
        let text = fs::read_to_string(log.path()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        println!("--- last lines of {}", log.file_name().to_string_lossy());
        for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
            println!("{line}");
        }
    }
}

fn print_objects(world: &World) {
    // Errors are ignored: the test is already failing.
    let mut command = world.kubectl_command(&["get", REPORTING_KINDS, "--output", "json"]);
    command.args(["--namespace", &world.namespace]);
    let Ok(output) = command.output() else { return };
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    for object in list["items"].as_array().into_iter().flatten() {
        let metadata = &object["metadata"];
        println!(
            "--- {} {} generation {} annotations {}",
            object["kind"], metadata["name"], metadata["generation"], metadata["annotations"]
        );
        for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
            println!(
                "{}={} {} {}",
                condition["type"], condition["status"], condition["reason"], condition["message"]
            );
        }
    }
}
