//! `chandler tunnel connect` and `chandler tunnel kubeconfig`.

use std::{
    ffi::OsString,
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus},
};

use anyhow::{Context as _, Result};
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::NamedTempFile;
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use super::{Target, TargetArgs, hub_forward::HubForward, proxied_kubeconfig};
use crate::tunnel_flags::host_and_port;

#[derive(Debug, Args)]
pub struct ConnectArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Address of the hub's proxy as HOST:PORT, if it is reachable from here [default: a port that kubectl forwards]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    hub: Option<String>,
    /// Namespace of the hub
    #[arg(long, default_value = "chandler-system", conflicts_with = "hub")]
    manager_namespace: String,
    /// The command and its arguments, for example `kubectl get nodes`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Address of the hub's proxy, as clients reach it
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8132", value_parser = host_and_port)]
    hub: String,
}

/// Prints the kubeconfig.
pub async fn kubeconfig(arguments: KubeconfigArgs) -> Result<()> {
    let KubeconfigArgs { target, hub } = arguments;
    let Target { client, namespace, cluster } = target.open().await?;
    let kubeconfig = proxied_kubeconfig::read(&client, &namespace, &cluster).await?;
    print!("{}", proxied_kubeconfig::through(&kubeconfig, &hub)?.expose_secret());
    Ok(())
}

/// Runs a command through the tunnel. Returns its exit code.
pub async fn connect(arguments: ConnectArgs) -> Result<ExitCode> {
    let ConnectArgs { target, hub, manager_namespace, command } = arguments;
    let connection = target.connection.clone();
    let Target { client, namespace, cluster } = target.open().await?;
    let kubeconfig = proxied_kubeconfig::read(&client, &namespace, &cluster).await?;
    let (address, _forward) = if let Some(hub) = hub {
        (hub, None)
    } else {
        let forward = HubForward::start(connection, manager_namespace).await?;
        (forward.address(), Some(forward))
    };
    let file = private_file(&proxied_kubeconfig::through(&kubeconfig, &address)?)?;
    let (program, arguments) = command.split_first().context("no command is given")?;
    let child = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", file.path())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    // The file is removed when it is dropped, so this process must outlive the command.
    Ok(exit_code(wait(child).await?))
}

/// Writes a temporary file that only this user may read, and that is removed when it is dropped.
fn private_file(kubeconfig: &SecretString) -> Result<NamedTempFile> {
    // Temporary files have the mode 0600.
    let mut file =
        NamedTempFile::with_prefix("chandler-kubeconfig-").context("creating a temporary kubeconfig")?;
    file.write_all(kubeconfig.expose_secret().as_bytes()).context("writing the temporary kubeconfig")?;
    Ok(file)
}

/// Waits for a command. Ctrl-C reaches it from the terminal; it decides when to end. A request to terminate is passed on.
async fn wait(mut child: Child) -> Result<ExitStatus> {
    let mut interrupted = signal(SignalKind::interrupt()).context("handling signals")?;
    let mut terminated = signal(SignalKind::terminate()).context("handling signals")?;
    loop {
        tokio::select! {
            status = child.wait() => return status.context("waiting for the command"),
            _ = interrupted.recv() => {}
            _ = terminated.recv() => child.start_kill().context("ending the command")?,
        }
    }
}

/// Returns the exit code as a shell does: 128 and the number of the signal if the command was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_user_may_read_the_kubeconfig_and_it_is_removed() {
        let file = private_file(&"secret".to_owned().into()).unwrap();
        let path = file.path().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret");
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_exit_code_is_that_of_the_command() {
        let rows = [(0, ExitCode::from(0)), (3 << 8, ExitCode::from(3)), (9, ExitCode::from(137))];
        for (status, expected) in rows {
            assert_eq!(format!("{:?}", exit_code(ExitStatus::from_raw(status))), format!("{expected:?}"));
        }
    }
}
