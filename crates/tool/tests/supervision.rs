//! The supervisor with the real driver: on demand, private, clean, restarted, replaced, limited by the Lease.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use chandler_core::{addresses::AddressPolicy, failure::Category, identity::ToolId};
use chandler_tool::{
    PackageTool, ProcessGuard, Supervisor, SupervisorConfig, TemplateService, Tools,
    generated::tool::{
        Failure, FailureCategory, ObserveRequest, Release, Target, observe_response::Outcome,
        package_tool_client::PackageToolClient,
    },
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

fn config() -> SupervisorConfig {
    let tool = std::env::var("CHANDLER_TOOL")
        .expect("run these tests with `cargo xtask test`, which builds the driver");
    // The driver connects to addresses of this machine, at which nothing listens.
    let addresses = AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], ..AddressPolicy::default() };
    SupervisorConfig { environment: vec![addresses.environment()], ..SupervisorConfig::new(tool) }
}

async fn pid(supervisor: &Supervisor) -> u32 {
    supervisor.acquire().await.unwrap().pid()
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

fn send(pid: u32, signal: Signal) {
    kill_process(process(pid), signal).unwrap();
}

/// Stops a driver. Returns when all of its threads have stopped: until then, it may answer a call.
fn stop(pid: u32) {
    send(pid, Signal::STOP);
    waitid(WaitId::Pid(process(pid)), WaitIdOptions::STOPPED).unwrap();
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

async fn gone(pid: u32) {
    for _ in 0..600 {
        if !is_alive(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("process {pid} is still there");
}

/// So low a limit that the first check finds the process too large. The replacement is not checked before the test is over.
fn config_of_grown() -> SupervisorConfig {
    SupervisorConfig { soft_memory_limit: 1 << 20, check_interval: Duration::from_secs(1), ..config() }
}

/// Returns the replacement of a process that has grown or ended.
async fn replaced(supervisor: &Supervisor, old: &ProcessGuard) -> u32 {
    for _ in 0..600 {
        let replacement = pid(supervisor).await;
        if replacement != old.pid() {
            return replacement;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("process {} is not replaced", old.pid());
}

/// Reads a release on a cluster at an address without a server, so that the category tells whether a request was sent.
async fn observe(guard: &ProcessGuard) -> Failure {
    let request = ObserveRequest {
        target: Some(Target { server: "https://127.0.0.1:1".to_owned(), ..Target::default() }),
        release: Some(Release { name: "web".to_owned(), namespace: "default".to_owned() }),
        history: 0,
    };
    let answer = PackageToolClient::new(guard.channel()).observe(request).await.unwrap();
    match answer.into_inner().outcome.unwrap() {
        Outcome::Failure(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// Waits until the process has read the limit of the Lease.
async fn observes(guard: &ProcessGuard, category: FailureCategory) -> Failure {
    for _ in 0..600 {
        let failure = observe(guard).await;
        if failure.category() == category {
            return failure;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the category is never {}", category.as_str_name());
}

/// A time since boot that does not come.
const NEVER: Duration = Duration::from_secs(1 << 32);

#[tokio::test]
async fn no_driver_sends_requests_after_the_end_of_the_managers_lease() {
    let supervisor = Supervisor::new(config_of_grown());
    let grown = supervisor.acquire().await.unwrap();
    assert_eq!(observe(&grown).await.category(), FailureCategory::Unreachable, "there is no limit yet");
    replaced(&supervisor, &grown).await;
    let current = supervisor.acquire().await.unwrap();
    // Also from a thread without a runtime, as the Lease is renewed.
    let set =
        |until| std::thread::scope(|scope| scope.spawn(|| supervisor.set_lease_until(until)).join().unwrap());
    for (until, category) in [
        (NEVER, FailureCategory::Unreachable),
        (Duration::ZERO, FailureCategory::Cancelled),
        (NEVER, FailureCategory::Unreachable),
        (Duration::ZERO, FailureCategory::Cancelled),
    ] {
        set(until);
        for process in [&grown, &current] {
            let failure = observes(process, category).await;
            let expected = category == FailureCategory::Cancelled;
            assert_eq!(
                failure.message.contains("no longer holds the Lease"),
                expected,
                "{}",
                failure.message
            );
        }
    }
    let old = [grown.pid(), current.pid()];
    drop((grown, current));
    supervisor.kill();
    let later = supervisor.acquire().await.unwrap();
    assert!(!old.contains(&later.pid()));
    observes(&later, FailureCategory::Cancelled).await;
}

#[tokio::test]
async fn a_closed_supervisor_has_ended_all_drivers_even_those_with_calls() {
    let supervisor = Supervisor::new(config_of_grown());
    let grown = supervisor.acquire().await.unwrap();
    let current = replaced(&supervisor, &grown).await;
    supervisor.close().await;
    assert!(!is_alive(grown.pid()) && !is_alive(current), "close returns after the exit of all");
}

#[tokio::test]
async fn closing_does_not_wait_for_a_driver_that_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (silent, started) = (folder.path().join("silent"), folder.path().join("started"));
    let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 60\n", started.display());
    // Another process writes it: a driver that another test starts meanwhile would inherit the open file, and a file
    // that is open for writing cannot be executed.
    let mut write = std::process::Command::new("sh");
    write.args(["-c", r#"printf %s "$1" > "$2" && chmod 755 "$2""#, "sh", script.as_str()]).arg(&silent);
    assert!(write.status().unwrap().success());
    let environment = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let supervisor = Supervisor::new(SupervisorConfig { environment, ..SupervisorConfig::new(silent) });
    let starting = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.acquire().await.map(|guard| guard.pid()) }
    });
    while !started.exists() {
        assert!(!starting.is_finished(), "it does not start");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let closed = tokio::time::timeout(Duration::from_secs(5), supervisor.close()).await;
    assert!(closed.is_ok(), "close waits for the start");
    assert!(starting.await.unwrap().is_err());
}

#[tokio::test]
async fn it_starts_on_demand_in_private_with_a_clean_environment() {
    let supervisor = Supervisor::new(SupervisorConfig { environment: Vec::new(), ..config() });
    assert_eq!(supervisor.stats(), (0, None), "nothing runs before it is needed");
    let tool = PackageTool::new(ToolId(0), supervisor.clone());
    assert_eq!(tool.description().await.unwrap().name, "helm");
    let pid = pid(&supervisor).await;
    assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
    let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let socket = PathBuf::from(arguments.split('\0').skip_while(|a| *a != "--socket").nth(1).unwrap());
    let folder = std::fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    drop((tool, supervisor));
    gone(pid).await;
    assert!(!socket.parent().unwrap().exists(), "the socket's folder goes with the process");
}

#[tokio::test]
async fn a_killed_driver_is_started_again_at_the_next_call() {
    let supervisor = Supervisor::new(config());
    let first = pid(&supervisor).await;
    send(first, Signal::KILL);
    gone(first).await;
    let tool = PackageTool::new(ToolId(0), supervisor.clone());
    assert_eq!(tool.description().await.unwrap().name, "helm");
    assert_ne!(pid(&supervisor).await, first);
    assert_eq!(supervisor.stats().0, 2);
}

#[tokio::test]
async fn a_closed_supervisor_ends_the_driver_and_starts_no_other() {
    let supervisor = Supervisor::new(config());
    let first = pid(&supervisor).await;
    supervisor.close().await;
    gone(first).await;
    let refused = PackageTool::new(ToolId(0), supervisor.clone()).description().await.unwrap_err();
    assert_eq!(refused.category, Category::ToolUnavailable, "{refused}");
    assert_eq!(supervisor.stats().0, 1);
}

#[tokio::test]
async fn a_driver_that_has_grown_is_replaced_after_its_calls_have_ended() {
    let supervisor = Supervisor::new(config_of_grown());
    let running = supervisor.acquire().await.unwrap();
    assert!(!supervisor.is_draining());
    replaced(&supervisor, &running).await;
    assert!(is_alive(running.pid()), "a running call is not cut off");
    assert!(supervisor.is_draining());
    let old = running.pid();
    drop(running);
    gone(old).await;
}

#[tokio::test]
async fn a_driver_at_its_hard_limit_is_killed() {
    let config = SupervisorConfig { soft_memory_limit: 48 << 20, hard_memory_limit: 64 << 20, ..config() };
    let supervisor = Supervisor::new(config);
    let tool = PackageTool::new(ToolId(0), supervisor.clone());
    tool.canonical_digest("a: 1").await.unwrap();
    let large = format!("a: [{}]", "1,".repeat(5_000_000));
    let failure = tool.canonical_digest(&large).await.unwrap_err();
    assert_eq!(failure.category, Category::ToolCrashed, "{failure}");
    assert!(failure.message.contains("more memory than its limit of 64 MiB"), "{failure}");
    tool.canonical_digest("a: 1").await.unwrap();
    assert_eq!((supervisor.stats().0, supervisor.crashes()), (2, 1));
}

#[tokio::test]
async fn a_tool_that_does_not_start_is_explained_and_not_tried_in_a_loop() {
    let rows = [("/nowhere/tool", "cargo xtask build"), ("/bin/false", "exited while starting")];
    for (path, hint) in rows {
        let tool = PackageTool::new(ToolId(0), Supervisor::new(SupervisorConfig::new(path)));
        let failure = tool.description().await.unwrap_err();
        assert_eq!(failure.category, Category::ToolUnavailable);
        assert!(failure.message.contains(hint), "{failure}");
        tool.description().await.unwrap_err();
        let third = tool.description().await.unwrap_err();
        assert!(third.message.contains("next start in"), "{third}");
    }
}

#[tokio::test]
async fn each_namespace_has_its_own_process_and_idle_ones_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let tools = Tools::new([config()], 2, folder.path());
    let tool = |namespace: &str| tools.all()[0].in_namespace(namespace);
    for _ in 0..2 {
        for namespace in ["red", "blue"] {
            tool(namespace).canonical_digest("a: 1").await.unwrap();
        }
    }
    assert_eq!(tools.stats().0, 2, "processes are kept between calls");
    tool("green").canonical_digest("a: 1").await.unwrap();
    assert_eq!(tools.stats().0, 3);
    tool("blue").canonical_digest("a: 1").await.unwrap();
    assert_eq!(tools.stats().0, 3, "the process that was idle for the longest time has ended");
    assert_eq!(tools.crashes(), 0);
    tools.close().await;
    let refused = tool("blue").canonical_digest("a: 1").await.unwrap_err();
    assert_eq!((refused.category, tools.stats()), (Category::ToolUnavailable, (3, 0)));
}

#[tokio::test]
async fn only_the_call_that_runs_alone_is_blamed_for_the_end_of_a_process() {
    let supervisor = Supervisor::new(config());
    let guard = supervisor.acquire().await.unwrap();
    let tool = PackageTool::new(ToolId(0), supervisor.clone());
    // It gets the call and does not answer.
    stop(guard.pid());
    let call = tokio::spawn({
        let tool = tool.clone();
        async move { tool.canonical_digest("a: 1").await.unwrap_err() }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    send(guard.pid(), Signal::KILL);
    assert_eq!(call.await.unwrap().category, Category::ToolUnavailable, "another call was running");

    // The call can end before the supervisor has noticed the end of the process.
    let pid = replaced(&supervisor, &guard).await;
    drop(guard);
    stop(pid);
    let call = tokio::spawn(async move { tool.canonical_digest("a: 1").await.unwrap_err() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    send(pid, Signal::KILL);
    let failure = call.await.unwrap();
    assert_eq!(failure.category, Category::ToolCrashed, "{failure}");
    assert_eq!(supervisor.crashes(), 2);
}

#[tokio::test]
async fn a_template_is_evaluated_again_if_its_process_was_killed() {
    let supervisor = Supervisor::limited(SupervisorConfig::templates(config().path), 2);
    let service = TemplateService::new(supervisor.clone());
    let pid = pid(&supervisor).await;
    stop(pid);
    let inputs = vec![("fleet/blue".to_owned(), br#"{"name": "blue"}"#.to_vec())];
    let call = tokio::spawn(async move { service.render("{{ .name }}", inputs).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    send(pid, Signal::KILL);
    assert_eq!(call.await.unwrap().unwrap(), [Ok("blue".to_owned())]);
}

#[tokio::test]
async fn a_process_that_was_asked_to_end_is_no_crash() {
    let supervisor = Supervisor::new(config());
    let pid = pid(&supervisor).await;
    send(pid, Signal::TERM);
    gone(pid).await;
    assert_eq!(supervisor.crashes(), 0);
}

#[tokio::test]
async fn large_processes_are_not_replaced_without_limit() {
    let supervisor = Supervisor::limited(config_of_grown(), 2);
    let first = supervisor.acquire().await.unwrap();
    replaced(&supervisor, &first).await;
    let second = supervisor.acquire().await.unwrap();
    assert_ne!(first.pid(), second.pid());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(supervisor.stats().0, 2, "the first one has not ended");
    drop((first, second));
}

#[tokio::test]
async fn a_namespace_waits_for_the_process_of_another_one_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let tools = Tools::new([config()], 1, folder.path());
    let tool = |namespace: &str| tools.all()[0].in_namespace(namespace);
    let cancel = tokio_util::sync::CancellationToken::new();
    let busy = tool("red").process("release", &cancel).await.unwrap();
    let blue = tool("blue");
    let waits = tokio::time::timeout(Duration::from_secs(3), blue.process("release", &cancel)).await;
    assert!(waits.is_err(), "it works");
    assert!(is_alive(busy.pid()), "the operation was not interrupted");
    drop(busy);
    blue.canonical_digest("a: 1").await.unwrap();
    assert_eq!(tools.crashes(), 0);
}
