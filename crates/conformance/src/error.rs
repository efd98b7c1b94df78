//! Why a case failed.

use std::{io, path::PathBuf, time::Duration};

use chandler_tool::ToolError;

use super::environment::BoxError;

/// Why a case failed. Usually the tool violates the contract.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error("{0}")]
    Violation(String),
    #[error("the case did not end within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("{method} failed with the gRPC status {code}: {message}; check the tool's log for a crash", code = status.code(), message = status.message())]
    Call { method: &'static str, status: Box<tonic::Status> },
    #[error("the cluster rejected a request of the suite: {0}")]
    Cluster(#[from] Box<kube::Error>),
    #[error("`helm {command}` failed: {output}")]
    Helm { command: String, output: String },
    #[error("cannot run the helm CLI {path}: {source}")]
    RunHelm { path: PathBuf, source: io::Error },
    #[error("`helm {command}` printed unexpected output: {source}")]
    ReadHelm { command: String, source: serde_json::Error },
    #[error("the packer `{command}` failed: {reason}")]
    Packer { command: String, reason: String },
    #[error(
        "the tool reads {formats:?} and not Helm charts: give a command that packs test packages with --packer"
    )]
    NoPacker { formats: Vec<String> },
    #[error("cannot prepare the case: {0}")]
    Host(BoxError),
    #[error("cannot prepare the case: {0}")]
    Io(#[from] io::Error),
}

impl CaseError {
    /// Adds which part of the case failed.
    #[must_use]
    pub fn within(self, part: &str) -> Self {
        Self::Violation(format!("{part}: {self}"))
    }
}

impl From<kube::Error> for CaseError {
    fn from(error: kube::Error) -> Self {
        Self::Cluster(Box::new(error))
    }
}
