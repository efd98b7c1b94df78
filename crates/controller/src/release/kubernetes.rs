//! The Kubernetes minor version that a cluster runs: the one in the status of its control plane. The version in the spec of the
//! control plane or in the topology is running only later, and a chart that is rendered meanwhile would see the old API
//! server.

use chandler_api::capi::ContractReference;
use chandler_core::{
    failure::{Category, Failure},
    identity::ClusterKey,
    release::ReleaseKind,
    resolution::parse_kubernetes_version,
};
use kube::api::DynamicObject;

use super::ReleaseContext;
use crate::references::ReferenceError;

impl<R: ReleaseKind> ReleaseContext<R> {
    /// Returns for example `1.34`, or `None` if the Cluster has no control plane with a version. A version that is not known
    /// yet is an error: without it, the release would be upgraded, and again when it is known.
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
            Failure::new(category(&error), message)
        })?;
        let minor = minor_of(&object);
        if minor.is_none() && object.data.pointer("/spec/version").is_some() {
            let message = format!(
                "the chart reads the Kubernetes version of cluster {cluster}, which its control plane does not report yet"
            );
            return Err(Failure::new(Category::NotReady, message));
        }
        Ok(minor)
    }

    /// Returns the minor version if it is known without a request.
    pub(super) fn known_kubernetes_minor(
        &self,
        cluster: &ClusterKey,
        control_plane: Option<&ContractReference>,
    ) -> Option<String> {
        minor_of(&*self.references.known(&cluster.namespace, control_plane?)?)
    }
}

/// A request that failed may succeed soon, and a control plane may be created or seen soon after its Cluster.
fn category(error: &ReferenceError) -> Category {
    match error {
        ReferenceError::NoContract { .. } => Category::InvalidSpec,
        ReferenceError::NotServed { .. }
        | ReferenceError::NotRead { .. }
        | ReferenceError::Forbidden { .. }
        | ReferenceError::Missing { .. }
        | ReferenceError::NotListed { .. } => Category::NotReady,
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
    fn only_a_kind_without_a_contract_needs_a_change_by_a_user() {
        let (group, kind) = ("controlplane.cluster.x-k8s.io".to_owned(), "SandboxControlPlane".to_owned());
        let missing = ReferenceError::Missing {
            kind: kind.clone(),
            namespace: "fleet".to_owned(),
            name: "blue".to_owned(),
        };
        let not_listed = ReferenceError::NotListed { group: group.clone(), kind: kind.clone() };
        assert_eq!([category(&missing), category(&not_listed)], [Category::NotReady; 2]);
        assert_eq!(category(&ReferenceError::NoContract { group, kind }), Category::InvalidSpec);
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
