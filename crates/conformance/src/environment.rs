//! What the suite needs of whoever runs it.

use std::{collections::BTreeMap, error::Error, path::PathBuf};

use chandler_core::target::Target;
use chandler_tool::SupervisorConfig;

/// Whatever failed on the host's side.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A cluster of the suite's own and the reference tool. Deployments and Jobs on it must come to their ends.
pub struct Environment {
    /// The tool under test.
    pub tool: SupervisorConfig,
    /// The cluster's administrator.
    pub target: Target,
    pub client: kube::Client,
    /// The same administrator, for the Helm CLI.
    pub kubeconfig: PathBuf,
    /// The Helm CLI.
    pub helm: PathBuf,
    pub host: Box<dyn Host>,
}

/// What only the host can do.
pub trait Host: Send + Sync {
    /// Packs a chart's files, by their names inside the chart.
    fn pack(&self, files: &BTreeMap<String, String>) -> Result<Vec<u8>, BoxError>;

    /// The requests that the API server gets from now on.
    fn requests(&self) -> Box<dyn RequestReader>;
}

/// A reading position in what the API server was asked.
pub trait RequestReader: Send {
    /// Everything since the last reading.
    fn read(&mut self) -> Result<Vec<Request>, BoxError>;
}

/// A request that the API server got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uri: String,
    pub user: String,
    pub user_agent: String,
    /// Since the epoch.
    pub received: std::time::Duration,
}
