//! Turns test packages into packages of the tool's format.

use std::process::Stdio;

use tokio::{io::AsyncWriteExt as _, process::Command};

use super::{CaseError, Environment, chart::Chart, package::TestPackage};

/// The format of Helm charts, as an OCI artifact type.
pub const HELM_FORMAT: &str = "application/vnd.cncf.helm.config.v1+json";

/// Packs test packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packer {
    /// Writes a Helm chart.
    HelmChart,
    /// Runs this command with `sh -c`: a [`TestPackage`] as JSON on standard input, the package on standard output.
    Command(String),
}

impl Packer {
    /// Returns the environment's packer, or the built-in one for a tool that reads Helm charts.
    pub fn of(environment: &Environment, formats: &[String]) -> Result<Self, CaseError> {
        match &environment.packer {
            Some(command) => Ok(Self::Command(command.clone())),
            None if formats.iter().any(|format| format == HELM_FORMAT) => Ok(Self::HelmChart),
            None => Err(CaseError::NoPacker { formats: formats.to_vec() }),
        }
    }

    /// Returns the content of a package.
    pub async fn pack(&self, environment: &Environment, package: &TestPackage) -> Result<Vec<u8>, CaseError> {
        match self {
            Self::HelmChart => {
                environment.host.pack_chart(&Chart::from(package).files()).map_err(CaseError::Host)
            }
            Self::Command(command) => {
                let input = serde_json::to_vec(package).map_err(|error| CaseError::Host(error.into()))?;
                run(command, &input).await
            }
        }
    }
}

async fn run(command: &str, input: &[u8]) -> Result<Vec<u8>, CaseError> {
    let failed = |reason: String| CaseError::Packer { command: command.to_owned(), reason };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A packer that does not read its input reports why on its standard error.
        let _ = stdin.write_all(input).await;
    }
    let output = child.wait_with_output().await.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, message.trim())));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_gets_the_input_and_returns_its_output() {
        assert_eq!(run("cat", b"package").await.unwrap(), b"package");
    }

    #[tokio::test]
    async fn the_error_of_a_failed_command_has_its_message() {
        let error = run("echo no such format >&2; exit 3", b"").await.unwrap_err().to_string();
        assert!(error.contains("no such format") && error.contains('3'), "{error}");
    }
}
