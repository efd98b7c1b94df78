//! The bench: every phase is measured, and the figures have their shape. Times are never judged.

use std::time::Duration;

use chandler_e2e::{
    programs,
    shell::{Shell, text},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(5);
const PHASES: [(&str, u64); 10] = [
    ("install", 2),
    ("upgrade", 2),
    ("version", 2),
    ("restart", 2),
    ("idle", 2),
    ("failing", 1),
    ("unreachable", 0),
    ("back", 2),
    ("helm-cli-install", 2),
    ("helm-cli-upgrade", 2),
];
const FIGURES: [&str; 6] = ["wall_s", "cpu_s", "requests", "downloads", "rss_mib", "peak_mib"];

#[tokio::test]
async fn the_bench_measures_every_phase() {
    let shell = Shell::new("bench").await;
    let tool = programs::package_tool();
    let file = shell.home.join("figures.json");
    let line = format!(
        "chandler-sandbox bench fleet --clusters 1 --releases 2 --idle-seconds 2 --failing-seconds 3 --json {} --tool {tool}",
        file.display()
    );
    let output = shell.run(&line, &[], LIMIT).await;
    let (printed, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}\n{complained}");

    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let phases = figures["phases"].as_array().unwrap();
    let measured: Vec<_> =
        phases.iter().map(|p| (p["name"].as_str().unwrap(), p["releases"].as_u64().unwrap())).collect();
    assert_eq!(measured, PHASES);
    for phase in phases {
        for figure in FIGURES {
            assert!(phase[figure].is_number(), "{figure} of {phase}");
        }
        assert!(printed.contains(phase["name"].as_str().unwrap()), "{printed}");
    }
    let requests =
        |name: &str| phases.iter().find(|p| p["name"] == name).unwrap()["requests"].as_u64().unwrap();
    for name in ["install", "upgrade", "version", "helm-cli-install"] {
        assert!(requests(name) >= 2, "{name} cannot be done without requests: {printed}");
    }
}

#[tokio::test]
async fn a_controller_that_cannot_do_the_work_costs_no_figures() {
    let shell = Shell::new("bench-other").await;
    let tool = programs::package_tool();
    let file = shell.home.join("figures.json");
    let line = format!(
        "chandler-sandbox bench fleet --clusters 1 --releases 1 --idle-seconds 1 --failing-seconds 3 --controller false --json {} --tool {tool}",
        file.display()
    );
    let output = shell.run(&line, &[], LIMIT).await;
    assert!(!output.status.success());
    let complained = text(&output.stderr);
    assert!(complained.contains("controller exited ("), "{complained}");
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(figures["phases"].as_array().unwrap().len(), PHASES.len());
}
