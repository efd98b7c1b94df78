//! One supervised process.

use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt as _, chown},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::{OwnedSemaphorePermit, watch},
};
use tonic::transport::{Channel, Endpoint};

use super::{
    Service, SupervisorConfig, ToolError,
    control::{Call, Control, ControlGuard, Controls, DeathCause},
    log,
};
use crate::generated::{
    template::{RenderRequest, template_service_client::TemplateServiceClient},
    tool::{DescribeRequest, package_tool_client::PackageToolClient},
};

const START_LIMIT: Duration = Duration::from_secs(15);
/// How long a process that is no longer used may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Memory that the runtime of Go maps and never touches: it counts towards the limit of the kernel, but is not used.
const UNTOUCHED: u64 = 64 << 20;
/// What a process whose calls only wait may need in addition to what it has.
const SPARE: u64 = 32 << 20;
/// The exit code of a process that ends itself because a call has used more CPU time than it may.
const EXIT_CPU_LIMIT: i32 = 86;

/// The memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    pub pid: u32,
    pub resident_bytes: u64,
    /// Resident memory that no other process shares, which the limits are about.
    pub private_bytes: u64,
}

impl ProcessStats {
    /// Returns `None` if there is no such process.
    pub fn read(pid: u32) -> Option<Self> {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let mut pages = statm.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
        let (resident, shared) = (pages.next()?, pages.next()?);
        let page_size = u64::try_from(rustix::param::page_size()).ok()?;
        let private_bytes = resident.saturating_sub(shared) * page_size;
        Some(Self { pid, resident_bytes: resident * page_size, private_bytes })
    }
}

/// One running process. Dropping it closes the standard input of the process, which then ends.
#[derive(Debug)]
pub struct Process {
    channel: Channel,
    control: Arc<Control>,
}

