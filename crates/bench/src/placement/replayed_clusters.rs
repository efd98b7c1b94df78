//! The replayed clusters: a few endpoints, and a Cluster object for each cluster.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;

use super::{
    recording::Recording,
    replay::{Behavior, ReplayServer},
    replay_traffic::ReplayTraffic,
};
use crate::cluster_registration::ClusterRegistration;

/// The endpoints of the clusters that are always healthy, or unreachable all at once.
const SERVERS: u32 = 4;
/// One cluster of so many belongs to those that become silent.
const SILENT_SHARE: u32 = 100;
const PARALLEL_REGISTRATIONS: usize = 16;
/// The names of the replayed clusters begin with this.
const NAME_PREFIX: &str = "replay-";

pub struct ReplayedClusters {
    clusters: u32,
    traffic: ReplayTraffic,
    /// The endpoint of the clusters that become silent.
    silent: ReplayServer,
    others: Vec<ReplayServer>,
}

impl ReplayedClusters {
    /// Starts the endpoints. They replay the answers that `real` gets.
    pub async fn start(folder: &Path, real: Client, clusters: u32) -> Result<Self> {
        let (recording, traffic) = (Arc::new(Recording::of(real)), ReplayTraffic::default());
        let start = || ReplayServer::start(folder, recording.clone(), traffic.clone());
        let silent = start().await?;
        let mut others = Vec::new();
        for _ in 0..SERVERS {
            others.push(start().await?);
        }
        Ok(Self { clusters, traffic, silent, others })
    }

    pub fn count(&self) -> u32 {
        self.clusters
    }

    pub fn traffic(&self) -> &ReplayTraffic {
        &self.traffic
    }

    /// Creates the Clusters and their kubeconfigs. `progress` gets the number of those that exist.
    pub async fn register(&self, client: &Client, mut progress: impl FnMut(u32)) -> Result<()> {
        let registrations = (0..self.clusters).map(|index| async move {
            let server = self.server(index);
            let (name, kubeconfig, port) = (name(index), server.kubeconfig(), server.port());
            ClusterRegistration { name: &name, kubeconfig, port }.apply(client).await
        });
        let mut registered = stream::iter(registrations).buffer_unordered(PARALLEL_REGISTRATIONS);
        let mut count = 0;
        while registered.try_next().await?.is_some() {
            count += 1;
            progress(count);
        }
        Ok(())
    }

    /// Returns the names of up to `count` clusters that never become silent.
    pub fn samples(&self, count: u32) -> Vec<String> {
        samples(self.clusters, count).into_iter().map(name).collect()
    }

    /// Sets the behavior of all clusters.
    pub fn set_behavior(&self, behavior: Behavior) {
        self.set_behavior_of_few(behavior);
        for server in &self.others {
            server.set_behavior(behavior);
        }
    }

    /// Sets the behavior of 1 % of the clusters.
    pub fn set_behavior_of_few(&self, behavior: Behavior) {
        self.silent.set_behavior(behavior);
    }

    fn server(&self, index: u32) -> &ReplayServer {
        if index < silent(self.clusters) {
            return &self.silent;
        }
        let index = usize::try_from(index).unwrap_or_default() % self.others.len().max(1);
        self.others.get(index).unwrap_or(&self.silent)
    }
}

fn name(index: u32) -> String {
    format!("{NAME_PREFIX}{index:05}")
}

/// Returns whether the cluster with this name is a replayed one.
pub fn is_replayed(name: &str) -> bool {
    name.starts_with(NAME_PREFIX)
}

/// Returns how many clusters become silent: the first ones.
fn silent(clusters: u32) -> u32 {
    (clusters / SILENT_SHARE).max(1)
}

/// Returns evenly distributed clusters that never become silent.
fn samples(clusters: u32, count: u32) -> Vec<u32> {
    let first = silent(clusters);
    let others = clusters.saturating_sub(first);
    let count = count.min(others);
    (0..count).map(|sample| first + sample * (others / count.max(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_percent_becomes_silent() {
        for (clusters, expected) in [(2, 1), (199, 1), (1_000, 10), (5_000, 50)] {
            assert_eq!(silent(clusters), expected);
        }
    }

    #[test]
    fn the_real_cluster_is_not_replayed() {
        assert!(is_replayed(&name(0)) && is_replayed(&name(4_999)));
        assert!(!is_replayed("cluster-1"));
    }

    #[test]
    fn samples_are_distributed_and_never_silent() {
        assert_eq!(samples(2, 100), [1]);
        assert_eq!(samples(1_000, 3), [10, 340, 670]);
        assert_eq!(samples(1, 100), [] as [u32; 0]);
        let all = samples(1_000, 990);
        assert_eq!((all.len(), all.first(), all.last()), (990, Some(&10), Some(&999)));
    }
}
