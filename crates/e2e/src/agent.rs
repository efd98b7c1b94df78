//! The agent of a cluster behind NAT, as a process that a test may kill.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use chandler_sandbox::process::{Child, Spec};
use serde_json::Value;

use crate::{canary, programs};

/// A running `chandler-agent`.
pub struct Agent {
    child: Option<Child>,
    log: PathBuf,
    state: PathBuf,
    secrets: canary::Secrets,
}

/// Where an agent runs and stores its files.
pub struct AgentPlace<'a> {
    /// The name of its log.
    pub name: &'a str,
    /// The folder with its log, in `logs`, and its state, in `agents`.
    pub home: &'a Path,
    /// The network namespace. `None` means that of the test.
    pub namespace: Option<&'a str>,
}

impl Agent {
    /// Starts an agent with the content of `agent.yaml`. An agent with the same name before it has left its key and
    /// certificate.
    pub fn start(place: &AgentPlace<'_>, configuration: &str) -> Self {
        let folder = place.home.join("agents").join(place.name);
        let state = folder.join("state");
        std::fs::create_dir_all(&state).unwrap();
        let mut secrets = canary::Secrets::of_kubeconfig(configuration);
        let file = folder.join("agent.yaml");
        std::fs::write(&file, relocate(configuration, &state)).unwrap();
        let args = ["--config", &file.to_string_lossy(), "--log-format", "json", "--verbose"];
        let spec = Spec {
            name: format!("agent-{}", place.name),
            program: PathBuf::from(programs::agent()),
            args: args.map(str::to_owned).to_vec(),
            env: Vec::new(),
            home: place.home.to_owned(),
        };
        let spec = match place.namespace {
            Some(namespace) => spec.in_network_namespace(namespace),
            None => spec,
        };
        let child = Child::spawn(&spec).unwrap();
        if let Ok(key) = std::fs::read_to_string(state.join("key.pem")) {
            secrets.add(&key);
        }
        Self { log: child.log().to_owned(), child: Some(child), state, secrets }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().pid()
    }

    pub fn is_running(&self) -> bool {
        self.child.as_ref().is_some_and(Child::is_running)
    }

    /// Returns the log of this agent and of those before it with the same name.
    pub fn logs(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the folder with its key and its certificates.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(mut self) {
        self.assert_no_leaks();
        self.child.take().unwrap().kill().await;
    }

    /// Stops the process gracefully.
    pub async fn stop(mut self) {
        self.assert_no_leaks();
        self.child.take().unwrap().stop(Duration::from_secs(10)).await;
    }

    /// Returns the secrets that only the agent knows.
    pub fn secrets(&self) -> canary::Secrets {
        let mut secrets = self.secrets.clone();
        secrets.add(&std::fs::read_to_string(self.state.join("key.pem")).unwrap_or_default());
        secrets
    }

    /// Fails the test if its log, arguments or environment contain a secret.
    fn assert_no_leaks(&self) {
        let mut outputs = vec![("log of the agent".to_owned(), self.logs())];
        if self.is_running() {
            outputs.extend(canary::process(self.pid()));
        }
        canary::assert_no_leaks(&self.secrets(), &outputs);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.is_some() && !std::thread::panicking() {
            self.assert_no_leaks();
        }
    }
}

/// Returns the configuration with another folder for the state: that of the node needs root.
fn relocate(configuration: &str, state: &Path) -> String {
    let mut configuration: Value = serde_saphyr::from_str(configuration).unwrap();
    configuration["stateDir"] = state.to_string_lossy().into();
    // JSON is YAML.
    configuration.to_string()
}
