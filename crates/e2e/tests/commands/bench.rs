//! `chandler-sandbox bench`: every phase is measured and the figures are complete. Times are not checked.

use std::time::Duration;

use chandler_e2e::{
    programs,
    shell::{Shell, text},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(10);
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
        "chandler-sandbox bench fleet --clusters 1 --releases 2 --idle-seconds 2 --failing-seconds 15 --json {} --tool {tool}",
        file.display()
    );
    let output = shell.run(&line, &[], LIMIT).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");

    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let phases = figures["phases"].as_array().unwrap();
    let measured: Vec<_> =
        phases.iter().map(|p| (p["name"].as_str().unwrap(), p["releases"].as_u64().unwrap())).collect();
    assert_eq!(measured, PHASES);
    for phase in phases {
        for figure in FIGURES {
            assert!(phase[figure].is_number(), "{figure} of {phase}");
        }
        assert!(stdout.contains(phase["name"].as_str().unwrap()), "{stdout}");
    }
    assert_eq!(figures["clusters"], 1);
    let drawing = shell.home.join("figures.svg");
    let line = format!("chandler-sandbox bench plot {} --svg {}", file.display(), drawing.display());
    let output = shell.run(&line, &[], LIMIT).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(&drawing).unwrap().starts_with("<svg "));
    let line = format!("chandler-sandbox bench compare {0} {0}", file.display());
    let output = shell.run(&line, &[], LIMIT).await;
    assert!(text(&output.stderr).contains("all results have 1 clusters"), "{}", text(&output.stderr));

    let requests =
        |name: &str| phases.iter().find(|p| p["name"] == name).unwrap()["requests"].as_u64().unwrap();
    for name in ["install", "upgrade", "version", "helm-cli-install"] {
        assert!(requests(name) >= 2, "{name} is impossible without requests: {stdout}");
    }
}

#[tokio::test]
async fn the_figures_are_complete_even_if_the_controller_fails() {
    let shell = Shell::new("bench-failing").await;
    let tool = programs::package_tool();
    let file = shell.home.join("figures.json");
    let line = format!(
        "chandler-sandbox bench fleet --clusters 1 --releases 1 --idle-seconds 1 --failing-seconds 3 --controller false --json {} --tool {tool}",
        file.display()
    );
    let output = shell.run(&line, &[], LIMIT).await;
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("controller exited ("), "{stderr}");
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(figures["phases"].as_array().unwrap().len(), PHASES.len());
}

const PLACEMENT_FIGURES: [&str; 8] = [
    "lease_delay_s",
    "change_p99_s",
    "churn_status_writes",
    "idle_cpu_s",
    "memory_mib",
    "restart_s",
    "reset_concurrent_connects",
    "silent_p99_ratio",
];

#[tokio::test]
async fn the_placement_bench_measures_replayed_clusters_and_draws_them() {
    let shell = Shell::new("bench-placement").await;
    let tool = programs::package_tool();
    let (file, drawing) = (shell.home.join("figures.json"), shell.home.join("figures.svg"));
    let line = format!(
        "chandler-sandbox bench placement --clusters 4 --placements 2 --changes 3 --churn-seconds 2 --idle-seconds 2 --json {} --tool {tool}",
        file.display()
    );
    let output = shell.run(&line, &[], LIMIT).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let figures = &figures["placement"];
    for figure in PLACEMENT_FIGURES {
        assert!(figures[figure].is_number(), "{figure} of {figures}");
    }
    assert_eq!(figures["clusters"], 4);
    assert!(figures["restart_requests_per_cluster"].as_f64().unwrap() >= 3.0, "{figures}");
    assert!(stdout.contains("connections reset: status writes"), "{stdout}");

    let line = format!("chandler-sandbox bench plot {} --svg {}", file.display(), drawing.display());
    let output = shell.run(&line, &[], LIMIT).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(&drawing).unwrap().starts_with("<svg "));
}

const GITOPS_FIGURES: [&str; 6] =
    ["push_ratio", "fetch_s", "memory_growth_mib", "memory_peak_mib", "ls_refs", "ls_refs_per_interval"];

#[tokio::test]
async fn the_gitops_bench_measures_pushes_polls_and_a_large_repository() {
    let shell = Shell::new("bench-gitops").await;
    let tool = programs::package_tool();
    let file = shell.home.join("figures.json");
    let line = format!(
        "chandler-sandbox bench gitops --clusters 2 --rounds 1 --sources 5 --interval-seconds 2 --intervals 2 --files 50 \
         --history-mb 1 --json {} --tool {tool}",
        file.display()
    );
    let output = shell.run(&line, &[], LIMIT).await;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let figures = &figures["gitops"];
    for figure in GITOPS_FIGURES {
        assert!(figures[figure].is_number(), "{figure} of {figures}");
    }
    let changes = figures["changes"].as_array().unwrap();
    let measured: Vec<_> =
        changes.iter().map(|c| (c["name"].as_str().unwrap(), c["releases"].as_u64().unwrap())).collect();
    assert_eq!(measured, [("install", 2), ("push", 2), ("apply", 2)]);
    for change in changes {
        for figure in FIGURES {
            assert!(change[figure].is_number(), "{figure} of {change}");
        }
        assert!(change["requests"].as_u64().unwrap() >= 2, "{change}");
    }
    assert!(figures["push"]["delay_s"].as_f64().unwrap() > 0.0, "{figures}");
    assert!(figures["ls_refs"].as_u64().unwrap() >= 1, "{figures}");
    assert!(stdout.contains("one repository: ls-refs requests per interval"), "{stdout}");
}
