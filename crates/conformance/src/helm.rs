//! The helm CLI, with which a tool's releases must agree.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde::{Deserialize, de::DeserializeOwned};
use tokio::process::Command;

use super::CaseError;

/// The helm CLI in one namespace.
#[derive(Clone, Debug)]
pub struct Helm {
    pub path: PathBuf,
    pub kubeconfig: PathBuf,
    pub namespace: String,
    /// Its home directory.
    pub home: PathBuf,
}

/// A line of `helm list`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub revision: String,
    pub status: String,
    pub chart: String,
}

/// A line of `helm history`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct HistoryEntry {
    pub revision: u32,
    pub status: String,
}

impl Helm {
    /// Returns the release as `helm list` shows it.
    pub async fn list(&self, release: &str) -> Result<Option<Listed>, CaseError> {
        let filter = format!("^{release}$");
        let found: Vec<Listed> = self.json(&["list", "--filter", &filter]).await?;
        Ok(found.into_iter().find(|listed| listed.name == release))
    }

    /// Returns the revisions, oldest first, or `None` if the release does not exist.
    pub async fn history(&self, release: &str) -> Result<Option<Vec<HistoryEntry>>, CaseError> {
        match self.json(&["history", release]).await {
            Ok(history) => Ok(Some(history)),
            Err(CaseError::Helm { output, .. }) if output.contains("not found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the values that were given for a revision.
    pub async fn values(&self, release: &str, revision: u32) -> Result<String, CaseError> {
        self.run(&["get", "values", release, "--revision", &revision.to_string(), "-o", "json"]).await
    }

    /// Runs `helm install`.
    pub async fn install(&self, release: &str, chart: &Path, flags: &[&str]) -> Result<(), CaseError> {
        let chart = chart.to_string_lossy();
        let mut arguments = vec!["install", release, &chart];
        arguments.extend(flags);
        self.run(&arguments).await.map(drop)
    }

    pub async fn run(&self, arguments: &[&str]) -> Result<String, CaseError> {
        let output = Command::new(&self.path)
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace])
            .env_clear()
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| CaseError::RunHelm { path: self.path.clone(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(CaseError::Helm {
            command: arguments.join(" "),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    async fn json<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<T, CaseError> {
        let arguments = [arguments, &["-o", "json"]].concat();
        let text = self.run(&arguments).await?;
        serde_json::from_str(&text)
            .map_err(|source| CaseError::ReadHelm { command: arguments.join(" "), source })
    }
}
