//! Why a case failed.

use std::{io, path::PathBuf, time::Duration};

use chandler_tool::ToolError;

use super::environment::BoxError;

/// Why a case failed: mostly because the tool breaks the contract.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error("{0}")]
    Broken(String),
    #[error("the case did not end within {0:?}")]
    Endless(Duration),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("{verb} broke off ({code}): {message}; its process may have crashed: look at its log lines", code = status.code(), message = status.message())]
    Call { verb: &'static str, status: Box<tonic::Status> },
    #[error("the cluster did not do what the case needs: {0}")]
    Cluster(#[from] Box<kube::Error>),
    #[error("`helm {command}` failed: {output}")]
    Helm { command: String, output: String },
    #[error("cannot run the Helm CLI {path}: {source}")]
    RunHelm { path: PathBuf, source: io::Error },
    #[error("`helm {command}` answered in a way the suite does not know: {source}")]
    ReadHelm { command: String, source: serde_json::Error },
    #[error("cannot prepare the case: {0}")]
    Host(BoxError),
    #[error("cannot prepare the case: {0}")]
    Io(#[from] io::Error),
}

impl From<kube::Error> for CaseError {
    fn from(error: kube::Error) -> Self {
        Self::Cluster(Box::new(error))
    }
}
