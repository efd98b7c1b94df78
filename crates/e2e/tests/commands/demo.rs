//! `chandler-sandbox demo`: the commands that it prints work, it can run again after a kill, and it cleans up.

use std::time::Duration;

use chandler_e2e::{
    programs,
    shell::{Shell, processes_using, text},
    wait::eventually,
};
use chandler_sandbox::process::{Child, Spec};
use rustix::process::{Pid, Signal, kill_process};

use crate::documents::{commands, commands_of, document, root, section};

/// Documents whose commands are run on the clusters of the demo.
pub const ON_THE_FLEET: [&str; 9] = [
    "docs/guides/inspecting-a-fleet.md",
    "docs/guides/writing-an-extension.md",
    "docs/guides/policies.md",
    "docs/guides/tenants.md",
    "docs/guides/failures.md",
    "docs/guides/health.md",
    "docs/guides/drift.md",
    "docs/guides/rollouts.md",
    "docs/operations.md",
];

/// Returns the commands of the getting-started guide for the demo.
pub fn getting_started_commands() -> Vec<String> {
    commands(section(&document("docs/guides/getting-started.md"), "On one machine"))
}

const LIMIT: Duration = Duration::from_mins(6);

fn start(shell: &Shell, name: &str) -> Child {
    let tool = programs::package_tool();
    let args =
        ["demo", "--dir", &shell.home.join("demo").to_string_lossy(), "--tool", tool].map(str::to_owned);
    let home = std::env::var("HOME").unwrap();
    let spec = Spec {
        name: name.to_owned(),
        program: programs::sandbox().into(),
        args: args.to_vec(),
        env: vec![("HOME".to_owned(), home)],
        home: shell.home.clone(),
    };
    Child::spawn(&spec).unwrap()
}

/// Waits until the demo prints a text. Returns its whole output.
async fn wait_output(demo: &Child, text: &str) -> String {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let log = std::fs::read_to_string(demo.log()).unwrap_or_default();
        if log.contains(text) {
            return log;
        }
        assert!(
            std::time::Instant::now() < deadline && demo.is_running(),
            "the demo did not print `{text}`:\n{log}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn signal(demo: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(demo.pid()).unwrap()).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn the_commands_that_the_demo_prints_work() {
    let shell = Shell::new("demo").await;
    let demo = start(&shell, "demo");
    let log = wait_output(&demo, "Ctrl-C ends the demo").await;
    let commands: Vec<&str> = log
        .lines()
        .skip_while(|line| *line != "Try, in another terminal:")
        .skip(1)
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    let (exports, commands): (Vec<&str>, Vec<&str>) =
        commands.iter().partition(|line| line.starts_with("export "));
    let kubeconfig = exports.iter().find_map(|line| line.strip_prefix("export KUBECONFIG=")).unwrap();
    let kubeconfig = kubeconfig.trim_matches('"');
    let without_comment = |line: &str| line.split(" #").next().unwrap().trim().to_owned();
    let printed: Vec<String> = commands.iter().map(|line| without_comment(line)).collect();

    std::os::unix::fs::symlink(root().join("examples"), shell.home.join("examples")).unwrap();
    let on_the_fleet = ON_THE_FLEET.into_iter().flat_map(commands_of);
    // `chandler log-level` does not find the store of the demo's manager.
    for line in on_the_fleet.filter(|line| !line.starts_with("chandler log-level")) {
        let command = format!("cd {} && {line}", shell.home.display());
        shell.expect(&command, &[("KUBECONFIG", kubeconfig)]).await;
    }
    let fresh_clone = Shell::without_programs("fresh-clone").await;
    for line in &commands {
        assert!(line.starts_with("chandler"), "`{line}` needs a program that the demo does not build");
        let command = format!("{}\n{line}", exports.join("\n"));
        // A watch does not end by itself.
        let is_watch = line.ends_with("-w");
        let limit = if is_watch { Duration::from_secs(20) } else { Duration::from_mins(2) };
        let output = fresh_clone.run(&command, &[], limit).await;
        let watching = is_watch && output.status.code() == Some(124);
        assert!(output.status.success() || watching, "`{line}`: {}", text(&output.stderr));
    }
    for expected in ["chandler get", "chandler describe hello"] {
        assert!(printed.iter().any(|line| line == expected), "the demo does not print `{expected}`");
    }
    for line in getting_started_commands().into_iter().chain(commands_of("docs/concepts/releases.md")) {
        let by_sandbox = format!("chandler-sandbox {line}");
        let known = printed.contains(&line) || printed.contains(&by_sandbox) || line == "cargo xtask demo";
        assert!(known || line == "kubectl get hcp,hrp", "the demo does not print `{line}`");
    }
    signal(&demo, Signal::INT);
    let deadline = std::time::Instant::now() + Duration::from_mins(2);
    while demo.is_running() && std::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!demo.is_running(), "Ctrl-C ends the demo");
    assert_eq!(processes_using(&shell.home.join("demo")), [] as [String; 0]);
    assert!(!shell.home.join("demo").exists(), "the demo removes its folder");
}

#[tokio::test]
async fn a_killed_demo_can_be_run_again() {
    let shell = Shell::new("killed").await;
    let folder = shell.home.join("demo");
    for message in ["waiting for cluster", "applied HelmChartProxy"] {
        let demo = start(&shell, &format!("demo-{}", message.len()));
        wait_output(&demo, message).await;
        demo.kill().await;
        eventually("all processes exit with the demo", || async {
            processes_using(&folder).is_empty().then_some(())
        })
        .await;
    }
    let tool = programs::package_tool();
    let again = format!("chandler-sandbox demo --exit --dir {} --tool {tool}", folder.display());
    let output = shell.run(&again, &[], Duration::from_mins(6)).await;
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(processes_using(&folder), [] as [String; 0]);
}
