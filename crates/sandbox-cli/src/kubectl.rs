//! `chandler-sandbox kubectl`: the sandbox's own kubectl, so that a machine needs none.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    assets::{Assets, Binary},
    progress,
    sandbox::{Folder, MANAGEMENT},
};
use clap::Args;

use crate::sandbox::{Place, kubeconfig_path};

#[derive(Debug, Args)]
pub struct KubectlArgs {
    #[command(flatten)]
    place: Place,
    /// The cluster: `management`, a name such as `alpha`, or `namespace/name`.
    #[arg(long, default_value = MANAGEMENT)]
    cluster: String,
    /// Arguments of kubectl; from the first one on, all options are kubectl's.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with kubectl, so that signals and the exit code are kubectl's.
pub async fn run(arguments: KubectlArgs) -> Result<()> {
    let KubectlArgs { place, cluster, arguments } = arguments;
    let kubeconfig = kubeconfig_path(&Folder::new(&place.resolve()?), &cluster)?;
    let assets = Assets::ensure(&[Binary::Kubectl], progress::display().as_ref()).await?;
    let program = assets.path(Binary::Kubectl);
    let failed = Command::new(program).args(arguments).env("KUBECONFIG", kubeconfig).exec();
    Err(failed).with_context(|| format!("starting {}", program.display()))
}
