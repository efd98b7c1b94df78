//! Which Kubernetes minor a cluster runs: what its control plane says in its status. What is wanted of the cluster, in
//! its topology, comes true only later, and a chart rendered in between would see the old API server.

use chandler_api::capi::ContractReference;
use chandler_core::{
    failure::{Category, Failure},
    identity::ClusterKey,
    release::ReleaseKind,
    resolution::parse_kubernetes_version,
};
use kube::api::DynamicObject;

use super::ReleaseContext;

impl<R: ReleaseKind> ReleaseContext<R> {
    /// For example `1.34`. None: the Cluster names no control plane, or that tells no version.
    pub(super) async fn kubernetes_minor(
        &self,
        cluster: &ClusterKey,
        control_plane: Option<&ContractReference>,
    ) -> Result<Option<String>, Failure> {
        let Some(control_plane) = control_plane else { return Ok(None) };
        let object = self.references.get(&cluster.namespace, control_plane).await.map_err(|error| {
            let message = format!(
                "the chart reads the Kubernetes version of cluster {cluster}, which is unknown: {error}"
            );
            Failure::new(Category::InvalidSpec, message)
        })?;
        Ok(minor_of(&object))
    }

    /// As far as it is known at this moment.
    pub(super) fn known_kubernetes_minor(
        &self,
        cluster: &ClusterKey,
        control_plane: Option<&ContractReference>,
    ) -> Option<String> {
        minor_of(&*self.references.known(&cluster.namespace, control_plane?)?)
    }
}

fn minor_of(control_plane: &DynamicObject) -> Option<String> {
    minor(control_plane.data.pointer("/status/version")?.as_str()?)
}

fn minor(version: &str) -> Option<String> {
    let version = parse_kubernetes_version(version)?;
    Some(format!("{}.{}", version.major, version.minor))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn minors_are_read_off_versions() {
        for (version, expected) in
            [("v1.34.4", Some("1.34")), ("1.35.0+vendor.1", Some("1.35")), ("latest", None)]
        {
            assert_eq!(minor(version).as_deref(), expected);
        }
    }

    #[test]
    fn the_version_that_runs_counts_not_the_one_that_is_wanted() {
        let control_plane: DynamicObject = serde_json::from_value(json!({
            "metadata": {}, "spec": {"version": "v1.35.4"}, "status": {"version": "v1.34.4"},
        }))
        .unwrap();
        assert_eq!(minor_of(&control_plane).as_deref(), Some("1.34"));
    }
}
