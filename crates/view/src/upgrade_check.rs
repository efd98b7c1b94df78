//! What a new Kubernetes would mean for the extensions of clusters.

mod read;
mod report;
mod target;

use std::sync::Arc;

use chandler_controller::{OneShotResolver, Platform};
use chandler_source::Packages;
use futures::{StreamExt as _, stream};
use kube::Client;

use self::read::Reader;
pub use self::{
    read::Chosen,
    report::{ClusterReport, ExtensionReport, Fate, Report, Summary, Verdict},
    target::{Target, Way},
};
use crate::Progress;

/// Clusters that are looked at side by side.
const ABREAST: usize = 8;

/// Why nothing could be found out about any cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{hint}: listing {what}")]
    List { hint: &'static str, what: String, source: Box<kube::Error> },
    #[error("there is no Cluster {name} {place}, or it is being deleted")]
    NoSuchCluster { name: String, place: String },
    #[error("there is no such Cluster {place}; other namespaces: --namespace or --all-namespaces")]
    NoClusters { place: String },
}

/// What is asked.
pub struct Request {
    pub clusters: Chosen,
    /// Where the clusters are; `None` means all namespaces.
    pub namespace: Option<String>,
    pub platform_namespace: String,
    /// `None` means the Kubernetes that is announced, else the next minor.
    pub to: Option<Target>,
}

/// Reads the management cluster and returns what the upgrade would mean for each cluster. It changes nothing.
pub async fn check(
    client: Client,
    request: Request,
    platform: Platform,
    packages: Arc<Packages>,
    progress: &dyn Progress,
) -> Result<Report, Error> {
    let Request { clusters, namespace, platform_namespace, to } = request;
    let reader = Reader::new(client.clone(), namespace, &platform_namespace, progress);
    let chosen = reader.clusters(&clusters).await?;
    let listed = reader.listed().await?;
    let outlook = OneShotResolver::new(client, platform, packages, listed);
    let (count, outlook) = (chosen.len(), &outlook);
    let checks =
        stream::iter(&chosen).map(|cluster| async move { (cluster, outlook.question(cluster).await) });
    let mut checks = checks.buffered(ABREAST);
    let mut reports = Vec::with_capacity(count);
    progress.report(format!("checking: {count} clusters"));
    while let Some((cluster, question)) = checks.next().await {
        reports.push(ClusterReport::new(cluster, question, to.as_ref()));
        progress.report(format!("checking: {} of {count} clusters", reports.len()));
    }
    Ok(Report::new(reports))
}
