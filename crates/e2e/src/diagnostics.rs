//! What a test that fails leaves behind, shown with its failure: elsewhere nobody can go and look.

use std::fs;

use serde_json::Value;

use crate::world::{TELLING, World};

/// Of each manager's log.
const LAST_LINES: usize = 25;

pub fn show(world: &World) {
    show_objects(world);
    let logs = fs::read_dir(world.dir.join("logs")).into_iter().flatten().flatten();
    for log in logs.filter(|log| log.file_name().to_string_lossy().starts_with("manager-")) {
        let text = fs::read_to_string(log.path()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        println!("--- the end of {}", log.file_name().to_string_lossy());
        for line in lines.iter().skip(lines.len().saturating_sub(LAST_LINES)) {
            println!("{line}");
        }
    }
}

fn show_objects(world: &World) {
    // Nothing here may fail: the test has already.
    let mut command = world.kubectl_command(&["get", TELLING, "--output", "json"]);
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
