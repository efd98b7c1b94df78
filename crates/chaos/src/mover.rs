//! Moves the objects of a namespace to another management cluster, as `clusterctl move` does.

use std::time::{Duration, Instant};

use anyhow::Result;
use chandler_sandbox::{clusterctl_move::ClusterctlMove, dynamic_api::namespaced};
use kube::{
    Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::Value;

use crate::{
    action::Cluster,
    model::Model,
    objects::{CA_SECRET, CLUSTERS, CONTROL_PLANES, Kind, MANAGED_KINDS, initialized, running},
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
    /// Moves all objects. Clusters stay paused on the target if they are paused in the model. Returns false without a change
    /// if objects are being deleted, because clusterctl refuses to move those.
    pub async fn run(&self, model: &Model) -> Result<bool> {
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
            self.set_status(CONTROL_PLANES, cluster, running(model.kubernetes(cluster))).await?;
            self.set_status(CLUSTERS, cluster, initialized()).await?;
            clusterctl.set_paused(target, cluster.name(), model.is_paused(cluster)).await?;
        }
        Ok(true)
    }

    async fn wait_no_deletions(&self) -> Result<bool> {
        let deadline = Instant::now() + DELETIONS_TIMEOUT;
        loop {
            let mut deleting = 0;
            for (api_version, kind) in MANAGED_KINDS {
                let objects = namespaced(self.source, self.namespace, api_version, kind);
                let all = objects.list(&ListParams::default()).await?;
                deleting += all.iter().filter(|object| object.metadata.deletion_timestamp.is_some()).count();
            }
            if deleting == 0 || Instant::now() > deadline {
                return Ok(deleting == 0);
            }
            tokio::time::sleep(REACTION_TIME).await;
        }
    }

    /// Sets the status that a provider sets on the target, because a move does not copy it.
    async fn set_status(&self, kind: Kind, cluster: Cluster, status: Value) -> Result<()> {
        let (api_version, kind) = kind;
        let objects = namespaced(self.target, self.namespace, api_version, kind);
        objects.patch_status(cluster.name(), &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }
}
