//! What a test that fails leaves behind, shown with its failure: elsewhere nobody can go and look.

use std::{fs, process::Command};

use chandler_sandbox::assets::Binary;
use serde_json::Value;

use crate::world::World;

/// The kinds whose conditions tell most.
const KINDS: &str = "clusters.cluster.x-k8s.io,helmchartproxies.addons.cluster.x-k8s.io,\
                     helmreleaseproxies.addons.cluster.x-k8s.io,extensions.chandler.dev,\
                     extensioncatalogs.chandler.dev,extensioninstances.chandler.dev,addonreleases.chandler.dev";
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
    let mut command = Command::new(world.sandbox.assets().path(Binary::Kubectl));
    command.args(["get", KINDS, "--output", "json", "--namespace", &world.namespace, "--kubeconfig"]);
    command.arg(world.sandbox.management().kubeconfig_path());
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
