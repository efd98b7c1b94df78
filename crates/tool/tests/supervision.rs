//! The supervisor with the real driver: on demand, private, clean, restarted, replaced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use chandler_core::{failure::Category, identity::ToolId};
use chandler_tool::{PackageTool, Supervisor, SupervisorConfig};
use rustix::process::{Pid, Signal, kill_process};

fn config() -> SupervisorConfig {
    let tool = std::env::var("CHANDLER_TOOL")
        .expect("run these tests with `cargo xtask test`, which builds the driver");
    SupervisorConfig::new(tool)
}

async fn pid(supervisor: &Supervisor) -> u32 {
    supervisor.lease().await.unwrap().pid()
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

async fn gone(pid: u32) {
    for _ in 0..100 {
        if !is_alive(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("process {pid} is still there");
}

#[tokio::test]
async fn it_starts_on_demand_in_private_with_a_clean_environment() {
    let supervisor = Supervisor::new(config());
    assert_eq!(supervisor.stats().await, (0, None), "nothing runs before it is needed");
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
    kill_process(Pid::from_raw(i32::try_from(first).unwrap()).unwrap(), Signal::KILL).unwrap();
    gone(first).await;
    let tool = PackageTool::new(ToolId(0), supervisor.clone());
    assert_eq!(tool.description().await.unwrap().name, "helm");
    assert_ne!(pid(&supervisor).await, first);
    assert_eq!(supervisor.stats().await.0, 2);
}

#[tokio::test]
async fn a_closed_supervisor_ends_the_driver_and_starts_no_other() {
    let supervisor = Supervisor::new(config());
    let first = pid(&supervisor).await;
    supervisor.close().await;
    gone(first).await;
    let refused = PackageTool::new(ToolId(0), supervisor.clone()).description().await.unwrap_err();
    assert_eq!(refused.category, Category::ToolUnavailable, "{refused}");
    assert_eq!(supervisor.stats().await.0, 1);
}

#[tokio::test]
async fn a_driver_that_has_grown_is_replaced_after_its_calls_have_ended() {
    // So low that the first look finds it too large; the replacement is not looked at before the test is over.
    let config =
        SupervisorConfig { soft_memory_limit: 1 << 20, check_interval: Duration::from_secs(1), ..config() };
    let supervisor = Supervisor::new(config);
    let running = supervisor.lease().await.unwrap();
    let mut replacement = running.pid();
    for _ in 0..60 {
        replacement = pid(&supervisor).await;
        if replacement != running.pid() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_ne!(replacement, running.pid());
    assert!(is_alive(running.pid()), "a running call is not cut off");
    let old = running.pid();
    drop(running);
    gone(old).await;
}

#[tokio::test]
async fn a_driver_at_its_hard_limit_is_killed() {
    let config = SupervisorConfig {
        soft_memory_limit: 1 << 20,
        hard_memory_limit: 1 << 20,
        check_interval: Duration::from_millis(200),
        ..config()
    };
    let supervisor = Supervisor::new(config);
    let lease = supervisor.lease().await.unwrap();
    gone(lease.pid()).await;
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
