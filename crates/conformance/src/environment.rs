//! What the suite needs to run.

use std::{collections::BTreeMap, error::Error, path::PathBuf};

use chandler_core::target::Target;
use chandler_tool::SupervisorConfig;

/// An error of the [`Host`].
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A cluster that only the suite uses, the tool under test, and the helm CLI.
///
/// Deployments become ready and Jobs complete on the cluster. Its API server can connect to the loopback address of this
/// machine.
pub struct Environment {
    /// The tool under test.
    pub tool: SupervisorConfig,
    /// The process that serves templates. `None` skips the template cases.
    pub templates: Option<SupervisorConfig>,
    /// Command that packs a [`TestPackage`](crate::TestPackage), run by `sh -c`. `None` packs Helm charts.
    pub packer: Option<String>,
    /// The cluster's administrator.
    pub target: Target,
    pub client: kube::Client,
    /// Kubeconfig of the same administrator, for the helm CLI.
    pub kubeconfig: PathBuf,
    /// Path of the helm CLI.
    pub helm: PathBuf,
    pub host: Box<dyn Host>,
}

/// What the program that runs the suite provides.
pub trait Host: Send + Sync {
    /// Packs a Helm chart from its files, which are named by their path inside the chart.
    fn pack_chart(&self, files: &BTreeMap<String, String>) -> Result<Vec<u8>, BoxError>;

    /// Returns a reader of the requests that the API server receives from now on.
    fn requests(&self) -> Box<dyn RequestReader>;
}

/// Reads the API server's audit log.
pub trait RequestReader: Send {
    /// Returns the requests since the last call.
    fn read(&mut self) -> Result<Vec<Request>, BoxError>;
}

/// A request that the API server received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uri: String,
    pub user: String,
    pub user_agent: String,
    /// Time since the Unix epoch.
    pub received: std::time::Duration,
}
