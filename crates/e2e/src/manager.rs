//! A manager as a process of its own, with the rights that Chandler ships with, which a test may kill.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use chandler_sandbox::process::{Child, Spec};
use serde_json::Value;

use crate::{canary, programs, wait::eventually, world::World};

/// All that Chandler itself has to say, so that it is seen to say no secret.
const TALKATIVE: &str = "info,chandler_controller=debug,chandler_source=debug,chandler_tool=debug,\
                         chandler_workload=debug,chandler_hooks=debug";

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
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How many operations of this kind have ended.
    pub fn operations(&self, kind: &str) -> usize {
        let kind = format!("\"kind\":\"{kind}\"");
        self.logs().lines().filter(|line| line.contains("operation ended") && line.contains(&kind)).count()
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

    /// Waits until its watches are complete and nothing is in flight.
    pub async fn settled(&self) {
        eventually("the manager's watches are synchronised", || async {
            self.logs().contains("watches are synchronised").then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_secs(3)).await;
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
