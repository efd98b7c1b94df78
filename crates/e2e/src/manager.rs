//! A manager as a process of its own, with the rights that Chandler ships with, which a test may kill.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use chandler_core::release::OperationKind;
use chandler_sandbox::process::{Child, Spec};
use serde_json::Value;

use crate::{
    canary, programs,
    wait::{LIMIT, eventually},
    world::World,
};

/// All that Chandler itself has to say, so that it is seen to say no secret.
const TALKATIVE: &str = "info,chandler_controller=debug,chandler_source=debug,chandler_tool=debug,\
                         chandler_workload=debug,chandler_hooks=debug";

/// For so long, at least, a manager has nothing to do before it counts as settled.
const QUIET: Duration = Duration::from_secs(2);

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
    /// Reads a line of the log; `None` if it is about something else.
    fn read(line: &str) -> Option<Self> {
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

/// A manager that looks after the world's namespace only.
pub struct Manager {
    child: Option<Child>,
    log: PathBuf,
    secrets: canary::Secrets,
}

impl Manager {
    pub fn start(world: &World, lease_seconds: u32, further: &[&str]) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let name = format!("manager-{}", NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let defaults = [("--tool", programs::package_tool()), ("--log-level", TALKATIVE)];
        let args = [
            "manager",
            "--kubeconfig",
            &text(&world.manager_config()),
            "--lease-seconds",
            &lease_seconds.to_string(),
            "--namespace",
            &world.namespace,
            "--store",
            &text(&world.dir.join("store")),
            "--allow-source-address",
            "127.0.0.1",
            "--metrics-address",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ]
        .iter()
        .chain(
            defaults
                .iter()
                .filter(|(name, _)| !further.contains(name))
                .flat_map(|(name, value)| [name, value]),
        )
        .chain(further)
        .map(|argument| (*argument).to_owned())
        .collect();
        let program = PathBuf::from(programs::chandler());
        // So that what it leaves behind is seen.
        let files = world.dir.join("tmp");
        std::fs::create_dir_all(&files).unwrap();
        let env = vec![("TMPDIR".to_owned(), text(&files))];
        let spec = Spec { name, program, args, env, home: world.dir.clone() };
        let mut manager = Self::of(Child::spawn(&spec).unwrap());
        manager.secrets = world.manager_secrets();
        manager
    }

    pub fn of(child: Child) -> Self {
        Self { log: child.log().to_owned(), child: Some(child), secrets: canary::Secrets::default() }
    }

    /// kill -9
    pub async fn kill(mut self) {
        self.child.take().unwrap().kill().await;
    }

    pub async fn stop(mut self) {
        self.check_canaries();
        self.child.take().unwrap().stop(Duration::from_secs(10)).await;
    }

    /// Neither it nor its driver tells a secret.
    fn check_canaries(&self) {
        let mut told = vec![("log".to_owned(), self.logs())];
        if self.child.as_ref().is_some_and(Child::is_running) {
            told.extend(std::iter::once(self.pid()).chain(self.drivers()).flat_map(canary::process));
            let metrics = self.address().and_then(|address| get(&address, "/metrics").ok());
            told.extend(metrics.map(|text| ("metrics".to_owned(), text)));
        }
        canary::check(&self.secrets, &told);
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().pid()
    }

    /// The processes of the package tool.
    pub fn drivers(&self) -> Vec<u32> {
        let children = format!("/proc/{0}/task", self.pid());
        let threads = std::fs::read_dir(children).into_iter().flatten().flatten();
        threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|list| {
                list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
            })
            .collect()
    }

    pub fn logs(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The starts and ends of all operations, in the order in which they were logged.
    pub fn operations(&self) -> Vec<Operation> {
        self.logs().lines().filter_map(Operation::read).collect()
    }

    /// How many operations of this kind have been started.
    pub fn started(&self, kind: OperationKind) -> usize {
        self.operations().iter().filter(|one| one.kind == kind && one.is_start()).count()
    }

    /// How many operations of this kind have ended, whatever their outcome.
    pub fn ended(&self, kind: OperationKind) -> usize {
        self.operations().iter().filter(|one| one.kind == kind && !one.is_start()).count()
    }

    /// How many operations of this kind have succeeded.
    pub fn succeeded(&self, kind: OperationKind) -> usize {
        self.operations().iter().filter(|one| one.kind == kind && one.succeeded()).count()
    }

    /// The manager's metrics: name with labels → value.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let body = self.get("/metrics").await;
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(k, v)| Some((k.to_owned(), v.parse().ok()?)))
            .collect()
    }

    /// What an endpoint of its own answers.
    pub async fn get(&self, path: &'static str) -> String {
        let address = eventually("the manager serves its endpoints", || async { self.address() }).await;
        tokio::task::spawn_blocking(move || get(&address, path).unwrap()).await.unwrap()
    }

    /// Waits until its watches are complete and it has had nothing to do for a while: no object waits for a reconcile,
    /// and no operation is queued or running.
    pub async fn settled(&self) {
        eventually("the manager's watches of all pairs of kinds are synchronised", || async {
            let logs = self.logs();
            let of = |kind: &str| {
                let kind = format!("\"kind\":\"{kind}\"");
                logs.lines().any(|line| line.contains("watches are synchronised") && line.contains(&kind))
            };
            (of("HelmChartProxy") && of("ExtensionInstance")).then_some(())
        })
        .await;
        let (begun, mut since) = (Instant::now(), Instant::now());
        while since.elapsed() < QUIET {
            assert!(begun.elapsed() < LIMIT, "the manager always has something to do");
            if self.is_busy().await {
                since = Instant::now();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether an object waits for a reconcile or has one, or an operation is queued or running.
    async fn is_busy(&self) -> bool {
        let metrics = self.metrics().await;
        let sum = |prefix: &str| {
            metrics.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, value)| value).sum::<f64>()
        };
        let waiting = ["chandler_queue_depth", "chandler_operations_queued", "chandler_operations_active"];
        for name in waiting {
            assert!(metrics.keys().any(|metric| metric.starts_with(name)), "there is no metric {name}");
        }
        waiting.into_iter().any(|name| sum(name) > 0.0)
            || sum("chandler_reconciles_total") > sum("chandler_reconcile_duration_seconds_count")
    }

    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// Where it serves its endpoints, once it does.
    pub fn address(&self) -> Option<String> {
        let logs = self.logs();
        let line = logs.lines().find(|line| line.contains("serving /metrics"))?;
        Some(serde_json::from_str::<Value>(line).ok()?["address"].as_str()?.to_owned())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if self.child.is_some() && !std::thread::panicking() {
            self.check_canaries();
        }
    }
}

/// Just enough of HTTP for an endpoint of our own.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
