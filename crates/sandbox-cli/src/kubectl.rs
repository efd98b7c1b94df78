//! `chandler-sandbox kubectl`: runs a kubectl that is built from source, so that none has to be installed.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    assets::{Assets, Binary},
    progress,
    sandbox::{Folder, MANAGEMENT},
};
use clap::Args;

use crate::sandbox::{DirArgs, kubeconfig_path};

#[derive(Debug, Args)]
pub struct KubectlArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// `management`, the name of a cluster such as `alpha`, or `namespace/name`.
    #[arg(long, default_value = MANAGEMENT)]
    cluster: String,
    /// Arguments of kubectl; all options after the first one are passed to kubectl.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with kubectl, so that signals reach kubectl and its exit code is returned.
pub async fn run(arguments: KubectlArgs) -> Result<()> {
    let KubectlArgs { dir, cluster, arguments } = arguments;
    let kubeconfig = kubeconfig_path(&Folder::new(&dir.resolve()?), &cluster)?;
    let assets = Assets::ensure(&[Binary::Kubectl], progress::display().as_ref()).await?;
    let program = assets.path(Binary::Kubectl);
    let error = Command::new(program).args(arguments).env("KUBECONFIG", kubeconfig).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}
