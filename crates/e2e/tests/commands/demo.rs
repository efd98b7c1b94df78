//! The demo: it works, it prints commands that work, it survives a kill, and it leaves nothing behind.

use std::time::Duration;

use chandler_e2e::{
    programs,
    shell::{Shell, processes_of, text},
    wait::eventually,
};
use chandler_sandbox::process::{Child, Spec};
use rustix::process::{Pid, Signal, kill_process};

use crate::documents::{commands, commands_of, document, section};

/// Guides whose commands are run on the demo's fleet.
pub const ON_THE_FLEET: [&str; 3] =
    ["docs/guides/inspecting-a-fleet.md", "docs/guides/writing-an-extension.md", "docs/operations.md"];

/// What the guide for newcomers says about the demo.
pub fn started() -> Vec<String> {
    commands(section(&document("docs/guides/getting-started.md"), "On one machine"))
}

const LIMIT: Duration = Duration::from_mins(3);

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

async fn printed(demo: &Child, wanted: &str) -> String {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let log = std::fs::read_to_string(demo.log()).unwrap_or_default();
        if log.contains(wanted) {
            return log;
        }
        assert!(
            std::time::Instant::now() < deadline && demo.is_running(),
            "the demo did not print `{wanted}`:\n{log}"
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
    let log = printed(&demo, "Ctrl-C ends the demo").await;
    let tries: Vec<&str> = log
        .lines()
        .skip_while(|line| *line != "Try, in another terminal:")
        .skip(1)
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    let (exports, tries): (Vec<&str>, Vec<&str>) = tries.iter().partition(|line| line.starts_with("export "));
    let config = exports.iter().find_map(|line| line.strip_prefix("export KUBECONFIG=")).unwrap();
    let config = config.trim_matches('"');
    let bare = |line: &str| line.split(" #").next().unwrap().trim().to_owned();
    let offered: Vec<String> = tries.iter().map(|line| bare(line)).collect();

    let on_the_fleet = ON_THE_FLEET.into_iter().flat_map(commands_of);
    // The demo's manager is none that one can be told where to find.
    for line in on_the_fleet.filter(|line| !line.starts_with("chandler log-level")) {
        let there = format!("cd {} && {line}", shell.home.display());
        shell.expect(&there, &[("KUBECONFIG", config)]).await;
    }
    let newcomer = Shell::newcomer("newcomer").await;
    for line in &tries {
        assert!(line.starts_with("chandler"), "`{line}` needs a program that the demo does not build");
        let there = format!("{}\n{line}", exports.join("\n"));
        let output = newcomer.run(&there, &[], Duration::from_secs(20)).await;
        let watching = line.ends_with("-w") && output.status.code() == Some(124);
        assert!(output.status.success() || watching, "`{line}`: {}", text(&output.stderr));
    }
    for wanted in ["chandler get", "chandler describe hello"] {
        assert!(offered.iter().any(|line| line == wanted), "the demo does not offer `{wanted}`");
    }
    for line in started().into_iter().chain(commands_of("docs/concepts/releases.md")) {
        let by_sandbox = format!("chandler-sandbox {line}");
        let known = offered.contains(&line) || offered.contains(&by_sandbox) || line == "cargo xtask demo";
        assert!(known || line == "kubectl get hcp,hrp", "the demo does not offer `{line}`");
    }
    signal(&demo, Signal::INT);
    let ended = std::time::Instant::now() + Duration::from_secs(30);
    while demo.is_running() && std::time::Instant::now() < ended {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!demo.is_running(), "Ctrl-C ends the demo");
    assert_eq!(processes_of(&shell.home.join("demo")), [] as [String; 0]);
    assert!(!shell.home.join("demo").exists(), "the demo removes what it kept");
}

#[tokio::test]
async fn a_killed_demo_is_survived_by_running_it_again() {
    let shell = Shell::new("killed").await;
    let folder = shell.home.join("demo");
    for moment in ["waiting for cluster", "applied HelmChartProxy"] {
        let demo = start(&shell, &format!("demo-{}", moment.len()));
        printed(&demo, moment).await;
        demo.kill().await;
        eventually("everything ends with the demo", || async {
            processes_of(&folder).is_empty().then_some(())
        })
        .await;
    }
    let tool = programs::package_tool();
    let again = format!("chandler-sandbox demo --exit --dir {} --tool {tool}", folder.display());
    shell.expect(&again, &[]).await;
    assert_eq!(processes_of(&folder), [] as [String; 0]);
}
