//! The limit of open files, which the manager and this process need for their connections.

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that do not depend on the number of clusters.
const OTHER_FILES: u64 = 500;
/// For each cluster a watch and a probe, and another while the connection is renewed.
const FILES_PER_CLUSTER: u64 = 3;

/// Raises the limit of this process and its children as far as allowed. Returns an error if that is too low.
pub fn raise_limit(clusters: u32) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")?;
    let needed = needed(clusters);
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{clusters} clusters need {needed} open files: raise the hard limit (`ulimit -Hn`)"
    );
    Ok(())
}

fn needed(clusters: u32) -> u64 {
    OTHER_FILES + FILES_PER_CLUSTER * u64::from(clusters)
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_cluster_needs_connections() {
        assert_eq!(super::needed(1_000), 3_500);
    }
}
