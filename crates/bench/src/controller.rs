//! The controllers that can be measured.

use std::path::{Path, PathBuf};

use anyhow::Result;
use chandler_sandbox::{
    apply::apply_all,
    certificates::write_private,
    process::{Child, Spec},
    service_account,
};

use crate::world::World;

const RIGHTS: &str = include_str!("../../../deploy/rbac.yaml");

pub enum Controller {
    Ours { chandler: PathBuf, tool: PathBuf },
    Other { command: String },
}

impl Controller {
    pub fn name(&self) -> &str {
        match self {
            Self::Ours { .. } => "chandler",
            Self::Other { command } => command,
        }
    }

    /// What its phases are marked with.
    pub fn mark(&self) -> Option<String> {
        match self {
            Self::Ours { .. } => None,
            Self::Other { command } => Some(command.clone()),
        }
    }

    /// Ours runs with the rights that ship; another brings its own, or none, and gets the administrator's.
    pub async fn admit(&self, world: &World) -> Result<()> {
        if let Self::Ours { .. } = self {
            apply_all(world.client(), RIGHTS).await?;
            let config =
                service_account::kubeconfig(world.management(), "chandler-system", "chandler-manager")
                    .await?;
            write_private(&self.kubeconfig(world), &config)?;
        }
        Ok(())
    }

    fn kubeconfig(&self, world: &World) -> PathBuf {
        match self {
            Self::Ours { .. } => world.dir().join("manager-kubeconfig"),
            Self::Other { .. } => world.management().kubeconfig_path(),
        }
    }

    pub fn start(&self, world: &World) -> Result<Child> {
        let kubeconfig = text(&self.kubeconfig(world));
        let dir = text(world.dir());
        let (program, args) = match self {
            Self::Ours { chandler, tool } => {
                (chandler.clone(), own_arguments(world.dir(), &kubeconfig, tool))
            }
            Self::Other { command } => {
                let command = command.replace("{kubeconfig}", &kubeconfig).replace("{dir}", &dir);
                // The shell gives way to the program, so that signals reach it.
                ("/bin/sh".into(), vec!["-c".to_owned(), format!("exec {command}")])
            }
        };
        let env = vec![("KUBECONFIG".to_owned(), kubeconfig), ("HOME".to_owned(), dir)];
        let home = world.dir().to_owned();
        Ok(Child::spawn(&Spec { name: "controller".to_owned(), program, args, env, home })?)
    }
}

fn own_arguments(dir: &Path, kubeconfig: &str, tool: &Path) -> Vec<String> {
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
        "--allow-source-address",
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
