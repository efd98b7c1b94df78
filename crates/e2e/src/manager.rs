//! A manager process with the permissions that Chandler is shipped with. A test may kill it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};

use chandler_core::release::OperationKind;
use chandler_sandbox::process::{Child, Spec, child_processes};
use serde_json::Value;

use crate::{
    canary, programs,
    wait::{LIMIT, eventually},
    world::World,
};

/// Verbose logs of all Chandler crates, so that the check for leaked secrets covers them.
const LOG_LEVEL: &str = "info,chandler_controller=debug,chandler_source=debug,chandler_tool=debug,\
                         chandler_workload=debug,chandler_hooks=debug,chandler_tunnel=debug";

/// How long a manager must have no work before it counts as idle.
const IDLE_PERIOD: Duration = Duration::from_secs(2);

/// The labels of the kinds whose reconciles poll a repository.
const POLLED: [&str; 2] = ["kind=\"ExtensionCatalog\"", "kind=\"Source\""];

/// An operation on a release, as the manager logs its start and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub kind: OperationKind,
    pub cluster: String,
    pub release: String,
    /// `success`, or the category of the failure; `None` for its start.
    pub outcome: Option<String>,
}

impl Operation {
    /// Parses a line of the log. Returns `None` if the line is not about an operation.
    fn parse(line: &str) -> Option<Self> {
        // Most lines are about something else, and parsing takes long.
        if !line.contains("\"operation ") {
            return None;
        }
        let line: Value = serde_json::from_str(line).ok()?;
        let ended = match line["message"].as_str()? {
            "operation starts" => false,
            "operation ended" => true,
            _ => return None,
        };
        let text =
            |field: &str| line[field].as_str().unwrap_or_else(|| panic!("no {field}: {line}")).to_owned();
        let kind = OperationKind::ALL.into_iter().find(|kind| kind.as_str() == text("kind"));
        let kind = kind.unwrap_or_else(|| panic!("not a kind of operation: {line}"));
        let outcome = ended.then(|| text("outcome"));
        Some(Self { kind, cluster: text("cluster"), release: text("release"), outcome })
    }

    pub fn is_start(&self) -> bool {
        self.outcome.is_none()
    }

    pub fn succeeded(&self) -> bool {
        self.outcome.as_deref() == Some("success")
    }
}

/// A manager that watches only the namespace of its test.
pub struct Manager {
    child: Option<Child>,
    log: PathBuf,
    /// The size of the log when the process started: managers of a test may write to the same file.
    log_start: usize,
    /// The operations in the log, as far as it was read: it grows to megabytes, and is read often.
    read: Mutex<ReadLog>,
    address: OnceLock<String>,
    secrets: canary::Secrets,
}

#[derive(Default)]
struct ReadLog {
    bytes: u64,
    operations: Vec<Operation>,
}

impl ReadLog {
    /// Reads the lines that were added to the log.
    fn read(&mut self, log: &Path) -> std::io::Result<()> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut added = Vec::new();
        file.read_to_end(&mut added)?;
        // The last line may be incomplete.
        let Some(end) = added.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let lines = String::from_utf8_lossy(&added[..=end]);
        self.operations.extend(lines.lines().filter_map(Operation::parse));
        self.bytes += u64::try_from(end).unwrap() + 1;
        Ok(())
    }
}

impl Manager {
    pub fn start(world: &World, lease_seconds: u32, arguments: &[&str]) -> Self {
        Self::start_with_environment(world, lease_seconds, arguments, Vec::new())
    }

    pub fn start_with_environment(
        world: &World,
        lease_seconds: u32,
        arguments: &[&str],
        environment: Vec<(String, String)>,
    ) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let name = format!("manager-{}", NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let kubeconfig = text(&world.manager_kubeconfig());
        let defaults = [
            ("--kubeconfig", kubeconfig.as_str()),
            ("--tool", programs::package_tool()),
            ("--log-level", LOG_LEVEL),
        ];
        let args = [
            "manager",
            "--lease-seconds",
            &lease_seconds.to_string(),
            "--namespace",
            &world.namespace,
            "--store",
            &text(&world.dir.join("store")),
            "--allow-address",
            "127.0.0.1",
            "--source-min-interval-seconds",
            "1",
            "--metrics-address",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ]
        .iter()
        .chain(
            defaults
                .iter()
                .filter(|(name, _)| !arguments.contains(name))
                .flat_map(|(name, value)| [name, value]),
        )
        .chain(arguments)
        .map(|argument| (*argument).to_owned())
        .collect();
        let program = PathBuf::from(programs::chandler());
        // Temporary files that it leaves behind are checked for secrets.
        let temporary = world.dir.join("tmp");
        std::fs::create_dir_all(&temporary).unwrap();
        let env = [vec![("TMPDIR".to_owned(), text(&temporary))], environment].concat();
        let spec = Spec { name, program, args, env, home: world.dir.clone() };
        let mut manager = Self::from_process(Child::spawn(&spec).unwrap());
        manager.secrets = world.manager_secrets();
        manager
    }

