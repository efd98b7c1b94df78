//! The controllers that can be measured.

use std::path::{Path, PathBuf};

use anyhow::Result;
use chandler_sandbox::process::{Child, Spec};

use super::world::World;

pub enum Controller {
    Ours { tool: PathBuf },
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

    pub fn start(&self, world: &World) -> Result<Child> {
        let kubeconfig = text(&world.management().kubeconfig_path());
        let dir = text(world.dir());
        let (program, args) = match self {
            Self::Ours { tool } => (std::env::current_exe()?, own_arguments(world.dir(), &kubeconfig, tool)),
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
        "--metrics-address",
        "127.0.0.1:0",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
