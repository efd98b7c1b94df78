//! The objects that a run creates on the management clusters.

use chandler_api::capi::CLUSTER_NAME_LABEL;
use serde_json::{Value, json};

use crate::{
    action::{ChartVersion, Cluster, Placement, ReleaseId},
    chart,
    model::ClusterModel,
};

pub const ADDONS: &str = "addons.cluster.x-k8s.io/v1alpha1";
pub const CAPI: &str = "cluster.x-k8s.io/v1beta2";
pub const CA_SECRET: &str = "ca";

/// Returns the name of a release, which is also its namespace on the workload cluster. It contains the namespace of the
/// run, so no other release has it, and all requests of the audit log in it are about this release.
pub fn release_name(namespace: &str, placement: Placement) -> String {
    format!("{namespace}-{placement}")
}

/// Returns the release to which a namespace of a workload cluster belongs.
pub fn release_of_namespace(
    namespace: &str,
    cluster: Cluster,
    workload_namespace: &str,
) -> Option<ReleaseId> {
    let placement = Placement::ALL
        .into_iter()
        .find(|placement| release_name(namespace, *placement) == workload_namespace)?;
    Some(ReleaseId { placement, cluster })
}

pub fn kubeconfig_secret_name(cluster: Cluster) -> String {
    format!("{}-kubeconfig", cluster.name())
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn ca_secret(namespace: &str, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CA_SECRET, "namespace": namespace},
        "stringData": {"ca.crt": ca_pem},
    })
}

pub fn kubeconfig_secret(namespace: &str, cluster: Cluster, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": kubeconfig_secret_name(cluster), "namespace": namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.name()},
        },
        "stringData": {"value": kubeconfig},
    })
}

pub fn cluster(namespace: &str, cluster: Cluster, model: &ClusterModel) -> Value {
    let labels: serde_json::Map<String, Value> =
        model.selected_by.iter().map(|placement| (placement.to_string(), json!("on"))).collect();
    json!({
        "apiVersion": CAPI, "kind": "Cluster",
        "metadata": {
            "name": cluster.name(), "namespace": namespace, "labels": labels,
            "annotations": {"version": chart::annotation(model.annotation)},
        },
        "spec": {"paused": model.paused},
    })
}

/// Returns the status that Cluster API sets once the control plane runs.
pub fn initialized() -> Value {
    json!({"status": {"initialization": {"controlPlaneInitialized": true, "infrastructureProvisioned": true}}})
}

pub fn placement(namespace: &str, placement: Placement, repository: &str) -> Value {
    let name = release_name(namespace, placement);
    json!({
        "apiVersion": ADDONS, "kind": "HelmChartProxy",
        "metadata": {"name": placement.to_string(), "namespace": namespace},
        "spec": {
            "clusterSelector": {"matchLabels": {placement.to_string(): "on"}}, "repoURL": repository,
            "chartName": chart::NAME, "version": ChartVersion::First.as_str(), "releaseName": name,
            "namespace": name, "valuesTemplate": chart::values_template(0),
            "tlsConfig": {"caSecret": {"name": CA_SECRET, "namespace": namespace}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_a_release_identifies_it() {
        let name = release_name("run-1", Placement(2));
        let release = ReleaseId { placement: Placement(2), cluster: Cluster::Bravo };
        assert_eq!(release_of_namespace("run-1", Cluster::Bravo, &name), Some(release));
        assert_eq!(release_of_namespace("run-2", Cluster::Bravo, &name), None);
        assert_eq!(release_of_namespace("run-1", Cluster::Bravo, "kube-system"), None);
    }
}