    pub fn from_process(child: Child) -> Self {
        let log = child.log().to_owned();
        let log_start = usize::try_from(child.log_start()).unwrap();
        Self {
            log,
            log_start,
            child: Some(child),
            read: Mutex::default(),
            address: OnceLock::new(),
            secrets: canary::Secrets::default(),
        }
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(mut self) {
        self.child.take().unwrap().kill().await;
    }

    /// Stops the process gracefully.
    pub async fn stop(self) {
        self.stop_within(Duration::from_secs(10)).await;
    }

    /// Stops the process gracefully; kills it after a grace period.
    pub async fn stop_within(mut self, grace_period: Duration) {
        self.assert_no_leaks();
        self.child.take().unwrap().stop(grace_period).await;
    }

    /// Fails the test if logs, metrics, arguments or environment of the manager or its driver contain a secret.
    fn assert_no_leaks(&self) {
        let mut outputs = vec![("log".to_owned(), self.logs())];
        if self.is_running() {
            outputs.extend(std::iter::once(self.pid()).chain(self.driver_pids()).flat_map(canary::process));
            let metrics = self.address().and_then(|address| get(&address, "/metrics").ok());
            outputs.extend(metrics.map(|text| ("metrics".to_owned(), text)));
        }
        canary::assert_no_leaks(&self.secrets, &outputs);
    }

    pub fn is_running(&self) -> bool {
        self.child.as_ref().is_some_and(Child::is_running)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().pid()
    }

    /// Returns the process IDs of the package tool and of the template service.
    pub fn driver_pids(&self) -> Vec<u32> {
        child_processes(self.pid())
    }

    /// Returns the process IDs of the package tool, of all namespaces.
    pub fn tool_pids(&self) -> Vec<u32> {
        let is_tool = |pid: &u32| {
            let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.contains("--socket") && !arguments.contains("--service")
        };
        self.driver_pids().into_iter().filter(is_tool).collect()
    }

    pub fn logs(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns what this process has logged, without what earlier ones have written to the same file.
    fn own_logs(&self) -> String {
        self.logs().split_off(self.log_start)
    }

    /// Returns the starts and ends of all operations in the order in which they were logged.
    pub fn operations(&self) -> Vec<Operation> {
        let mut read = self.read.lock().unwrap();
        read.read(&self.log).unwrap();
        read.operations.clone()
    }

    /// Returns the number of operations of this kind that have started.
    pub fn started(&self, kind: OperationKind) -> usize {
        self.operations().iter().filter(|one| one.kind == kind && one.is_start()).count()
    }

    /// Returns the number of operations of this kind that have ended with any outcome.
    pub fn ended(&self, kind: OperationKind) -> usize {
        self.operations().iter().filter(|one| one.kind == kind && !one.is_start()).count()
    }

    /// Returns the number of operations of this kind that have succeeded.
    pub fn succeeded(&self, kind: OperationKind) -> usize {
        self.operations().iter().filter(|one| one.kind == kind && one.succeeded()).count()
    }

    /// Returns the manager's metrics: name with labels → value.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let body = self.get("/metrics").await;
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(k, v)| Some((k.to_owned(), v.parse().ok()?)))
            .collect()
    }

    /// Returns the HTTP response of one of the manager's endpoints.
    pub async fn get(&self, path: &'static str) -> String {
        let address = eventually("the manager serves its endpoints", || async { self.address() }).await;
        tokio::task::spawn_blocking(move || get(&address, path).unwrap()).await.unwrap()
    }

    /// Waits until the manager is ready: it leads and has listed everything, or it is a standby.
    pub async fn wait_ready(&self) {
        eventually("the manager is ready", || async {
            self.get("/readyz").await.starts_with("HTTP/1.1 200").then_some(())
        })
        .await;
    }

    /// Waits until the manager's watches are synchronized and it has been idle for a while: no reconcile and no operation
    /// is queued or running, except polls of repositories.
    pub async fn wait_idle(&self) {
        eventually("the manager's watches are synchronized", || async {
            let logs = self.own_logs();
            let synchronized = |kind: &str| {
                let kind = format!("\"kind\":\"{kind}\"");
                logs.lines().any(|line| line.contains("watches are synchronised") && line.contains(&kind))
            };
            (synchronized("HelmChartProxy") && synchronized("ExtensionInstance")).then_some(())
        })
        .await;
        let (start, mut idle_since) = (Instant::now(), Instant::now());
        while idle_since.elapsed() < IDLE_PERIOD {
            assert!(start.elapsed() < LIMIT, "the manager does not become idle");
            if self.is_busy().await {
                idle_since = Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns whether a reconcile or an operation is queued or running.
    async fn is_busy(&self) -> bool {
        let metrics = self.metrics().await;
        let sum = |prefix: &str, without: &[&str]| {
            let counts =
                |name: &str| name.starts_with(prefix) && !without.iter().any(|label| name.contains(label));
            metrics.iter().filter(|(name, _)| counts(name)).map(|(_, value)| value).sum::<f64>()
        };
        let queues = ["chandler_queue_depth", "chandler_operations_queued", "chandler_operations_active"];
        for name in queues {
            assert!(metrics.keys().any(|metric| metric.starts_with(name)), "there is no metric {name}");
        }
        // Repositories are polled for ever, in tests every second: a busy machine is always asking one.
        queues.into_iter().any(|name| sum(name, &[]) > 0.0)
            || sum("chandler_reconciles_total", &POLLED)
                > sum("chandler_reconcile_duration_seconds_count", &POLLED)
    }

    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// Returns the address of the manager's endpoints, or `None` before it serves them.
    pub fn address(&self) -> Option<String> {
        if let Some(address) = self.address.get() {
            return Some(address.clone());
        }
        let logs = self.own_logs();
        let line = logs.lines().find(|line| line.contains("serving /metrics"))?;
        let address = serde_json::from_str::<Value>(line).ok()?["address"].as_str()?.to_owned();
        Some(self.address.get_or_init(|| address).clone())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if self.child.is_some() && !std::thread::panicking() {
            self.assert_no_leaks();
        }
    }
}

/// Sends a GET request and returns the whole response.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// Returns the largest resident memory that a process has had, in KiB. `None` if it has ended.
pub fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.split_ascii_whitespace().next()?.parse().ok()
}
