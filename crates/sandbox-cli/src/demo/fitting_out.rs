//! What the demo shows next: a Cluster of a class, which is Available when its extensions are ready.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use chandler_api::extensions::AddonRelease;
use chandler_sandbox::{
    apply, clusters::unavailable, provider::cluster_resource, repository::ChartRepository,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};

use super::story::{EXAMPLE_REPOSITORY, LIMIT, LOOK, NAMESPACE, readiness};

const EXAMPLE: [&str; 3] = [
    include_str!("../../../../examples/cluster-class/1-extensions.yaml"),
    include_str!("../../../../examples/cluster-class/2-class.yaml"),
    include_str!("../../../../examples/cluster-class/3-cluster.yaml"),
];
const CLUSTER: &str = "harbour";

/// Applies the example: extensions, a class that lists them, and a Cluster of it.
pub async fn begin(client: &Client, repository: &ChartRepository) -> Result<()> {
    for file in EXAMPLE {
        apply::apply_all(client, &file.replace(EXAMPLE_REPOSITORY, repository.url())).await?;
    }
    eprintln!(
        "applied a ClusterClass with extensions and Cluster {NAMESPACE}/{CLUSTER} from examples/cluster-class"
    );
    Ok(())
}

/// A Cluster on its way to Available.
pub struct FittingOut {
    clusters: Api<DynamicObject>,
    releases: Api<AddonRelease>,
    shown: BTreeMap<String, String>,
    deadline: tokio::time::Instant,
}

impl FittingOut {
    pub fn new(client: &Client) -> Self {
        Self {
            clusters: Api::namespaced_with(client.clone(), NAMESPACE, &cluster_resource()),
            releases: Api::namespaced(client.clone(), NAMESPACE),
            shown: BTreeMap::new(),
            deadline: tokio::time::Instant::now() + LIMIT,
        }
    }

    /// Shows what is new; tells whether the Cluster is Available.
    pub async fn look(&mut self) -> Result<bool> {
        for release in self.releases.list(&ListParams::default()).await?.items {
            let extension = release.spec.extension.as_deref().unwrap_or("?");
            let version = release.spec.version.as_deref().unwrap_or("?");
            let line = format!("{CLUSTER}: {extension} {version}: {}", readiness(release.status.as_ref()));
            if self.shown.insert(release.name_any(), line.clone()) != Some(line.clone()) {
                eprintln!("  {line}");
            }
        }
        let why = unavailable(&self.clusters.get(CLUSTER).await?.data);
        match why {
            None => eprintln!("cluster {CLUSTER} is Available: its extensions are ready"),
            Some(ref why) if tokio::time::Instant::now() > self.deadline => {
                bail!("cluster {CLUSTER} was not Available within {LIMIT:?}: {why}")
            }
            Some(_) => tokio::time::sleep(LOOK).await,
        }
        Ok(why.is_none())
    }
}
