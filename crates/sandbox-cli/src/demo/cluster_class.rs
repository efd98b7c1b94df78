//! The second part of the demo: a Cluster of a ClusterClass, which becomes Available when its extensions are ready.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use chandler_api::extensions::AddonRelease;
use chandler_sandbox::{
    apply, clusters::unavailable_message, provider::cluster_resource, repository::ChartRepository,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};

use super::walkthrough::{EXAMPLE_REPOSITORY, NAMESPACE, POLL_INTERVAL, TIMEOUT, readiness};

const EXAMPLE: [&str; 3] = [
    include_str!("../../../../examples/cluster-class/1-extensions.yaml"),
    include_str!("../../../../examples/cluster-class/2-class.yaml"),
    include_str!("../../../../examples/cluster-class/3-cluster.yaml"),
];
const CLUSTER: &str = "harbour";

/// Applies the example: Extensions, a ClusterClass that lists them, and a Cluster of the class.
pub async fn apply_example(client: &Client, repository: &ChartRepository) -> Result<()> {
    for file in EXAMPLE {
        apply::apply_all(client, &file.replace(EXAMPLE_REPOSITORY, repository.url())).await?;
    }
    eprintln!(
        "applied a ClusterClass with extensions and Cluster {NAMESPACE}/{CLUSTER} from examples/cluster-class"
    );
    Ok(())
}

/// Prints the progress of the Cluster's releases until the Cluster is Available.
pub struct ClusterProgress {
    clusters: Api<DynamicObject>,
    releases: Api<AddonRelease>,
    printed: BTreeMap<String, String>,
    deadline: tokio::time::Instant,
}

impl ClusterProgress {
    pub fn new(client: &Client) -> Self {
        Self {
            clusters: Api::namespaced_with(client.clone(), NAMESPACE, &cluster_resource()),
            releases: Api::namespaced(client.clone(), NAMESPACE),
            printed: BTreeMap::new(),
            deadline: tokio::time::Instant::now() + TIMEOUT,
        }
    }

    /// Prints changes since the last call. Returns whether the Cluster is Available.
    pub async fn poll(&mut self) -> Result<bool> {
        for release in self.releases.list(&ListParams::default()).await?.items {
            let extension = release.spec.extension.as_deref().unwrap_or("?");
            let version = release.spec.version.as_deref().unwrap_or("?");
            let line = format!("{CLUSTER}: {extension} {version}: {}", readiness(release.status.as_ref()));
            if self.printed.insert(release.name_any(), line.clone()) != Some(line.clone()) {
                eprintln!("  {line}");
            }
        }
        let message = unavailable_message(&self.clusters.get(CLUSTER).await?.data);
        match message {
            None => eprintln!("cluster {CLUSTER} is Available: its extensions are ready"),
            Some(ref message) if tokio::time::Instant::now() > self.deadline => {
                bail!("cluster {CLUSTER} was not Available within {TIMEOUT:?}: {message}")
            }
            Some(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
        Ok(message.is_none())
    }
}
