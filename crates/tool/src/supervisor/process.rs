//! One supervised process.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::{oneshot, watch},
};
use tonic::transport::{Channel, Endpoint};

use super::{
    Service, SupervisorConfig, ToolError,
    control::{Control, ControlGuard, Controls},
    log,
};
use crate::generated::{
    template::{RenderRequest, template_service_client::TemplateServiceClient},
    tool::{DescribeRequest, package_tool_client::PackageToolClient},
};

const START_LIMIT: Duration = Duration::from_secs(15);
/// How long a process that is no longer used may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    pub pid: u32,
    pub resident_bytes: u64,
}

/// One running process. Dropping it closes the standard input of the process, which then ends.
#[derive(Debug)]
pub struct Process {
    channel: Channel,
    control: Arc<Control>,
    retired: AtomicBool,
    // Its drop signals that the process is no longer used.
    _in_use: oneshot::Sender<()>,
}

impl Process {
    pub async fn start(config: &SupervisorConfig, controls: &Controls) -> Result<Self, ToolError> {
        let folder = tempfile::Builder::new()
            .prefix("chandler-tool-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(ToolError::Socket)?;
        let socket = folder.path().join("socket");
        let mut child = Command::new(&config.path)
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
        let guard = controls.add(pid, child.stdin.take());
        let last_lines = log::forward(child.stderr.take(), pid);
        let channel = channel(&socket);
        wait_ready(config.service, &mut child, &channel, &last_lines).await?;
        let (in_use, unused) = oneshot::channel();
        let control = guard.control().clone();
        tokio::spawn(own(child, guard, config.log_level.clone(), folder, unused));
        Ok(Self { channel, control, retired: AtomicBool::new(false), _in_use: in_use })
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub fn pid(&self) -> u32 {
        self.control.pid()
    }

    pub fn has_exited(&self) -> bool {
        self.control.has_exited()
    }

    pub fn is_usable(&self) -> bool {
        !self.has_exited() && !self.is_retired()
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Accepts no further calls. Running ones may end.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.retire();
        self.control.kill();
    }

    /// Returns `None` if it has exited.
    pub fn stats(&self) -> Option<ProcessStats> {
        if self.has_exited() {
            return None;
        }
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).ok()?;
        let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let page_size = u64::try_from(rustix::param::page_size()).ok()?;
        Some(ProcessStats { pid: self.pid(), resident_bytes: pages * page_size })
    }
}

/// Owns the child until it has ended.
async fn own(
    mut child: Child,
    guard: ControlGuard,
    log_level: watch::Receiver<&'static str>,
    folder: TempDir,
    unused: oneshot::Receiver<()>,
) {
    let control = guard.control();
    tokio::select! {
        status = child.wait() => tracing::warn!(?status, "package tool ended"),
        () = control.killed() => {}
        () = send_log_level(control, log_level) => {}
        _ = unused => {
            control.close_stdin();
            tokio::select! {
                // Either way the child is ended below.
                _ = tokio::time::timeout(END_LIMIT, child.wait()) => {}
                () = control.killed() => {}
            }
        }
    }
    if let Err(error) = child.kill().await {
        tracing::debug!(%error, "package tool was gone already");
    }
    drop((folder, guard));
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
