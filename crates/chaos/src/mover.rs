//! Moves the objects of a namespace to another management cluster, as `clusterctl move` does.

use std::time::{Duration, Instant};

use anyhow::Result;
use chandler_sandbox::{clusterctl_move::ClusterctlMove, dynamic_api::namespaced};
use kube::{
    Client,
    api::{ListParams, Patch, PatchParams},
};

use crate::{
    action::Cluster,
    objects::{ADDONS, CA_SECRET, CAPI, initialized},
};

/// Long enough for a manager to react to a change.
const REACTION_TIME: Duration = Duration::from_millis(300);
/// How long deletions may take to complete before a move.
const DELETIONS_TIMEOUT: Duration = Duration::from_secs(10);

/// A move of the objects in a namespace.
pub struct Mover<'a> {
    pub source: &'a Client,
    pub target: &'a Client,
    pub namespace: &'a str,
}

impl Mover<'_> {
    /// Moves all objects. Clusters stay paused on the target if `is_paused`. Returns false without a change if objects
    /// are being deleted, because clusterctl refuses to move those.
    pub async fn run(&self, is_paused: impl Fn(Cluster) -> bool) -> Result<bool> {
        if !self.wait_no_deletions().await? {
            return Ok(false);
        }
        let Self { source, target, namespace } = *self;
        let clusterctl = ClusterctlMove { source, target, namespace, pause: Duration::ZERO };
        for cluster in Cluster::ALL {
            clusterctl.set_paused(source, cluster.name(), true).await?;
        }
        tokio::time::sleep(REACTION_TIME).await;
        let nodes = clusterctl.graph(&[CA_SECRET], &Cluster::ALL.map(Cluster::name)).await?;
        // Managers that do not react in time may create or delete objects meanwhile.
        clusterctl.run(&nodes).await?;
        for cluster in Cluster::ALL {
            self.set_initialized(cluster).await?;
            clusterctl.set_paused(target, cluster.name(), is_paused(cluster)).await?;
        }
        Ok(true)
    }

    async fn wait_no_deletions(&self) -> Result<bool> {
        let deadline = Instant::now() + DELETIONS_TIMEOUT;
        loop {
            let mut deleting = 0;
            for kind in ["HelmChartProxy", "HelmReleaseProxy"] {
                let objects = namespaced(self.source, self.namespace, ADDONS, kind);
                let all = objects.list(&ListParams::default()).await?;
                deleting += all.iter().filter(|object| object.metadata.deletion_timestamp.is_some()).count();
            }
            if deleting == 0 || Instant::now() > deadline {
                return Ok(deleting == 0);
            }
            tokio::time::sleep(REACTION_TIME).await;
        }
    }

    async fn set_initialized(&self, cluster: Cluster) -> Result<()> {
        let clusters = namespaced(self.target, self.namespace, CAPI, "Cluster");
        let patch = Patch::Merge(initialized());
        clusters.patch_status(cluster.name(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
