//! The controllers that are measured.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    apply::apply_all,
    certificates::write_private,
    process::{Child, Spec, last_lines},
    service_account,
};

use crate::environment::Environment;

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");
/// Go's own settings of its garbage collector. The control planes inherit those of the environment, but what is measured does
/// not.
pub const GO_DEFAULTS: [(&str, &str); 2] = [("GOGC", "100"), ("GOMEMLIMIT", "off")];
/// Turns health off.
pub const WITHOUT_HEALTH: &str = "--health=false";
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub enum Controller {
    Chandler {
        chandler: PathBuf,
        tool: PathBuf,
        /// Further arguments.
        arguments: Vec<String>,
    },
    Other {
        command: String,
    },
}

impl Controller {
    pub fn name(&self) -> &str {
        match self {
            Self::Chandler { .. } => "chandler",
            Self::Other { command } => command,
        }
    }

    /// Returns the value of `controller` in the results, or `None` for Chandler.
    pub fn label(&self) -> Option<String> {
        match self {
            Self::Chandler { .. } => None,
            Self::Other { command } => Some(command.clone()),
        }
    }

    /// Prepares the kubeconfig. Chandler runs with the RBAC rules of `deploy/rbac.yaml`, other controllers with those of
    /// the administrator.
    pub async fn prepare_access(&self, environment: &Environment) -> Result<()> {
        if let Self::Chandler { .. } = self {
            apply_all(environment.client(), RBAC).await?;
            let config =
                service_account::kubeconfig(environment.management(), "chandler-system", "chandler-manager")
                    .await?;
            write_private(&self.kubeconfig(environment), &config)?;
        }
        Ok(())
    }

    fn kubeconfig(&self, environment: &Environment) -> PathBuf {
        match self {
            Self::Chandler { .. } => environment.dir().join("manager-kubeconfig"),
            Self::Other { .. } => environment.management().kubeconfig_path(),
        }
    }

    pub fn start(&self, environment: &Environment) -> Result<Child> {
        self.start_with(environment, &[])
    }

    /// Starts the controller. Chandler gets further arguments.
    pub fn start_with(&self, environment: &Environment, further: &[&str]) -> Result<Child> {
        let kubeconfig = text(&self.kubeconfig(environment));
        let dir = text(environment.dir());
        let (program, args) = match self {
            Self::Chandler { chandler, tool, arguments } => {
                let mut all = chandler_arguments(environment.dir(), &kubeconfig, tool);
                all.extend_from_slice(arguments);
                all.extend(further.iter().map(|argument| (*argument).to_owned()));
                (chandler.clone(), all)
            }
            Self::Other { command } => {
                let command = command.replace("{kubeconfig}", &kubeconfig).replace("{dir}", &dir);
                // `exec` replaces the shell with the program, so that signals reach it.
                ("/bin/sh".into(), vec!["-c".to_owned(), format!("exec {command}")])
            }
        };
        let own = [("KUBECONFIG", kubeconfig.as_str()), ("HOME", dir.as_str())];
        let env = own.into_iter().chain(GO_DEFAULTS);
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let home = environment.dir().to_owned();
        Ok(Child::spawn(&Spec { name: "controller".to_owned(), program, args, env, home })?)
    }
}

/// Waits until the controller has exited, and returns the error.
pub async fn exit_error(child: &Child) -> anyhow::Error {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Err(error) = child.check() {
            return error.into();
        }
    }
}

/// Adds the end of the controller's log to an error.
pub fn with_log<T>(environment: &Environment, result: Result<T>) -> Result<T> {
    let log = environment.dir().join("logs/controller.log");
    result.with_context(|| format!("{} ends with:\n{}", log.display(), last_lines(&log, 12)))
}

fn chandler_arguments(dir: &Path, kubeconfig: &str, tool: &Path) -> Vec<String> {
    let store = text(&dir.join("store"));
    let tool = text(tool);
    [
        "manager",
        "--kubeconfig",
        kubeconfig,
        "--tool",
        &tool,
        "--store",
        &store,
        "--allow-address",
        "127.0.0.1",
        "--metrics-address",
        "127.0.0.1:0",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