impl Process {
    /// Starts a process and waits until it serves. `slot` is occupied until it has exited. Returns the process with its first
    /// call, so that it is never without calls before.
    pub async fn start(
        config: &SupervisorConfig,
        owner: &str,
        controls: &Controls,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Result<(Self, Call), ToolError> {
        let folder = tempfile::Builder::new()
            .prefix("chandler-tool-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(ToolError::Socket)?;
        let socket = folder.path().join("socket");
        let mut command = Command::new(&config.path);
        if let Some(user) = config.user {
            chown(folder.path(), Some(user.uid), Some(user.gid)).map_err(ToolError::Socket)?;
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = command
            .arg("--socket")
            .arg(&socket)
            .arg("--memory-limit")
            .arg((config.soft_memory_limit / 10 * 8).to_string())
            .args(&config.arguments)
            .env_clear()
            .envs(config.environment.iter().cloned())
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| ToolError::Start {
                service: config.service,
                path: config.path.clone(),
                source,
            })?;
        let pid = child.id().unwrap_or_default();
        // It has no input yet.
        limit_memory(pid, config.hard_memory_limit).map_err(ToolError::Limit)?;
        let guard = controls.add(owner, pid, child.stdin.take(), slot);
        let call = guard.control().begin().ok_or(ToolError::Closed)?;
        let last_lines = log::forward(child.stderr.take(), pid);
        let channel = channel(&socket);
        wait_ready(config.service, &mut child, &channel, &last_lines).await?;
        let control = guard.control().clone();
        if config.service == Service::PackageTool {
            control.set_channel(channel.clone());
        }
        let running = Owned { child, guard, last_lines, limit: config.hard_memory_limit, folder };
        tokio::spawn(running.run(config.log_level.clone()));
        Ok((Self { channel, control }, call))
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub fn pid(&self) -> u32 {
        self.control.pid()
    }

    /// Returns `None` if it has exited.
    pub fn stats(&self) -> Option<ProcessStats> {
        if self.control.has_exited() {
            return None;
        }
        ProcessStats::read(self.pid())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.control.end();
    }
}

/// Limits the memory of a process: the kernel refuses to give it more. It writes no core dumps, which contain secrets.
fn limit_memory(pid: u32, bytes: u64) -> std::io::Result<()> {
    limit(pid, Resource::Data, bytes.saturating_add(UNTOUCHED))?;
    limit(pid, Resource::Core, 0)
}

fn limit(pid: u32, resource: Resource, bytes: u64) -> std::io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    match prlimit(Some(pid), resource, limit) {
        // It has exited already, which is reported later.
        Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(std::io::Error::from(error)),
    }
}

/// Limits the memory of a process to what it has, and a little more. Returns that, without what it never touches. All sizes are in
/// MiB. Returns `None` if the process keeps its `share`.
pub fn shrink(pid: u32, share: usize) -> Option<usize> {
    let share = u64::try_from(share).ok()? << 20;
    let needed = data_bytes(pid)?.saturating_add(SPARE).saturating_sub(UNTOUCHED);
    if needed >= share {
        return None;
    }
    limit_memory(pid, needed).ok()?;
    usize::try_from(needed.div_ceil(1 << 20)).ok()
}

/// Returns what counts towards the limit of the kernel.
fn data_bytes(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(5)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

/// What belongs to a process until it has ended.
struct Owned {
    child: Child,
    guard: ControlGuard,
    last_lines: log::LastLines,
    limit: u64,
    folder: TempDir,
}

impl Owned {
    /// Waits for the end of the process.
    async fn run(self, log_level: watch::Receiver<&'static str>) {
        let Self { mut child, guard, last_lines, limit, folder } = self;
        let control = guard.control();
        let cause = tokio::select! {
            status = child.wait() => {
                let status = status.ok();
                tracing::warn!(pid = control.pid(), ?status, "package tool ended");
                death_cause(status, last_lines.is_out_of_memory().await, limit)
            }
            cause = control.killed() => cause,
            () = send_log_level(control, log_level) => None,
            () = control.ended() => {
                control.close_stdin();
                tokio::select! {
                    // Either way the child is ended below.
                    _ = tokio::time::timeout(END_LIMIT, child.wait()) => None,
                    cause = control.killed() => cause,
                }
            }
        };
        if let Err(error) = child.kill().await {
            tracing::debug!(%error, "package tool was gone already");
        }
        control.set_death(cause);
        drop(folder);
        drop(guard);
    }
}

/// Returns why a process has ended that was not ended by the manager. `None` means that it was asked to end, by a signal to all
/// processes.
fn death_cause(status: Option<ExitStatus>, out_of_memory: bool, limit: u64) -> Option<DeathCause> {
    if status.is_some_and(|status| status.success()) {
        return None;
    }
    if out_of_memory {
        return Some(over_limit(limit));
    }
    let text = match status {
        Some(status) if status.code() == Some(EXIT_CPU_LIMIT) => {
            "it used more CPU time than one call may use".to_owned()
        }
        Some(status) => format!("it ended with {status}"),
        None => "it has disappeared".to_owned(),
    };
    Some(DeathCause { text, is_memory: false })
}

/// Returns that a process has used too much memory.
pub fn over_limit(limit: u64) -> DeathCause {
    DeathCause {
        text: format!("it needed more memory than its limit of {} MiB", limit >> 20),
        is_memory: true,
    }
}

/// Sends the log level to the process, now and whenever it changes.
async fn send_log_level(control: &Control, mut level: watch::Receiver<&'static str>) {
    loop {
        let command = format!("log-level {}", *level.borrow_and_update());
        control.send(&command);
        if level.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn channel(socket: &std::path::Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The connector ignores the address.
    Endpoint::from_static("http://package-tool").connect_with_connector_lazy(connector)
}

async fn wait_ready(
    service: Service,
    child: &mut Child,
    channel: &Channel,
    last_lines: &log::LastLines,
) -> Result<(), ToolError> {
    let deadline = tokio::time::Instant::now() + START_LIMIT;
    while tokio::time::Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(ToolError::Exited(service, format!("{status}; {}", last_lines.joined())));
        }
        if answers(service, channel).await {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(ToolError::NotReady(service, START_LIMIT))
}

/// Returns whether the process serves.
async fn answers(service: Service, channel: &Channel) -> bool {
    match service {
        Service::PackageTool => {
            PackageToolClient::new(channel.clone()).describe(DescribeRequest {}).await.is_ok()
        }
        Service::Templates => {
            TemplateServiceClient::new(channel.clone()).render(RenderRequest::default()).await.is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn the_cause_of_a_death_is_explained() {
        let exited = |code: i32| Some(ExitStatus::from_raw(code << 8));
        let rows = [
            (exited(EXIT_CPU_LIMIT), false, "more CPU time"),
            (exited(2), true, "its limit of 256 MiB"),
            (exited(2), false, "exit status: 2"),
            (Some(ExitStatus::from_raw(9)), false, "signal: 9"),
            (None, false, "has disappeared"),
        ];
        for (status, out_of_memory, expected) in rows {
            let cause = death_cause(status, out_of_memory, 256 << 20).unwrap();
            assert!(cause.text.contains(expected) && cause.is_memory == out_of_memory, "{cause:?}");
        }
        assert_eq!(death_cause(exited(0), false, 1), None, "it was asked to end");
    }
}
