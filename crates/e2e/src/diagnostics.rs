//! Prints the state of a failed test, because it cannot be inspected afterwards in CI.

use std::fs;

use crate::world::World;

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
    for object in world.reporting_objects().unwrap_or_default() {
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
