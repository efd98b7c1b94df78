//! Checks what an upgrade of Kubernetes would change for the extensions of clusters, and for the HelmChartProxies whose
//! versions follow Kubernetes.

mod followers;
mod reader;
mod report;
mod target_version;

use std::sync::Arc;

use chandler_controller::{OneShotResolver, Platform};
use chandler_source::Packages;
use futures::{StreamExt as _, stream};
use kube::Client;

use self::reader::InputReader;
pub use self::{
    reader::ClusterFilter,
    report::{ClusterOutcome, ClusterReport, ExtensionOutcome, ExtensionReport, Report, Summary},
    target_version::{TargetVersion, UpgradePath},
};
use crate::Progress;

/// Clusters that are checked at the same time.
const CONCURRENCY: usize = 8;

/// No cluster can be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{hint}: listing {objects}")]
    List { hint: &'static str, objects: String, source: Box<kube::Error> },
    #[error("Cluster {name} not found {scope}, or it is being deleted")]
    ClusterNotFound { name: String, scope: String },
    #[error("no matching Cluster found {scope}; use --namespace or --all-namespaces for other namespaces")]
    NoClusters { scope: String },
}

/// Which clusters to check, and against which version of Kubernetes.
pub struct Request {
    pub clusters: ClusterFilter,
    /// Namespace of the clusters. `None` means all namespaces.
    pub namespace: Option<String>,
    pub platform_namespace: String,
    /// `None` means the pending upgrade of each cluster, or the next minor version if none is pending.
    pub to: Option<TargetVersion>,
}

/// Checks what the upgrade would change for each cluster. Only reads from the management cluster.
pub async fn check(
    client: Client,
    request: Request,
    platform: Platform,
    packages: Arc<Packages>,
    progress: &dyn Progress,
) -> Result<Report, Error> {
    let Request { clusters, namespace, platform_namespace, to } = request;
    let reader = InputReader::new(client.clone(), namespace, &platform_namespace, progress);
    let clusters = reader.clusters(&clusters).await?;
    let listed = reader.listed().await?;
    let charts = reader.charts().await?;
    let resolver = &OneShotResolver::new(client, platform, packages, listed);
    let count = clusters.len();
    let checks =
        stream::iter(&clusters).map(|cluster| async move { (cluster, resolver.input(cluster).await) });
    let mut checks = checks.buffered(CONCURRENCY);
    let mut reports = Vec::with_capacity(count);
    progress.report(format!("checking: {count} clusters"));
    while let Some((cluster, input)) = checks.next().await {
        let followers = charts.followers(cluster);
        reports.push(ClusterReport::new(cluster, input, &followers, to.as_ref()));
        progress.report(format!("checking: {} of {count} clusters", reports.len()));
    }
    Ok(Report::new(reports))
}
