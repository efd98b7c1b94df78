//! The managers of a management cluster, and signals to them and to their drivers.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use chandler_sandbox::process::{Child, Spec, child_processes};
use rustix::process::{Pid, Signal, kill_process};

/// The Lease is short, so that a successor takes over soon.
const ARGUMENTS: [&str; 18] = [
    "--allow-address",
    "127.0.0.1",
    "--metrics-address",
    "127.0.0.1:0",
    "--log-format",
    "json",
    "--lease-seconds",
    "4",
    "--lease-renew-deadline-seconds",
    "3",
    "--lease-retry-seconds",
    "1",
    "--drain-seconds",
    "2",
    "--watch-silence-seconds",
    "10",
    "--parameters-seconds",
    "5",
];

/// A manager may need up to 28 s more than `--drain-seconds` to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(35);

/// How a manager is started.
#[derive(Clone, Debug)]
pub struct ManagerCommand {
    /// The name of its management cluster.
    pub name: String,
    pub chandler: PathBuf,
    pub tool: PathBuf,
    pub kubeconfig: PathBuf,
    /// The certificate authority of the chart repository. An Extension cannot name one without a catalog.
    pub trusted: PathBuf,
    pub home: PathBuf,
}

/// The managers of a management cluster: the current one, and those that it replaced.
pub struct Managers {
    command: ManagerCommand,
    current: Child,
    replaced: Vec<Child>,
    /// The processes that are suspended now.
    suspended: BTreeSet<u32>,
    /// The number of managers that have been started.
    started: u32,
}

impl Managers {
    pub fn start(command: ManagerCommand) -> Result<Self> {
        let current = spawn(&command, 1)?;
        Ok(Self { command, current, replaced: Vec::new(), suspended: BTreeSet::new(), started: 1 })
    }

    /// Starts a manager if the current one has ended, as a Deployment would do.
    pub fn supervise(&mut self) -> Result<()> {
        if self.current.is_running() { Ok(()) } else { self.start_another().map(drop) }
    }

    /// Returns whether the current manager has become the leader.
    pub fn is_leading(&self) -> bool {
        std::fs::read_to_string(self.current.log()).is_ok_and(|log| log.contains("\"leading\""))
    }

    /// Kills the current manager and starts another one.
    pub async fn kill(&mut self) -> Result<()> {
        let killed = self.start_another()?;
        killed.kill().await;
        Ok(())
    }

    /// Suspends the current manager with SIGSTOP. Its drivers go on.
    pub fn suspend(&mut self) {
        self.suspend_process(self.current.pid());
    }

    /// Suspends the current manager with SIGSTOP and starts another one.
    pub fn replace(&mut self) -> Result<()> {
        self.suspend();
        let replaced = self.start_another()?;
        self.replaced.push(replaced);
        Ok(())
    }

    pub fn kill_drivers(&self) {
        for pid in child_processes(self.current.pid()) {
            send(pid, Signal::KILL);
        }
    }

    /// Suspends the drivers of the current manager with SIGSTOP. Returns their process IDs.
    pub fn suspend_drivers(&mut self) -> Vec<u32> {
        let drivers = child_processes(self.current.pid());
        for pid in &drivers {
            self.suspend_process(*pid);
        }
        drivers
    }

    /// Continues all suspended processes.
    pub fn heal(&mut self) {
        for pid in std::mem::take(&mut self.suspended) {
            send(pid, Signal::CONT);
        }
    }

    /// Ends the managers that were replaced with SIGTERM. One that continued before its Lease had expired still leads.
    pub async fn end_replaced(&mut self) {
        for child in std::mem::take(&mut self.replaced) {
            child.stop(STOP_TIMEOUT).await;
        }
    }

    /// Kills all managers and starts a new one.
    pub async fn reset(&mut self) -> Result<()> {
        self.heal();
        for child in std::mem::take(&mut self.replaced) {
            child.kill().await;
        }
        self.kill().await
    }

    /// Starts another manager and returns the one that was current.
    fn start_another(&mut self) -> Result<Child> {
        self.started += 1;
        let next = spawn(&self.command, self.started)?;
        Ok(std::mem::replace(&mut self.current, next))
    }

    fn suspend_process(&mut self, pid: u32) {
        self.suspended.insert(pid);
        send(pid, Signal::STOP);
    }
}

fn spawn(command: &ManagerCommand, number: u32) -> Result<Child> {
    let ManagerCommand { name, chandler, tool, kubeconfig, trusted, home } = command;
    let name = format!("{name}-manager-{number}");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    // Each manager has its own store, as each Pod has.
    let (kubeconfig, tool, store) = (text(kubeconfig), text(tool), text(&home.join("stores").join(&name)));
    let specific = ["manager", "--kubeconfig", &kubeconfig, "--tool", &tool, "--store", &store];
    let args = specific.iter().chain(&ARGUMENTS).map(|argument| (*argument).to_owned()).collect();
    let env = vec![("HOME".to_owned(), text(home)), ("SSL_CERT_FILE".to_owned(), text(trusted))];
    let spec = Spec { name: name.clone(), program: chandler.clone(), args, env, home: home.clone() };
    Child::spawn(&spec).with_context(|| format!("starting {name}"))
}

fn send(pid: u32, signal: Signal) {
    // Fails if the process has ended already, which is no problem.
    let _ = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, signal));
}
